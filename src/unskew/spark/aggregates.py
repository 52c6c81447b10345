"""Ready-made aggregates that can be split over workers: partial results, and how they are merged.

Each stands for a plain Spark aggregate and gives what that would: the same values, the same type::

    balance.aggregate(events, "user", clicks=aggregates.count(), spent=aggregates.sum("price"))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from unskew.spark.keys import ColumnOrName

Merge = Callable[[Column], Column]


@dataclass(frozen=True)
class Aggregate:
    """An aggregate in two steps.

    Parameters
    ----------
    plain
        The aggregate that it stands for: it gives the type of the result.
    partials
        What a worker computes of the rows of a key that it gets.
    merges
        How each of these is put together, as an aggregate over the workers.
    finish
        The result, of the merged parts.
    """

    plain: Column
    partials: tuple[Column, ...]
    merges: tuple[Merge, ...]
    finish: Callable[..., Column] = lambda merged: merged


def count(column: ColumnOrName | None = None) -> Aggregate:
    """Return the number of rows, or of those in which a column is not null."""
    # Not count(): the optimizer makes one aggregate of sum(count()), and the split is gone.
    one = F.lit(1) if column is None else F.when(_column(column).isNotNull(), 1).otherwise(0)
    plain = F.count(F.lit(1) if column is None else column)
    return Aggregate(plain, (F.sum(one),), (F.sum,), lambda n: F.coalesce(n, F.lit(0)))


def sum(column: ColumnOrName) -> Aggregate:
    """Return the sum of a column."""
    return Aggregate(F.sum(column), (F.sum(column),), (F.sum,))


def min(column: ColumnOrName) -> Aggregate:
    """Return the least value of a column."""
    return Aggregate(F.min(column), (F.min(column),), (F.min,))


def max(column: ColumnOrName) -> Aggregate:
    """Return the greatest value of a column."""
    return Aggregate(F.max(column), (F.max(column),), (F.max,))


def mean(column: ColumnOrName) -> Aggregate:
    """Return the mean of a column."""
    n = count(column)
    return Aggregate(
        F.avg(column), (F.sum(column), *n.partials), (F.sum, *n.merges), lambda s, n: s / n
    )


def collect_list(column: ColumnOrName) -> Aggregate:
    """Return the values of a column that are not null, in no order."""
    plain = F.collect_list(column)
    return Aggregate(plain, (plain,), (_flatten,))


def collect_set(column: ColumnOrName) -> Aggregate:
    """Return the distinct values of a column that are not null, in no order."""
    plain = F.collect_set(column)
    return Aggregate(plain, (plain,), (_flatten,), F.array_distinct)


def count_distinct(column: ColumnOrName) -> Aggregate:
    """Return how many distinct values a column has; workers keep them all."""
    parts = collect_set(column)
    return Aggregate(
        F.count_distinct(column),
        parts.partials,
        parts.merges,
        lambda s: F.size(F.array_distinct(s)),
    )


def approx_count_distinct(column: ColumnOrName) -> Aggregate:
    """Return about how many distinct values a column has, by a HyperLogLog sketch."""
    sketch = F.hll_sketch_agg(column)
    plain = F.hll_sketch_estimate(sketch)
    return Aggregate(plain, (sketch,), (F.hll_union_agg,), F.hll_sketch_estimate)


def _flatten(column: Column) -> Column:
    return F.flatten(F.collect_list(column))


def _column(column: ColumnOrName) -> Column:
    return F.col(column) if isinstance(column, str) else column
