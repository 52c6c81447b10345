"""The plain query of a case, without unskew."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from differential.case import Case
from differential.columns import (
    key_arguments,
    key_names,
    measure_column,
    repr_column,
    window_column,
)
from differential.stateful import OUTPUT, STATE, adding
from differential.tables import quoted, time_column

LEAST, MOST = timedelta(seconds=-10), timedelta(seconds=15)
KINDS = {"semi": "leftsemi", "anti": "leftanti"}


def plain_query(case: Case, sides: Sequence[DataFrame]) -> DataFrame:
    """Return the query of a case over its tables."""
    return ordered(case, OPERATORS[case.operator](case, sides))


def ordered(case: Case, df: DataFrame) -> DataFrame:
    """Return the rows in the order of their keys, if the case asks for one."""
    if not case.ordered:
        return df
    return df.orderBy(*(F.col(quoted(name)) for name in key_names(case)))


def _aggregate(case: Case, sides: Sequence[DataFrame], times: int = 1) -> DataFrame:
    window = window_column(case, times)
    grouping = [*([] if window is None else [window]), *key_arguments(case)]
    measures = [measure_column(m).alias(m.name) for m in case.measures]
    return sides[0].groupBy(*grouping).agg(*measures)


def _two_windows(case: Case, sides: Sequence[DataFrame]) -> DataFrame:
    return _aggregate(case, sides).union(_aggregate(case, sides, times=3))


def _combine(case: Case, sides: Sequence[DataFrame]) -> DataFrame:
    measures = [repr_column(m.columns).alias(m.name) for m in case.measures]
    return sides[0].groupBy(*key_arguments(case)).agg(*measures)


def _join(case: Case, sides: Sequence[DataFrame]) -> DataFrame:
    left, right = sides
    names = [key.column for key in case.keys]
    kind = KINDS.get(case.how, case.how)
    if case.window is None:
        return left.join(right, on=names, how=kind)
    left, right = left.alias("l"), right.alias("r")
    first = F.col(f"l.{quoted(time_column(case, 0))}")
    second = F.col(f"r.{quoted(time_column(case, 1))}")
    condition = (second >= first + F.lit(LEAST)) & (second <= first + F.lit(MOST))
    for name in map(quoted, names):
        condition = condition & (F.col(f"l.{name}") == F.col(f"r.{name}"))
    kept = "r" if case.how == "right" else "l"
    chosen = [F.col(f"{kept}.{quoted(name)}") for name in names]
    for side, table in zip("lr", case.tables, strict=True):
        if side == "l" or case.how not in KINDS:
            rest = [name for name in table.names if name not in names]
            chosen += [F.col(f"{side}.{quoted(name)}") for name in rest]
    return left.join(right, condition, kind).select(*chosen)


def _stateful(case: Case, sides: Sequence[DataFrame]) -> DataFrame:
    output = OUTPUT.format(case.keys[0].column)
    function = adding(case.keys[0].column, case.measures[0].columns[0])
    grouped = sides[0].groupBy(case.keys[0].column)
    return grouped.applyInPandasWithState(function, output, STATE, "update", "NoTimeout")


OPERATORS = {
    "aggregate": _aggregate,
    "combine": _combine,
    "join": _join,
    "route": _aggregate,
    "stateful": _stateful,
    "two windows": _two_windows,
}
