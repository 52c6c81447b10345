"""The query that a soak disturbs, as a separate driver; it continues from its checkpoint.

Usage: python tests/soak/query.py MASTER FOLDER SCHEME QUERY
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.spark import Balancer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from differential.restless import allow_restless

QUERIES = {"online": "fish", "planned": "w-choices", "state": "restless"}
"""The queries that can be disturbed, with their default schemes."""
WORKERS = 8
WINDOW_S = 60
WATERMARK_S = 30
FILES_A_BATCH = 6

SETTINGS = {
    "spark.sql.shuffle.partitions": WORKERS,
    "spark.sql.session.timeZone": "UTC",
    "spark.cores.max": 2,
    "spark.executor.cores": 1,
    "spark.executor.memory": "640m",
    "spark.driver.memory": "640m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": (
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties')}"
    ),
    "spark.executor.extraJavaOptions": os.environ.get("SPARK_SUBMIT_OPTS", ""),
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "unskew.spark.warm_daemon",
    "spark.ui.showConsoleProgress": "false",
    "spark.locality.wait": "0s",
    # A file is a partition, however many executors live, so a batch can be recomputed.
    "spark.sql.files.openCostInBytes": "128m",
    "spark.sql.files.maxPartitionBytes": "128m",
    # As if each executor had a machine of its own: the shuffle files of a dead one are lost.
    "spark.shuffle.readHostLocalDisk": "false",
    # Kills must not count as failures that end the query, nor delay it.
    "spark.task.maxFailures": 50,
    "spark.stage.maxConsecutiveAttempts": 50,
    "spark.shuffle.io.maxRetries": 2,
    "spark.shuffle.io.retryWait": "500ms",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def main() -> None:
    master, folder, scheme, query = sys.argv[1:]
    allow_restless()
    builder = SparkSession.builder.master(master).appName("unskew soak")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    checkpoint = f"{folder}/checkpoint"
    moving = query == "state"
    balancer = Balancer(scheme, routing=None if moving else query, checkpoint=checkpoint)
    try:
        running = (
            (counted if moving else balanced)(spark, folder, balancer)
            .writeStream.format("parquet")
            .option("path", f"{folder}/out")
            .option("checkpointLocation", checkpoint)
            .outputMode("append")
            .trigger(processingTime="1 second")
            .start()
        )
        running.awaitTermination()
    finally:
        spark.stop()


def balanced(spark: SparkSession, folder: str, balancer: Balancer) -> DataFrame:
    return balancer.groupBy(
        events(spark, folder).withWatermark("time", f"{WATERMARK_S} seconds"),
        F.window("time", f"{WINDOW_S} seconds"),
        "key",
    ).agg(F.count("*").alias("n"), F.sum("x").alias("total"))


def counted(spark: SparkSession, folder: str, balancer: Balancer) -> DataFrame:
    return balancer.groupBy(events(spark, folder), "key").applyInPandasWithState(
        count,
        "key string, added long, n long, total long",
        "n long, total long",
        "append",
        "NoTimeout",
    )


def count(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    n, total = state.get if state.exists else (0, 0)
    before = n
    for chunk in chunks:
        n, total = n + len(chunk), total + int(chunk["x"].sum())
    state.update((n, total))
    yield pd.DataFrame({"key": [key[0]], "added": [n - before], "n": [n], "total": [total]})


def events(spark: SparkSession, folder: str) -> DataFrame:
    return (
        spark.readStream.schema("key string, x long, time timestamp")
        .option("maxFilesPerTrigger", FILES_A_BATCH)
        .parquet(f"{folder}/in")
    )


if __name__ == "__main__":
    main()
