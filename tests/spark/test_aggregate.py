"""Balanced aggregates give what plain ones do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.spark import Balancer
from unskew.spark import aggregates as agg


def aggregates() -> dict[str, agg.Aggregate]:
    return {
        "n": agg.count(),
        "present": agg.count("x"),
        "total": agg.sum("x"),
        "money": agg.sum("price"),
        "least": agg.min("x"),
        "most": agg.max("x"),
        "mean": agg.mean("x"),
        "mean_price": agg.mean("price"),
        "all": agg.collect_list("x"),
        "distinct": agg.collect_set("x"),
        "kinds": agg.count_distinct("x"),
        "about": agg.approx_count_distinct("x"),
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
    columns = {name: aggregate.plain for name, aggregate in aggregates().items()}
    return df.groupBy(*grouping).agg(*(column.alias(name) for name, column in columns.items()))


def rows(df: DataFrame) -> list[tuple[object, ...]]:
    """Return the rows in one order, lists in theirs."""
    found = (
        tuple(sorted(value) if isinstance(value, list) else value for value in row)
        for row in df.collect()
    )
    return sorted(found, key=repr)


@pytest.mark.parametrize("scheme", ["key", "pkg", "w-choices", "fish", "shuffle"])
def test_batch_equals_plain(spark: SparkSession, scheme: str) -> None:
    df = events(spark).repartition(3)
    balanced = Balancer(scheme).aggregate(df, "key", window=None, **aggregates())
    assert balanced.schema == plain(df, "key").schema
    assert rows(balanced) == rows(plain(df, "key"))


def test_both_levels_survive_the_optimizer(spark: SparkSession) -> None:
    df = events(spark, 10)
    balanced = Balancer("pkg").aggregate(df, "key", window=None, **aggregates())
    plan = balanced._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange hashpartitioning(key") == 2


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
