"""A batch whose shuffle file is lost while its reducers run: no row may be duplicated or lost.

Usage: python lost_shuffle.py FOLDER SCHEME; prints rows, distinct rows, and whether it was retried.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from unskew.spark import Balancer
from unskew.spark.placement.draws import CHECKSUMS

ROWS, WORKERS = 6000, 4

Step = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def main() -> None:
    folder, scheme = sys.argv[1:]
    builder = SparkSession.builder.master("local[2,4]").appName("unskew lost shuffle")
    settings = {
        "spark.sql.shuffle.partitions": str(WORKERS),
        "spark.sql.adaptive.enabled": "false",
        "spark.local.dir": f"{folder}/local",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.python.daemon.module": "unskew.spark.warm_daemon",
        "spark.ui.showConsoleProgress": "false",
        "spark.stage.maxConsecutiveAttempts": "8",
        **dict.fromkeys(CHECKSUMS, "false"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    keys = F.expr("CASE WHEN id % 10 < 6 THEN 1 ELSE id % 50 END")
    rows = spark.range(0, ROWS, 1, 6).withColumn("k", keys)
    # Rows leave this shuffle in another order in the second attempt.
    turned = rows.repartition(2, "k").mapInArrow(turned_at_retry(folder), "id bigint, k bigint")
    routed = Balancer(scheme).route(turned, "k")
    sent = routed.repartition(WORKERS, "k", "slot").mapInArrow(losing(folder), "id bigint")
    ids = [row["id"] for row in sent.collect()]
    retried = Path(folder, "retried").exists()
    print(len(ids), len(set(ids)), "retried" if retried else "undisturbed")
    spark.stop()


def turned_at_retry(folder: str) -> Step:
    """Return a step that returns its rows in another order when it is retried."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mark = Path(folder, f"tried-{partition()}")
        again = mark.exists()
        (Path(folder, "retried") if again else mark).touch()
        for batch in batches:
            order = range(len(batch))
            yield batch.take(pa.array([*(reversed(order) if again else order)]))

    return step


def losing(folder: str) -> Step:
    """Return a step of reducers; the first one deletes shuffle files that others still need."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [batch.select(["id"]) for batch in batches]
        lost = Path(folder, "lost")
        if partition() == 0 and not lost.exists():
            lost.touch()
            files = [*Path(folder, "local").glob("blockmgr-*/*/shuffle_*.data")]
            newest = max(files, key=lambda path: path.stat().st_mtime).name.split("_")[1]
            for path in Path(folder, "local").glob(f"blockmgr-*/*/shuffle_{newest}_*"):
                path.unlink()
        while not lost.exists():
            time.sleep(0.01)
        yield from rows

    return step


def partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return context.partitionId()


if __name__ == "__main__":
    main()
