"""Running aggregates of split keys: the latest partial result of each worker, put together.

An aggregate by key and slot, in update mode, gives the whole of what a worker knows of a key each
time that it changes. So the second operator must not add these up, but keep the newest of each
worker. It is a stock aggregation: for each worker, the partial result with the most records.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.spark.placement import SLOT, worker_column

SEEN = "__unskew_records"
LATEST = "__unskew_latest"
WORKER = "__unskew_worker"
CHECK = "spark.sql.streaming.statefulOperator.checkCorrectness.enabled"


def keep_latest(
    partials: DataFrame, keys: Sequence[str], parts: Sequence[str], n_workers: int
) -> DataFrame:
    """Return a row for each key, with the latest partial results of all workers in an array.

    The partial results come with the number of records that each is made of.
    """
    worker = worker_column([F.col(key) for key in keys], F.col(SLOT), n_workers)
    placed = partials.withColumn(WORKER, worker)
    latest = F.filter(
        newest(F.struct(*parts), F.col(SEEN), F.col(WORKER), n_workers),
        lambda found: found.isNotNull(),
    )
    found = placed.groupBy(*keys).agg(latest.alias(LATEST))
    # Rows come sorted by keys that foreachBatch knows by another id, and persist() fails over that
    # order. What is exploded has none.
    return found.select(*keys, F.explode(F.array(LATEST)).alias(LATEST))


def newest(value: Column, version: Column, worker: Column, n_workers: int) -> Column:
    """Return an aggregate: the value of each worker that has the highest version, or null."""
    mine = [worker == n for n in range(n_workers)]
    return F.array(*(F.max_by(F.when(m, value), F.when(m, version)) for m in mine))


def check_allowed(session: SparkSession) -> None:
    """Refuse if Spark would: it takes the second operator for one that adds up."""
    if (session.conf.get(CHECK, "true") or "").lower() != "false":
        raise ValueError(
            "Spark refuses two stateful operators in update mode, as most of them would be wrong. "
            "This one keeps the latest result of each worker and is right, so allow it: "
            f"spark.conf.set({CHECK!r}, 'false')"
        )
