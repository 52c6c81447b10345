"""Skew joins return the rows of Spark's plain join, however keys are split and plans change."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from differential.restless import allow_restless
from unskew.spark import Balancer
from unskew.spark.plans.schedule import Schedule

allow_restless()
START_S, STEP_S, LATE_S, FILES = 1_767_225_600, 20, 20, 9
LEAST, MOST = timedelta(seconds=-10), timedelta(seconds=15)
CLICKS, VIEWS = "key string, click bigint, at timestamp", "key string, view bigint, seen timestamp"


def write_side(folder: Path, name: str, at: str, rows: int, hot: float, seed: int) -> None:
    """Write keys with one hot key at a time, some nulls, and late times."""
    folder.mkdir()
    for file in range(FILES + 1):
        rng = np.random.default_rng([seed, file])
        ids = rng.integers(0, 40, rows)
        ids[rng.random(rows) < hot] = 100 + file // 3
        late = rng.uniform(0, LATE_S, rows) * (rng.random(rows) < 0.4)
        times = START_S + STEP_S * (file + rng.random(rows)) - late
        keys = [None if i == 3 else f"k{i}" for i in ids]
        if file == FILES:  # so that rows without a match are emitted
            keys, times = [f"end of {name}"], np.array([START_S + 10_000.0])
        table = {
            "key": pa.array(keys, pa.string()),
            name: np.arange(len(keys)) + 10**6 * file,
            at: pa.array((times * 1e6).astype(np.int64), pa.timestamp("us", "UTC")),
        }
        path = folder / f"{file:03d}.parquet"
        pq.write_table(pa.table(table), path)
        os.utime(path, (1e9 + file, 1e9 + file))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("joins")
    write_side(folder / "clicks", "click", "at", rows=400, hot=0.4, seed=1)
    write_side(folder / "views", "view", "seen", rows=120, hot=0.1, seed=2)
    return folder


@pytest.fixture(autouse=True)
def _shuffled(spark: SparkSession) -> Iterator[None]:
    """Make Spark shuffle: the tables are so small that it would broadcast them."""
    name = "spark.sql.autoBroadcastJoinThreshold"
    before = spark.conf.get(name) or "10m"
    spark.conf.set(name, "-1")
    yield
    spark.conf.set(name, before)


def table(spark: SparkSession, data: Path, name: str) -> DataFrame:
    return spark.read.schema(CLICKS if name == "clicks" else VIEWS).parquet(str(data / name))


def stream(spark: SparkSession, data: Path, name: str) -> DataFrame:
    schema, at = (CLICKS, "at") if name == "clicks" else (VIEWS, "seen")
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(data / name)).withWatermark(at, "25 seconds")


def rows_of(df: DataFrame) -> list[str]:
    return sorted(str(row) for row in df.collect())


FULL = pytest.mark.full


@pytest.mark.parametrize(
    ("scheme", "how"),
    [
        ("w-choices", "left"),
        ("w-choices", "right"),
        ("w-choices", "anti"),
        ("mixed", "left_semi"),
        pytest.param("w-choices", "inner", marks=FULL),
        pytest.param("mixed", "left", marks=FULL),
        pytest.param("mixed", "anti", marks=FULL),
    ],
)
def test_batches(spark: SparkSession, data: Path, scheme: str, how: str) -> None:
    clicks, views = table(spark, data, "clicks"), table(spark, data, "views")
    found = Balancer(scheme).join(clicks, views, "key", how=how)
    plain = clicks.join(views, ["key"], how)
    assert found.schema == plain.schema
    assert rows_of(found) == rows_of(plain)


def test_the_skewed_side_may_be_the_right_one(spark: SparkSession, data: Path) -> None:
    clicks, views = table(spark, data, "clicks"), table(spark, data, "views")
    found = Balancer("w-choices").join(views, clicks, "key", split="right")
    assert rows_of(found) == rows_of(views.join(clicks, ["key"]))


def test_hot_keys_are_spread(spark: SparkSession, data: Path) -> None:
    """No worker has much more than its share of the rows of the split side."""
    clicks, views = table(spark, data, "clicks"), table(spark, data, "views")
    n = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    found = Balancer("w-choices").join(clicks, views, "key", how="left")
    placed = found.withColumn("worker", F.spark_partition_id())
    counts = placed.select("worker", "click").distinct().groupBy("worker").count().collect()
    loads = [row["count"] for row in counts]
    assert sum(loads) == clicks.count()
    assert max(loads) / (sum(loads) / n) < 1.35


def run(results: DataFrame, folder: Path, files: int) -> None:
    query = (
        results.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "chk"))
        .trigger(processingTime="1 second")
        .start()
    )
    until = time.time() + 150
    try:
        while query.isActive and time.time() < until:
            last = query.lastProgress
            if last is not None and last["batchId"] >= files:
                return
            time.sleep(0.1)
        raise AssertionError(f"not done: {query.exception()}")
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("scheme", "how"),
    [
        ("restless", "left"),
        pytest.param("w-choices", "left", marks=FULL),
        pytest.param("restless", "inner", marks=FULL),
        pytest.param("restless", "right", marks=FULL),
        pytest.param("restless", "left_semi", marks=FULL),
    ],
)
def test_two_streams(
    spark: SparkSession, data: Path, tmp_path: Path, scheme: str, how: str
) -> None:
    for stop in (4, FILES + 1):  # with a restart in between
        found = Balancer(scheme, checkpoint=str(tmp_path / "chk")).join(
            stream(spark, data, "clicks"),
            stream(spark, data, "views"),
            "key",
            how=how,
            times=("at", "seen"),
            within=(LEAST, MOST),
        )
        run(found, tmp_path, stop)
    left, right = table(spark, data, "clicks").alias("l"), table(spark, data, "views").alias("r")
    near = (F.col("seen") >= F.col("at") + F.lit(LEAST)) & (
        F.col("seen") <= F.col("at") + F.lit(MOST)
    )
    met = left.join(right, (F.col("l.key") == F.col("r.key")) & near, how.replace("_", ""))
    key = F.col("r.key" if how == "right" else "l.key")
    rest = ["click", "at"] if how == "left_semi" else ["click", "at", "view", "seen"]
    plain = met.select(key.alias("key"), *rest)
    got = [row for row in rows_of(spark.read.parquet(str(tmp_path / "out"))) if "end of" not in row]
    assert got == [row for row in rows_of(plain) if "end of" not in row]
    (folder,) = (tmp_path / "chk/unskew/router").iterdir()
    versions = {
        term.version
        for path in (folder / "schedule").iterdir()
        for term in Schedule(str(folder), 0).terms(int(path.name), 0)
    }
    assert len(versions) >= (4 if scheme == "restless" else 2)


@pytest.mark.parametrize("how", ["left", pytest.param("anti", marks=FULL)])
def test_a_stream_and_a_table(spark: SparkSession, data: Path, tmp_path: Path, how: str) -> None:
    views = table(spark, data, "views")
    balance = Balancer("w-choices", checkpoint=str(tmp_path / "chk"))
    run(balance.join(stream(spark, data, "clicks"), views, "key", how=how), tmp_path, FILES)
    plain = table(spark, data, "clicks").join(views, ["key"], how)
    assert rows_of(spark.read.parquet(str(tmp_path / "out"))) == rows_of(plain)
    assert len([*tmp_path.glob("chk/unskew/router/*/plans/*")]) >= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"how": "full"}, "full joins cannot be split.*use one of inner, left, right, semi, anti"),
        ({"how": "cross"}, "cross joins cannot be split"),
        ({"how": "left", "split": "right"}, "split must be 'left' for how='left', got 'right'"),
        ({}, r"a join of two streams needs a time range: set times=\('left_time'"),
    ],
)
def test_joins_that_cannot_be_had(
    spark: SparkSession, data: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    balance = Balancer("w-choices", checkpoint=str(tmp_path))
    with pytest.raises(ValueError, match=message):
        balance.join(stream(spark, data, "clicks"), stream(spark, data, "views"), "key", **options)


def test_bad_sides(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    clicks, views = table(spark, data, "clicks"), table(spark, data, "views")
    with pytest.raises(ValueError, match="no column is named 'kay' on the left"):
        Balancer("w-choices").join(clicks, views, "kay")
    with pytest.raises(ValueError, match=r"are for two streams: omit them"):
        Balancer("w-choices").join(clicks, views, "key", times=("at", "seen"))
    with pytest.raises(ValueError, match="a join needs a plan, and pkg makes none"):
        Balancer("pkg").join(clicks, views, "key")
    with pytest.raises(ValueError, match=r"within must be \(least, most\)"):
        Balancer("w-choices", checkpoint=str(tmp_path)).join(
            stream(spark, data, "clicks"),
            stream(spark, data, "views"),
            "key",
            times=("at", "seen"),
            within=(MOST, LEAST),
        )
    with pytest.raises(ValueError, match="split must be 'left' for a join of a stream and a table"):
        Balancer("w-choices").join(stream(spark, data, "clicks"), views, "key", split="right")
