"""Balanced streams return the results of plain ones in each batch: running, windowed, upserted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.streams import named
from unskew.planners import PLANNERS
from unskew.routers import ROUTERS
from unskew.spark import Balancer, combine
from unskew.spark.runtime.checkpoint import PARTITIONS

ALL = [
    *((name, "planned") for name, router in ROUTERS.items() if router.planned is not None),
    *((name, "planned") for name in PLANNERS),
    *((name, "online") for name in ROUTERS if not ROUTERS[name].offline),
]
SOME = [("w-choices", "planned"), ("mixed", "planned"), ("shuffle", "online"), ("fish", "online")]
SCHEMES = [pytest.param(*case, marks=[] if case in SOME else [pytest.mark.full]) for case in ALL]
FILES = 4
WORKERS = 3
START = 1_767_225_600


def aggregates() -> dict[str, Any]:
    return {
        "n": F.count("*"),
        "present": F.count("x"),
        "total": F.sum("x"),
        "money": F.sum("price"),
        "least": F.min("x"),
        "most": F.max("x"),
        "mean": F.mean("price"),
        "distinct": F.collect_set("x"),
        "all": F.collect_list("x"),
        "about": F.approx_count_distinct("x"),
    }


class Spread:
    """The range of values with its ends, so that the state is larger than the result."""

    def create_accumulator(self) -> tuple[Any, Any]:
        return None, None

    def add_input(self, accumulator: tuple[Any, Any], x: int | None) -> tuple[Any, Any]:
        low, high = accumulator
        if x is None:
            return accumulator
        assert isinstance(x, int)
        return (x if low is None else min(low, x)), (x if high is None else max(high, x))

    def merge_accumulators(self, accumulators: Iterable[tuple[Any, Any]]) -> tuple[Any, Any]:
        merged = self.create_accumulator()
        for low, high in accumulators:
            merged = self.add_input(self.add_input(merged, low), high)
        return merged

    def extract_output(self, accumulator: tuple[Any, Any]) -> int | None:
        low, high = accumulator
        return None if low is None else high - low


class Weighted:
    """A mean weighted by another column, which adds all elements of a chunk at once."""

    def create_accumulator(self) -> list[float]:
        return [0.0, 0.0]

    def add_input(self, accumulator: list[float], element: tuple[Any, Any]) -> list[float]:
        raise AssertionError("there is add_inputs")

    def add_inputs(self, accumulator: list[float], elements: list[Any]) -> list[float]:
        for x, price in elements:
            accumulator[0] += (x or 0) * float(price)
            accumulator[1] += float(price)
        return accumulator

    def merge_accumulators(self, accumulators: Iterable[list[float]]) -> list[float]:
        return [sum(part) for part in zip(*accumulators, strict=True)]

    def extract_output(self, accumulator: list[float]) -> float:
        return accumulator[0] / accumulator[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write files whose hot key changes, with nulls, an empty file, and late events."""
    path = tmp_path_factory.mktemp("events")
    rng = np.random.default_rng(2)
    for i in range(FILES):
        records = 0 if i == 2 else 600
        ids = (np.minimum(rng.zipf(1.4, records), 40) + 11 * i) % 40
        seconds = START + 120 * i + np.arange(records) // 5
        seconds[::7] -= 100 * (i == 3)  # late: most of these windows are closed
        table = pa.table(
            {
                "key": pa.array([None if k == 5 else f"key-{k}" for k in ids], pa.string()),
                "x": pa.array(rng.integers(-20, 20, records), mask=rng.random(records) < 0.1),
                "price": pa.array(rng.integers(1, 99, records), pa.int32()).cast(
                    pa.decimal128(12, 2)
                ),
                "time": pa.array(seconds * 10**6, pa.timestamp("us", "UTC")),
            }
        )
        pq.write_table(table, path / f"{i}.parquet")
        os.utime(
            path / f"{i}.parquet", (START + i, START + i)
        )  # streams read files in the order of their times
    return path


