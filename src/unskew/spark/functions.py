"""Aggregates by the names that Spark has for them.

`Balancer.aggregate` takes any aggregate of Spark's, as a Column. Here are the usual ones, for those
who like to import them from one place, and one that streams do not have.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.functions import (
    approx_count_distinct,
    avg,
    collect_list,
    collect_set,
    max,
    mean,
    min,
    sum,
)

from unskew.spark.keys import ColumnOrName

__all__ = [
    "approx_count_distinct",
    "avg",
    "collect_list",
    "collect_set",
    "count",
    "count_distinct",
    "max",
    "mean",
    "min",
    "sum",
]


def count(column: ColumnOrName = "*") -> Column:
    """Return the number of rows, or of those in which a column is not null."""
    return F.count(column)


def count_distinct(column: ColumnOrName) -> Column:
    """Return how many distinct values a column has, also in a stream; workers keep them all."""
    return F.size(F.collect_set(column)).cast("bigint")
