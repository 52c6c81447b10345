"""Routed streams, each run twice: without faults, and with tasks whose first attempt fails.

Usage: python flaky_query.py FOLDER SCHEME...
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from unskew.spark import Balancer

SETTINGS = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    # A file is a partition.
    "spark.sql.files.openCostInBytes": "128m",
    "spark.sql.files.maxPartitionBytes": "128m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "640m",
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "unskew.spark.warm_daemon",
    "spark.ui.showConsoleProgress": "false",
}

Batches = Iterator[pa.RecordBatch]


def main() -> None:
    folder, *schemes = sys.argv[1:]
    builder = SparkSession.builder.master("local[2,4]").appName("unskew flaky query")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    for scheme in schemes:
        for failing in (False, True):
            run(spark, folder, scheme, failing)
    spark.stop()


def run(spark: SparkSession, folder: str, scheme: str, failing: bool) -> None:
    """Run a query over the files of a folder, two files a batch."""
    own = f"{folder}/{scheme}/{'failing' if failing else 'plain'}"
    stream = (
        spark.readStream.schema("id long, key string")
        .option("maxFilesPerTrigger", 2)
        .parquet(f"{folder}/in")
    )
    balancer = Balancer(scheme, routing="online", checkpoint=f"{own}/checkpoint")
    query = (
        balancer.route(stream, "key")
        .select("id", "slot")
        .mapInArrow(flaky(failing), "id long, slot int, attempt int")
        .writeStream.format("parquet")
        .option("path", f"{own}/out")
        .option("checkpointLocation", f"{own}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def flaky(failing: bool) -> Callable[[Batches], Batches]:
    """Return a step that adds the attempt's number; the first may fail, early or at its end."""

    def attempts(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        doomed = failing and attempt == 0
        for batch in batches:
            if doomed and context.partitionId() == 0:
                raise OSError("fails before the router has saved its state")
            column = pa.array([attempt] * len(batch), pa.int32())
            yield pa.RecordBatch.from_arrays([*batch.columns, column], ["id", "slot", "attempt"])
        if doomed:
            raise OSError("fails after the router has saved its state")

    return attempts


if __name__ == "__main__":
    main()