@pytest.fixture(scope="module", autouse=True)
def workers(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, WORKERS)
    yield
    spark.conf.set(PARTITIONS, before or 8)


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def plain(df: DataFrame, *grouping: Any, **aggregates: Column) -> DataFrame:
    return df.groupBy(*grouping).agg(*(a.alias(name) for name, a in aggregates.items()))


def outputs(df: DataFrame, checkpoint: Path, mode: str) -> list[list[Any]]:
    """Return the results of a query by batch, sorted."""
    found: list[list[Any]] = []

    def note(batch: DataFrame, _: int) -> None:
        rows = (
            tuple(sorted(v) if isinstance(v, list) else v for v in row) for row in batch.collect()
        )
        found.append(sorted(rows, key=repr))

    out = df.writeStream.foreachBatch(note).outputMode(mode)
    out = out.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    out.start().awaitTermination()
    return found


@pytest.fixture(scope="module")
def expected(
    spark: SparkSession, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[list[Any]]:
    df = plain(stream(spark, folder), "key", **aggregates())
    return outputs(df, tmp_path_factory.mktemp("plain"), "update")


def windows(spark: SparkSession, folder: Path) -> DataFrame:
    events = stream(spark, folder).withWatermark("time", "20 seconds")
    return events.groupBy(F.window("time", "60 seconds", "30 seconds"), "key").agg(
        (F.max("x") - F.min("x")).alias("spread"),
        *(a.alias(name) for name, a in aggregates().items()),
    )


@pytest.fixture(scope="module")
def expected_windows(
    spark: SparkSession, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[Any]:
    found = outputs(windows(spark, folder), tmp_path_factory.mktemp("windows"), "append")
    rows = sorted(chain.from_iterable(found), key=repr)
    counted, there = sum(row[3] for row in rows), 2 * (FILES - 1) * 600
    assert 0.5 * there < counted < 0.95 * there, "some events are too late"
    return rows


@pytest.mark.parametrize(("scheme", "mode"), SCHEMES)
def test_running_aggregates_equal_plain_ones_in_every_batch(
    spark: SparkSession,
    folder: Path,
    tmp_path: Path,
    expected: list[list[Any]],
    scheme: str,
    mode: str,
) -> None:
    balance = Balancer(scheme, routing=mode, checkpoint=str(tmp_path))
    df = balance.groupBy(stream(spark, folder), "key").agg(*named(aggregates()))
    assert df.schema == plain(stream(spark, folder), "key", **aggregates()).schema
    assert outputs(df, tmp_path, "update") == expected
    assert [len(rows) for rows in expected][2] == 0


@pytest.mark.parametrize(("scheme", "mode"), [("w-choices", "planned"), ("shuffle", "online")])
def test_running_combiners(
    spark: SparkSession, folder: Path, tmp_path: Path, scheme: str, mode: str
) -> None:
    balance = Balancer(scheme, routing=mode, checkpoint=str(tmp_path / "balanced"))
    spread = combine(Spread(), "x", returns="bigint")
    df = balance.groupBy(stream(spark, folder), "key").agg(spread.alias("spread"))
    native = stream(spark, folder).groupBy("key").agg((F.max("x") - F.min("x")).alias("spread"))
    assert df.schema == native.schema
    wanted = outputs(native, tmp_path / "plain", "update")
    assert outputs(df, tmp_path / "balanced", "update") == wanted


def test_combiners_in_batch(spark: SparkSession, folder: Path) -> None:
    df = spark.read.parquet(str(folder)).repartition(4)
    balance = Balancer("shuffle")
    weighted = combine(Weighted(), "x", "price", returns="double")
    spread = combine(Spread(), "x", returns="bigint")
    found = (
        balance.groupBy(df, "key")
        .agg(spread.alias("spread"), weighted.alias("mean"), F.count("*").alias("n"))
        .collect()
    )
    price = F.col("price").cast("double")
    mean = F.sum(F.coalesce("x", F.lit(0)) * price) / F.sum(price)
    native = df.groupBy("key").agg(F.max("x") - F.min("x"), mean, F.count("*")).collect()
    for row, wanted in zip(by_key(found), by_key(native), strict=True):
        assert row[:2] == wanted[:2]
        assert row[2:] == pytest.approx(wanted[2:])


def by_key(rows: list[Any]) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows), key=lambda row: repr(row[0]))


