"""Other ways to handle skew, compared with unskew: partial aggregation, salting, AQE."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.bench.gains import Work, measure, sleeping_count
from unskew.spark.balancer import Balancer
from unskew.spark.placement.slots import SLOT

SALT = "salt"
ADAPTIVE = "spark.sql.adaptive.enabled"
TIMES = 2

Way = tuple[Callable[[DataFrame], DataFrame], list[str]]
"""A function that prepares the rows, and the columns to group by."""


def compare(
    spark: SparkSession,
    z: float,
    records: int,
    scheme: str = "waterline",
    progress: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Return the seconds of three jobs over skewed rows, each run in several ways.

    The jobs are a count, which Spark combines before the shuffle; a Python function of each group
    in a batch; and a Python operator with state in a stream.
    """
    work = Work(z, records=records)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="unskew-", ignore_cleanup_errors=True) as folder:
        work.write(Path(folder) / "in")
        events = spark.read.parquet(f"{folder}/in").limit(records).repartition(4).cache()
        events.count()
        for job, operator in (("count", counted), ("Python, batch", partial(slept, work.delay_s))):
            for name, way in _ways(scheme).items():
                seconds = _timed(spark, events, operator, way, adaptive=name == "AQE")
                rows.append({"job": job, "way": name, "seconds": seconds})
                if progress is not None:
                    progress(1)
        events.unpersist()
    for name, way in _ways(scheme).items():
        if name != "AQE":  # it does not apply to streams
            rows.append({"job": "Python, stream", "way": name} | _streamed(spark, work, name, way))
        if progress is not None:
            progress(1)
    plain = {row["job"]: row["seconds"] for row in rows if row["way"] == "plain"}
    return [row | {"over_plain": plain[row["job"]] / row["seconds"]} for row in rows]


def counted(rows: DataFrame, grouping: list[str]) -> DataFrame:
    """Return counts by key; the counts of a split key are merged."""
    return _merged(rows.groupBy(*grouping).agg(F.sum(F.lit(1)).alias("n")), grouping)


def slept(delay_s: float, rows: DataFrame, grouping: list[str]) -> DataFrame:
    """Return counts by key from a Python function that sleeps for each record."""

    def count(group: pd.DataFrame) -> pd.DataFrame:
        time.sleep(delay_s * len(group))
        return pd.DataFrame({"key": group["key"].iloc[:1], "n": [len(group)]})

    return _merged(rows.groupBy(*grouping).applyInPandas(count, "key string, n bigint"), grouping)


def _ways(scheme: str) -> dict[str, Way]:
    return {
        "plain": (lambda rows: rows, ["key"]),
        "AQE": (lambda rows: rows, ["key"]),
        "8 salts": (partial(_salted, salts=8), ["key", SALT]),
        "64 salts": (partial(_salted, salts=64), ["key", SALT]),
        f"unskew, {scheme}": (lambda rows: Balancer(scheme).route(rows, "key"), ["key", SLOT]),
    }


def _salted(rows: DataFrame, salts: int) -> DataFrame:
    return rows.withColumn(SALT, F.floor(F.rand(seed=1) * salts).cast("int"))


def _merged(split: DataFrame, grouping: list[str]) -> DataFrame:
    return split if grouping == ["key"] else split.groupBy("key").agg(F.sum("n").alias("n"))


def _timed(
    spark: SparkSession,
    events: DataFrame,
    operator: Callable[[DataFrame, list[str]], DataFrame],
    way: Way,
    adaptive: bool,
) -> float:
    """Return the seconds of a batch job: the shortest of a few runs."""
    prepare, grouping = way
    seconds = []
    spark.conf.set(ADAPTIVE, str(adaptive).lower())
    for _ in range(TIMES):
        started = time.perf_counter()
        operator(prepare(events), grouping).write.format("noop").mode("overwrite").save()
        seconds.append(time.perf_counter() - started)
    spark.conf.set(ADAPTIVE, "false")
    return min(seconds)


def _streamed(spark: SparkSession, work: Work, name: str, way: Way) -> dict[str, Any]:
    """Return the median seconds of a micro-batch, and the number of state rows."""
    prepare, grouping = way
    scheme = name.partition(", ")[2]

    def operator(rows: DataFrame, balanced_grouping: list[str]) -> DataFrame:
        if scheme:
            return sleeping_count(rows, balanced_grouping, work.delay_s)
        return sleeping_count(prepare(rows), grouping, work.delay_s)

    balancer = (lambda checkpoint: Balancer(scheme, checkpoint=checkpoint)) if scheme else None
    result = measure(spark, work, operator, balancer)
    return {"seconds": float(np.median(result["seconds"])), "state_rows": result["state_rows"]}
