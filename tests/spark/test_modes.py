"""Windows and sessions in every output mode, with Spark's own guard on and off."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.streams import named, outputs, read_batches, write_batches
from unskew.spark import Balancer, combine

CHECK = "spark.sql.streaming.statefulOperator.checkCorrectness.enabled"
SCHEMES = ["w-choices", "shuffle", "mixed", "key"]
WINDOWS: dict[str, Callable[[], Column]] = {
    "tumbling": lambda: F.window("time", "1 minute"),
    "sliding": lambda: F.window("time", "1 minute", "30 seconds"),
    "session": lambda: F.session_window("time", "8 seconds"),
}


pytestmark = pytest.mark.usefixtures("three_workers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write late and unordered events, and one that closes all windows."""
    path, rng, tables = tmp_path_factory.mktemp("events"), np.random.default_rng(1), []
    for i in range(4):
        at = 1_767_225_600 + 40 * i + rng.uniform(-20, 40, 250)
        keys = [None if k == 3 else f"k{k}" for k in np.minimum(rng.zipf(1.6, 250), 15)]
        if i == 3:
            keys, at = ["end"], np.array([1_767_325_600.0])
        time = pa.array((at * 1e6).astype(np.int64), pa.timestamp("us", "UTC"))
        x = pa.array(rng.integers(0, 99, len(keys)))
        tables.append(pa.table({"key": pa.array(keys, pa.string()), "x": x, "time": time}))
    write_batches(path, tables)
    return path


def aggregates() -> dict[str, Column]:
    return {"n": F.count("*"), "mean": F.avg("x"), "middle": F.median("x"), "least": F.min("x")}


def events(spark: SparkSession, folder: Path) -> DataFrame:
    return read_batches(spark, folder).withWatermark("time", "10 seconds")


_PLAIN: dict[tuple[str, str], Any] = {}


def plain(spark: SparkSession, folder: Path, window: str, mode: str, out: Path) -> list[list[Any]]:
    if (window, mode) not in _PLAIN:
        grouped = events(spark, folder).groupBy(WINDOWS[window](), "key")
        found = grouped.agg(*(a.alias(name) for name, a in aggregates().items()))
        _PLAIN[window, mode] = outputs(found, out, mode)
    return list(_PLAIN[window, mode])


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("window", "mode"),
    [
        ("tumbling", "update"),
        ("sliding", "complete"),
        ("session", "append"),
        ("session", "complete"),
        pytest.param("tumbling", "complete", marks=pytest.mark.full),
        pytest.param("tumbling", "append", marks=pytest.mark.full),
        pytest.param("sliding", "update", marks=pytest.mark.full),
    ],
)
def test_windows(
    spark: SparkSession, folder: Path, tmp_path: Path, scheme: str, window: str, mode: str
) -> None:
    """Each batch returns the rows of the plain query's batch, with Spark's guard on."""
    balance = Balancer(scheme, checkpoint=str(tmp_path / "chk"))
    timely = events(spark, folder)
    found = balance.groupBy(timely, WINDOWS[window](), "key").agg(*named(aggregates()))
    assert (spark.conf.get(CHECK) or "").lower() == "true"
    wanted = plain(spark, folder, window, mode, tmp_path / "plain")
    assert outputs(found, tmp_path / "chk", mode) == wanted
    assert [*chain.from_iterable(wanted)]


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_where_the_guard_is_off(
    spark: SparkSession, folder: Path, tmp_path: Path, mode: str
) -> None:
    spark.conf.set(CHECK, "false")
    try:
        balance = Balancer("shuffle", checkpoint=str(tmp_path / "chk"))
        found = balance.groupBy(events(spark, folder), WINDOWS["tumbling"](), "key").agg(
            *named(aggregates())
        )
        wanted = plain(spark, folder, "tumbling", mode, tmp_path / "plain")
        assert outputs(found, tmp_path / "chk", mode) == wanted
    finally:
        spark.conf.unset(CHECK)


class Spread:
    """The difference between the largest and the smallest value."""

    def create_accumulator(self) -> list[int]:
        return []

    def add_input(self, accumulator: list[int], x: int) -> list[int]:
        return [min([*accumulator, x]), max([*accumulator, x])]

    def merge_accumulators(self, accumulators: Any) -> list[int]:
        known = [x for some in accumulators for x in some]
        return [min(known), max(known)] if known else []

    def extract_output(self, accumulator: list[int]) -> int:
        return accumulator[-1] - accumulator[0]


@pytest.mark.parametrize("mode", ["append", "update", "complete"])
def test_combiners_in_windows(spark: SparkSession, folder: Path, tmp_path: Path, mode: str) -> None:
    balance = Balancer("shuffle", checkpoint=str(tmp_path / "chk"))
    spread = combine(Spread(), "x", returns="bigint")
    window = WINDOWS["sliding"]()
    found = balance.groupBy(events(spark, folder), window, "key").agg(
        spread.alias("spread"), F.count("*").alias("n")
    )
    grouped = events(spark, folder).groupBy(window, "key")
    native = grouped.agg((F.max("x") - F.min("x")).alias("spread"), F.count("*").alias("n"))
    assert found.schema == native.schema
    wanted = outputs(native, tmp_path / "plain", mode)
    assert outputs(found, tmp_path / "chk", mode) == wanted


def test_sessions_of_combiners_are_refused(spark: SparkSession, folder: Path) -> None:
    spread = combine(Spread(), "x", returns="bigint")
    with pytest.raises(ValueError, match="use applyInPandasWithState with a timeout"):
        Balancer("shuffle", checkpoint="/tmp/unused").groupBy(
            events(spark, folder), WINDOWS["session"](), "key"
        ).agg(spread.alias("spread"))
