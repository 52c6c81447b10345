"""A balanced batch and a balanced stream through Spark Connect, as a program of its own.

Usage: python connect_query.py FOLDER; prints the results as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from differential.restless import allow_restless
from spark.streams import named
from unskew.spark import Balancer, combine

allow_restless()
WORKERS = 4
FILES = 3


class Total:
    """A sum, as a CombineFn."""

    def create_accumulator(self) -> int:
        return 0

    def add_input(self, accumulator: int, x: int) -> int:
        return accumulator + x

    def merge_accumulators(self, accumulators: Any) -> int:
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = sys.argv[1]
    ids = np.minimum(np.random.default_rng(1).zipf(1.5, 6000), 30)
    Path(folder, "in").mkdir(parents=True)
    for i, part in enumerate(np.array_split(ids, FILES)):
        table = pa.table({"key": [f"key-{k}" for k in part], "x": np.arange(len(part))})
        pq.write_table(table, Path(folder, "in", f"{i}.parquet"))
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.python.daemon.module", "unskew.spark.warm_daemon")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    try:
        print(json.dumps(found(spark, folder)))
    finally:
        spark.stop()


def found(spark: SparkSession, folder: str) -> dict[str, Any]:
    spark.conf.set("spark.sql.shuffle.partitions", WORKERS)
    rows = spark.read.parquet(f"{folder}/in")
    plain = rows.groupBy("key").agg(F.count("*"), F.sum("x"))
    expected = sorted(map(list, plain.collect()))
    results: dict[str, Any] = {"session": type(spark).__module__, "expected": expected}
    aggregates: dict[str, Any] = {"n": F.count("*"), "total": F.sum("x")}
    for name, mode in (("w-choices", "planned"), ("fish", "online")):
        balanced = Balancer(name, routing=mode).groupBy(rows, "key").agg(*named(aggregates))
        results[f"batch {mode}"] = sorted(map(list, balanced.collect()))
        results[f"stream {mode}"], results[f"metrics {mode}"] = streamed(
            spark, folder, name, mode, aggregates
        )
    total = combine(Total(), "x", returns="bigint")
    balanced = (
        Balancer("shuffle").groupBy(rows, "key").agg(F.count("*").alias("n"), total.alias("total"))
    )
    results["combined"] = sorted(map(list, balanced.collect()))
    results["moving"], results["moved"] = moving(spark, folder)
    names = rows.select("key").distinct().withColumn("name", F.upper("key"))
    joined = Balancer("w-choices").join(rows, names, "key")
    results["joined"] = sorted(
        map(list, joined.groupBy("key").agg(F.count("*"), F.sum("x")).collect())
    )
    return results


def moving(spark: SparkSession, folder: str) -> tuple[list[Any], int]:
    """Return the last row of each key of a function with state, and the number of moved states."""
    stream = spark.readStream.schema("key string, x bigint").option("maxFilesPerTrigger", 1)
    balance = Balancer("restless", checkpoint=f"{folder}/moving")
    df = balance.groupBy(stream.parquet(f"{folder}/in"), "key").applyInPandasWithState(
        add_up,
        "key string, n bigint, total bigint",
        "n bigint, total bigint",
        "update",
        "NoTimeout",
    )
    query = (
        df.writeStream.format("memory")
        .queryName("moving")
        .outputMode("update")
        .option("checkpointLocation", f"{folder}/moving")
        .trigger(processingTime="3 seconds")
        .start()
    )
    query.processAllAvailable()
    query.stop()
    latest: dict[str, list[Any]] = {}
    for row in sorted(spark.table("moving").collect(), key=lambda row: row["n"]):
        latest[row["key"]] = list(row)
    return sorted(latest.values()), sum(batch.moved_keys for batch in balance.metrics)


def add_up(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    n, total = state.get if state.exists else (0, 0)
    for chunk in chunks:
        n, total = n + len(chunk), total + int(chunk["x"].sum())
    state.update((n, total))
    yield pd.DataFrame({"key": [key[0]], "n": [n], "total": [total]})


def streamed(
    spark: SparkSession, folder: str, scheme: str, mode: str, aggregates: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """Return the last row of each key, and the metrics of the batches."""
    out = f"{folder}/{mode}"
    stream = spark.readStream.schema("key string, x bigint").option("maxFilesPerTrigger", 1)
    balance = Balancer(scheme, routing=mode, checkpoint=f"{out}/checkpoint")
    df = balance.groupBy(stream.parquet(f"{folder}/in"), "key").agg(*named(aggregates))
    query = (
        df.writeStream.format("memory")
        .queryName(mode)
        .outputMode("update")
        .option("checkpointLocation", f"{out}/checkpoint")
        .start()
    )
    query.processAllAvailable()
    latest: dict[str, list[Any]] = {}
    for row in sorted(spark.table(mode).collect(), key=lambda row: row["n"]):
        latest[row["key"]] = list(row)
    found: list[Any] = []
    for _ in range(100):  # listeners are notified of a batch later
        files = Path(out).glob("checkpoint/unskew/router/*/metrics.jsonl")
        found = [json.loads(at) for lines in files for at in lines.read_text().splitlines()]
        if len(found) == FILES:
            break
        time.sleep(0.1)
    query.stop()
    return sorted(latest.values()), [(line["records"], line["loads"]) for line in found]


if __name__ == "__main__":
    main()
