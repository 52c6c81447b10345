"""Checkpoints that are broken or cannot be written give clear errors, and nothing is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.spark import SLOT, Balancer


def write(folder: Path, number: int) -> None:
    folder.mkdir(exist_ok=True)
    keys = [f"key-{i % 7}" for i in range(100 * (number + 1))]
    pq.write_table(pa.table({"key": keys}), folder / f"{number}.parquet")


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("key string").parquet(str(folder))


def run(spark: SparkSession, folder: Path, balance: Balancer) -> dict[tuple[str, int], int]:
    """Return the running counts by key and slot that changed."""
    found: dict[tuple[str, int], int] = {}

    def note(batch: DataFrame, _: int) -> None:
        found.update({(row["key"], row[SLOT]): row["n"] for row in batch.collect()})

    routed = balance.route(stream(spark, folder / "in"), "key")
    out = routed.groupBy("key", SLOT).agg(F.count("*").alias("n")).writeStream.foreachBatch(note)
    out = out.outputMode("update").option("checkpointLocation", str(folder / "chk"))
    out.trigger(availableNow=True).start().awaitTermination()
    return found


def test_broken_router_state(spark: SparkSession, tmp_path: Path) -> None:
    balance = Balancer("pkg", checkpoint=str(tmp_path / "chk"))
    write(tmp_path / "in", 0)
    counts = run(spark, tmp_path, balance)
    for state in tmp_path.glob("chk/unskew/router/*/*/0"):
        state.write_bytes(state.read_bytes()[:-5])
    write(tmp_path / "in", 1)
    with pytest.raises(StreamingQueryException, match=r"without the folder .* fresh routers"):
        run(spark, tmp_path, balance)
    shutil.rmtree(tmp_path / "chk/unskew")
    counts |= run(spark, tmp_path, balance)
    totals: dict[str, int] = {}
    for (key, _), n in counts.items():
        totals[key] = totals.get(key, 0) + n
    plain = spark.read.parquet(str(tmp_path / "in")).groupBy("key").count().collect()
    assert totals == {row["key"]: row["count"] for row in plain}


@pytest.mark.parametrize("scheme", ["w-choices", "pkg"])
def test_checkpoint_that_cannot_be_written(
    spark: SparkSession, tmp_path: Path, scheme: str
) -> None:
    write(tmp_path / "in", 0)
    (tmp_path / "chk").mkdir()
    (tmp_path / "chk/unskew").write_text("a file, not a folder")
    balance = Balancer(scheme, checkpoint=str(tmp_path / "chk"))
    with pytest.raises(
        ValueError, match=r"beside the query's checkpoint, but .* cannot be written"
    ):
        balance.route(stream(spark, tmp_path / "in"), "key")


def test_checkpoint_that_is_none(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "in", 0)
    (tmp_path / "chk/offsets").mkdir(parents=True)
    (tmp_path / "chk/offsets/3").write_text("v1\nnothing of the kind")
    balance: Any = Balancer("pkg", checkpoint=str(tmp_path / "chk"))
    with pytest.raises(ValueError, match="offsets/3 is not an offset log of Spark"):
        balance.route(stream(spark, tmp_path / "in"), "key")
