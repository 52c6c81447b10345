"""Balanced aggregates return the results of plain ones."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.streams import named
from unskew.spark import Balancer


def aggregates() -> dict[str, Column]:
    return {
        "n": F.count("*"),
        "present": F.count("x"),
        "total": F.sum("x"),
        "money": F.sum("price"),
        "least": F.min("x"),
        "most": F.max("x"),
        "mean": F.mean("x"),
        "mean_price": F.mean("price"),
        "middle": F.median("x"),
        "all": F.collect_list("x"),
        "distinct": F.collect_set("x"),
        "kinds": F.count_distinct("x"),
        "about": F.approx_count_distinct("x"),
    }


def events(spark: SparkSession, records: int = 3000, start: int = 1_767_225_600) -> DataFrame:
    """Return skewed events, five a second, with a null key and null values."""
    rng = np.random.default_rng(3)
    ids = np.minimum(rng.zipf(1.3, records), 50)
    seconds = start + np.arange(records) // 5
    table = pa.table(
        {
            "key": [None if i == 3 else f"key-{i}" for i in ids],
            "x": pa.array(rng.integers(0, 40, records), mask=rng.random(records) < 0.1),
            "price": rng.integers(0, 10**6, records),
            "time": pa.array(seconds * 10**6, pa.timestamp("us", "UTC")),
        }
    )
    df = spark.createDataFrame(table)
    return df.withColumn("price", (F.col("price") / 100).cast("decimal(12,2)"))


def plain(df: DataFrame, *grouping: str) -> DataFrame:
    columns = (column.alias(name) for name, column in aggregates().items())
    return df.groupBy(*grouping).agg(*columns)


def rows(df: DataFrame) -> list[tuple[object, ...]]:
    """Return the rows sorted, with sorted lists."""
    found = (
        tuple(sorted(value) if isinstance(value, list) else value for value in row)
        for row in df.collect()
    )
    return sorted(found, key=repr)


@pytest.mark.parametrize(
    "scheme", ["key", "pkg", "w-choices", "fish", "shuffle", "mixed", "consistent"]
)
def test_batch_equals_plain(spark: SparkSession, scheme: str) -> None:
    df = events(spark).repartition(3)
    balanced = Balancer(scheme).groupBy(df, "key").agg(*named(aggregates()))
    assert balanced.schema == plain(df, "key").schema
    assert rows(balanced) == rows(plain(df, "key"))


def test_workers_aggregate_before_the_merge(spark: SparkSession) -> None:
    """Rows are aggregated on the worker that they are sent to, and only then merged."""
    df = events(spark, 10)
    balanced = Balancer("shuffle").groupBy(df, "key").agg(F.count("*").alias("n"))
    plan = balanced._jdf.queryExecution().executedPlan().toString()
    steps = re.findall(
        r"Exchange hashpartitioning\(key#\w+(, __unskew_slot)?|(partial_count)", plan
    )
    assert steps == [("", ""), ("", "partial_count"), (", __unskew_slot", "")]


def test_other_partitions_than_the_checkpoints_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    events(spark, 20).write.parquet(str(tmp_path / "in"))
    checkpoint = str(tmp_path / "chk")

    def stream() -> DataFrame:
        return spark.readStream.schema("key string").parquet(str(tmp_path / "in"))

    query = (
        stream()
        .groupBy("key")
        .count()
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    before = str(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", 5)
    try:
        with pytest.raises(ValueError, match=f"was begun with {before} shuffle partitions"):
            Balancer("pkg", checkpoint=checkpoint).route(stream(), "key")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
