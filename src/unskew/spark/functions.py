"""Aggregates under the names of ``pyspark.sql.functions``, for ``Balancer.groupBy(...).agg``.

``agg`` accepts all aggregates of Spark. This module offers the usual ones for import from one
place, one that Spark's streams lack (`count_distinct`), and user-defined ones (`combine`).
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

from unskew.spark.combiners import combine
from unskew.spark.placement.keys import ColumnOrName

__all__ = [
    "approx_count_distinct",
    "avg",
    "collect_list",
    "collect_set",
    "combine",
    "count",
    "count_distinct",
    "max",
    "mean",
    "min",
    "sum",
]


def count(column: ColumnOrName = "*") -> Column:
    """Return the number of rows, or of rows in which a column is not null."""
    return F.count(column)


def count_distinct(column: ColumnOrName) -> Column:
    """Return the number of distinct values, also in a stream; workers keep all of them."""
    return F.size(F.collect_set(column)).cast("bigint")