@pytest.mark.parametrize(("scheme", "mode"), SCHEMES)
def test_windows_equal_plain_ones(
    spark: SparkSession,
    folder: Path,
    tmp_path: Path,
    expected_windows: list[Any],
    scheme: str,
    mode: str,
) -> None:
    """The same late events are dropped as in the plain query, and the others are counted."""
    events = stream(spark, folder).withWatermark("time", "20 seconds")
    window = F.window("time", "60 seconds", "30 seconds")
    balance = Balancer(scheme, routing=mode, checkpoint=str(tmp_path / "balanced"))
    spread = combine(Spread(), "x", returns="bigint")
    df = balance.groupBy(events, window, "key").agg(spread.alias("spread"), *named(aggregates()))
    native = windows(spark, folder)
    assert df.schema == native.schema
    found = outputs(df, tmp_path / "balanced", "append")
    assert sorted(chain.from_iterable(found), key=repr) == expected_windows


def in_order(df: DataFrame) -> list[Any]:
    rows = (tuple(sorted(v) if isinstance(v, list) else v for v in row) for row in df.collect())
    return sorted(rows, key=repr)


@pytest.mark.parametrize("keys", [0, 1, 3])
@pytest.mark.parametrize("scheme", ["w-choices", "shuffle"])
def test_fewer_keys_than_workers(
    spark: SparkSession, tmp_path: Path, scheme: str, keys: int
) -> None:
    ids = np.arange(3000 if keys else 0)
    (tmp_path / "in").mkdir()
    for i in range(2):
        pq.write_table(
            pa.table({"key": ids % max(1, keys), "x": ids}), tmp_path / f"in/{i}.parquet"
        )
    balance = Balancer(scheme, checkpoint=str(tmp_path / "chk"))
    total: dict[str, Any] = {"n": F.count("*"), "total": F.sum("x")}
    df = balance.groupBy(stream(spark, tmp_path / "in"), "key").agg(*named(total))
    found = outputs(df, tmp_path / "chk", "update")
    sums = [
        [(k, n * len(ids[k::keys]), n * int(ids[k::keys].sum())) for k in range(keys)]
        for n in (1, 2)
    ]
    assert [rows for rows in found if rows] == [rows for rows in sums if rows]


def refused(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_combiners_are_checked(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    no_object, no_methods = Spread, object()  # type: Any, Any
    refused(lambda: combine(no_object, "x", returns="int"), TypeError, "an object, got the class")
    refused(lambda: combine(no_methods, "x", returns="int"), TypeError, "without create_acc")
    refused(lambda: combine(Spread(), returns="int"), ValueError, "at least one column")
    spread = combine(Spread(), "x", returns="bigint")
    balance = Balancer("pkg", checkpoint=str(tmp_path))
    df = stream(spark, folder)
    refused(
        lambda: balance.groupBy(df, "key").agg(F.count("*").alias("n"), spread.alias("spread")),
        ValueError,
        "kept by different operators",
    )


def test_names_and_kinds_of_aggregates_are_checked(spark: SparkSession, folder: Path) -> None:
    df, balance = spark.read.parquet(str(folder)), Balancer("pkg")
    anything: Any = 7
    refused(lambda: balance.groupBy(df, "key").agg(), ValueError, "at least one aggregate")
    refused(
        lambda: balance.groupBy(df, "key").agg(anything),
        TypeError,
        r"an aggregate must be a Column, .* got 7",
    )
    refused(
        lambda: balance.groupBy(df, "key", anything),
        TypeError,
        "a key must be a Column or the name of one",
    )
