"""The metrics that a balanced query reports for its batches."""

from __future__ import annotations

import json
import logging
import re
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.spark import SLOT, Balancer, BatchMetrics, profile

RECORDS, WORKERS = 4000, 8


@pytest.mark.parametrize(("scheme", "mode"), [("w-choices", "planned"), ("fish", "online")])
def test_every_batch_is_reported(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    scheme: str,
    mode: str,
) -> None:
    (tmp_path / "in").mkdir()
    stream = spark.readStream.schema("a bigint, b string").option("maxFilesPerTrigger", 1)
    balance = Balancer(scheme, routing=mode, checkpoint=str(tmp_path / "chk"), name="clicks")
    routed = balance.route(stream.parquet(str(tmp_path / "in")), "a", "b")
    with caplog.at_level(logging.INFO, "unskew.spark"):
        query = (
            routed.groupBy("a", "b", SLOT)
            .agg(F.collect_set("a"))
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", str(tmp_path / "chk"))
            .start()
        )
        rng = np.random.default_rng(1)
        for i in range(3):
            hot = rng.random(RECORDS) < 0.4
            keys = np.where(hot, 7, rng.integers(100, 400, RECORDS))
            table = pa.table({"a": keys, "b": pa.nulls(RECORDS, pa.string())})
            pq.write_table(table, tmp_path / "next.parquet")
            (tmp_path / "next.parquet").rename(tmp_path / f"in/{i}.parquet")
            query.processAllAvailable()
            # Wait for a plan: the first one may have to wait until the kernels are compiled.
            deadline = time.monotonic() + 120
            while len(balance.metrics) <= i and time.monotonic() < deadline:
                time.sleep(0.1)
        query.stop()
    assert [m.batch for m in balance.metrics] == [0, 1, 2]
    last = balance.metrics[-1]
    assert last.records == RECORDS
    assert sum(last.loads) == pytest.approx(RECORDS, abs=WORKERS)
    assert len(last.loads) == WORKERS
    assert last.imbalance < 0.1
    (hottest, *_) = last.hot
    assert hottest.key == "7, null"
    assert hottest.share == pytest.approx(0.4, abs=0.1)  # a sample of 1,000
    assert len(hottest.workers) == WORKERS
    assert last.state_rows >= 300
    assert last.routing_s > 0
    (path,) = tmp_path.glob("chk/unskew/clicks/*/metrics.jsonl")
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        json.loads(m.to_json()) for m in balance.metrics
    ]
    assert f"hot: 7, null {hottest.share:.1%} on {WORKERS}" in caplog.text
    assert "batch 2: 4,000 records" in caplog.text


def test_imbalance_is_that_of_the_papers() -> None:
    metrics = BatchMetrics(0, 100, 1.0, [70, 10, 10, 10], [], 0, 0.0)
    assert metrics.imbalance == pytest.approx(0.45)
    assert json.loads(metrics.to_json())["imbalance"] == metrics.imbalance


def test_profile(spark: SparkSession) -> None:
    hot = F.when(F.col("id") % 2 == 0, "hot").otherwise(F.format_string("key-%d", F.col("id") % 97))
    df = spark.range(0, 40_000, 1, 4).select(hot.alias("key"))
    found = profile(df, "key")
    assert found.records == 40_000
    assert found.hot[0][0] == "hot"
    assert found.hot[0][1] == pytest.approx(0.5, abs=0.02)
    groups = df.groupBy("key").count().groupBy(F.spark_partition_id().alias("w")).sum("count")
    exact = {row["w"]: row["sum(count)"] for row in groups.collect()}
    for worker, load in enumerate(found.loads):
        assert load == pytest.approx(exact.get(worker, 0), abs=600)
    assert re.search(r"40,000 records on 8 workers.*hottest keys: hot (49|50)\.", str(found))
    assert found.busiest_over_mean > 4
    assert profile(df.limit(0), "key").busiest_over_mean == 0
    with pytest.raises(ValueError, match="profile needs a batch, got a stream"):
        profile(spark.readStream.format("rate").load(), "value")


@pytest.mark.parametrize(("scheme", "mode"), [("w-choices", "planned"), ("w-choices", "online")])
def test_code_is_compiled_once(spark: SparkSession, tmp_path: Path, scheme: str, mode: str) -> None:
    """Code that changes with every batch would be compiled again, and be cold, in every batch."""
    compiled = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics  # type: ignore[union-attr]
    counts: dict[int, int] = {}
    (tmp_path / "in").mkdir()
    for i in range(6):
        table = pa.table({"a": np.minimum(np.random.default_rng(i).zipf(1.5, 500), 50)})
        pq.write_table(table, tmp_path / f"in/{i}.parquet")
    stream = spark.readStream.schema("a bigint").option("maxFilesPerTrigger", 1)
    balance = Balancer(scheme, routing=mode, checkpoint=str(tmp_path / "chk"))
    routed = balance.route(stream.parquet(str(tmp_path / "in")), "a")

    def sink(batch: DataFrame, number: int) -> None:
        batch.write.format("noop").mode("overwrite").save()
        counts[number] = compiled.METRIC_COMPILATION_TIME().getCount()

    query = (
        routed.groupBy("a", SLOT)
        .agg(F.collect_set("a"))
        .writeStream.foreachBatch(sink)
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "chk"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert counts[3] == counts[5], counts
