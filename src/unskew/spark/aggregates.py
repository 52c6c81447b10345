"""Ready-made aggregates that can be split over workers: partial results, and how they are merged.

Each stands for a plain Spark aggregate and gives what that would: the same values, the same type::

    balance.aggregate(events, "user", clicks=aggregates.count(), spent=aggregates.sum("price"))
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, LongType

from unskew.spark.keys import ColumnOrName


@dataclass(frozen=True)
class Merge:
    """How the partial results of several workers are put together.

    Parameters
    ----------
    aggregate
        As an aggregate over rows.
    fold
        As an expression over an array of them, given their type.
    """

    aggregate: Callable[[Column], Column]
    fold: Callable[[Column, DataType], Column]

    @classmethod
    def of(
        cls, aggregate: Callable[[Column], Column], pair: Callable[[Column, Column], Column]
    ) -> Merge:
        """Return a merge by an aggregate, and by what puts two of them together."""

        def fold(values: Column, kind: DataType) -> Column:
            rest = F.slice(values, 2, F.size(values))
            return F.aggregate(rest, F.get(values, F.lit(0)), lambda a, b: pair(a, b).cast(kind))

        return cls(aggregate, fold)


SUM = Merge.of(F.sum, lambda a, b: F.coalesce(a + b, a, b))
MIN = Merge.of(F.min, F.least)
MAX = Merge.of(F.max, F.greatest)
CONCAT = Merge.of(lambda lists: F.flatten(F.collect_list(lists)), F.concat)
UNION = Merge.of(F.hll_union_agg, F.hll_union)


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
        How each of these is put together.
    finish
        The result, of the merged parts.
    kind
        The type of the result, by that of the first partial one: the same if not given.
    """

    plain: Column
    partials: tuple[Column, ...]
    merges: tuple[Merge, ...]
    finish: Callable[..., Column] = lambda merged: merged
    kind: Callable[[DataType], DataType] = lambda partial: partial

    @classmethod
    def of(cls, column: Column) -> Aggregate:
        """Return an aggregate whose partial results are not merged."""
        return cls(column, (column,), (MAX,))

    def parts(self, name: str) -> list[str]:
        """Return the names of the partial results of an aggregate of this name."""
        return [f"{name}__{i}" for i in range(len(self.partials))]


def count(column: ColumnOrName | None = None) -> Aggregate:
    """Return the number of rows, or of those in which a column is not null."""
    # Not count(): the optimizer makes one aggregate of sum(count()), and the split is gone.
    one = F.lit(1) if column is None else F.when(_column(column).isNotNull(), 1).otherwise(0)
    plain = F.count(F.lit(1) if column is None else column)
    return Aggregate(plain, (F.sum(one),), (SUM,), lambda n: F.coalesce(n, F.lit(0)))


def sum(column: ColumnOrName) -> Aggregate:
    """Return the sum of a column."""
    return Aggregate(F.sum(column), (F.sum(column),), (SUM,))


def min(column: ColumnOrName) -> Aggregate:
    """Return the least value of a column."""
    return Aggregate(F.min(column), (F.min(column),), (MIN,))


def max(column: ColumnOrName) -> Aggregate:
    """Return the greatest value of a column."""
    return Aggregate(F.max(column), (F.max(column),), (MAX,))


def mean(column: ColumnOrName) -> Aggregate:
    """Return the mean of a column."""
    n = count(column)
    return Aggregate(
        F.avg(column),
        (F.sum(column), *n.partials),
        (SUM, *n.merges),
        lambda total, count: total / count,
        _mean_type,
    )


def collect_list(column: ColumnOrName) -> Aggregate:
    """Return the values of a column that are not null, in no order."""
    plain = F.collect_list(column)
    return Aggregate(plain, (plain,), (CONCAT,), _never_null)


def collect_set(column: ColumnOrName) -> Aggregate:
    """Return the distinct values of a column that are not null, in no order."""
    plain = F.collect_set(column)
    return Aggregate(
        plain, (plain,), (CONCAT,), lambda values: F.array_distinct(_never_null(values))
    )


def count_distinct(column: ColumnOrName) -> Aggregate:
    """Return how many distinct values a column has; workers keep them all."""
    parts = collect_set(column)
    return Aggregate(
        F.count_distinct(column),
        parts.partials,
        parts.merges,
        lambda values: F.size(F.array_distinct(_never_null(values))),
        lambda _: LongType(),
    )


def approx_count_distinct(column: ColumnOrName) -> Aggregate:
    """Return about how many distinct values a column has, by a HyperLogLog sketch."""
    sketch = F.hll_sketch_agg(column)
    plain = F.hll_sketch_estimate(sketch)
    return Aggregate(
        plain,
        (sketch,),
        (UNION,),
        lambda merged: F.coalesce(F.hll_sketch_estimate(merged), F.lit(0)),
        lambda _: LongType(),
    )


def _mean_type(total: DataType) -> DataType:
    if not isinstance(total, DecimalType):
        return DoubleType()
    # Spark: the sum of decimal(p, s) is decimal(p + 10, s), the mean decimal(p + 4, s + 4).
    return DecimalType(builtins.min(38, total.precision - 6), builtins.min(38, total.scale + 4))


def _never_null(values: Column) -> Column:
    """Return an array that Spark, too, knows not to be null."""
    return F.coalesce(values, F.array())


def _column(column: ColumnOrName) -> Column:
    return F.col(column) if isinstance(column, str) else column
