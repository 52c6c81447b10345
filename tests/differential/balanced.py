"""The balanced query of a case: the only module that calls unskew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from differential.case import Case, Measure
from differential.columns import (
    flaky,
    key_arguments,
    lossy,
    measure_column,
    repr_combiner,
    window_column,
)
from differential.plain import LEAST, MOST, ordered
from differential.restless import allow_restless
from differential.stateful import OUTPUT, STATE, adding
from differential.tables import quoted, time_column
from spark.streams import named
from unskew.spark import Balancer, combine, functions

READY_MADE = {"count_star": "count", "avg": "mean"}
SLOT = "slot"


def balanced_query(
    case: Case, sides: Sequence[DataFrame], checkpoint: Path | None, folder: Path
) -> DataFrame:
    """Return the balanced query of a case over its tables; it may write to the folder."""
    allow_restless()
    where = None if checkpoint is None else str(checkpoint)
    balance = Balancer(case.scheme, routing=case.mode, checkpoint=where)
    if case.fault == "before":
        sides = [sides[0].filter(flaky()), *sides[1:]]
    df = OPERATORS[case.operator](balance, case, sides)
    if case.fault == "behind" and case.operator != "route":
        df = df.filter(flaky())
    if case.fault == "lost":
        local = str(df.sparkSession.conf.get("spark.local.dir"))
        df = df.filter(lossy(local, folder / "lost"))
    return ordered(case, df)


def _measure(case: Case, measure: Measure) -> Any:
    if case.ready_made and len(measure.columns) < 2:
        name = READY_MADE.get(measure.function, measure.function)
        function: Any = getattr(functions, name, None)
        if function is not None:
            return function(*(F.col(quoted(column)) for column in measure.columns))
    return measure_column(measure)


def _aggregate(
    balance: Balancer, case: Case, sides: Sequence[DataFrame], times: int = 1
) -> DataFrame:
    keys: list[Any] = key_arguments(case)
    measures = {m.name: _measure(case, m) for m in case.measures}
    window = window_column(case, times)
    grouping = keys if window is None else [window, *keys]
    return balance.groupBy(sides[0], *grouping).agg(*named(measures))


def _two_windows(balance: Balancer, case: Case, sides: Sequence[DataFrame]) -> DataFrame:
    return _aggregate(balance, case, sides).union(_aggregate(balance, case, sides, times=3))


def _combine(balance: Balancer, case: Case, sides: Sequence[DataFrame]) -> DataFrame:
    measures: dict[str, Any] = {}
    for m in case.measures:
        columns = [F.col(quoted(name)) for name in m.columns]
        measures[m.name] = combine(repr_combiner(), *columns, returns="array<string>")
    keys: list[Any] = key_arguments(case)
    return balance.groupBy(sides[0], *keys).agg(*named(measures))


def _join(balance: Balancer, case: Case, sides: Sequence[DataFrame]) -> DataFrame:
    names = [key.column for key in case.keys]
    options: dict[str, Any] = {"how": case.how, "split": case.split}
    if case.window is not None:
        options["times"] = time_column(case, 0), time_column(case, 1)
        options["within"] = LEAST, MOST
    left, right = sides
    return balance.join(left, right, names, **options)


def _route(balance: Balancer, case: Case, sides: Sequence[DataFrame]) -> DataFrame:
    """Return aggregates by key and slot, merged by key."""
    keys = key_arguments(case)
    routed = sides[0].transform(balance.route, *keys)
    if case.fault == "behind":
        routed = routed.filter(flaky())
    partials = [measure_column(m).alias(f"part {i}") for i, m in enumerate(case.measures)]
    merges = {"count_star": F.sum, "count": F.sum, "min": F.min, "max": F.max}
    merged = [merges[m.function](f"part {i}").alias(m.name) for i, m in enumerate(case.measures)]
    return routed.groupBy(*keys, SLOT).agg(*partials).groupBy(*keys).agg(*merged)


def _stateful(balance: Balancer, case: Case, sides: Sequence[DataFrame]) -> DataFrame:
    (key,) = case.keys
    return balance.groupBy(sides[0], key.column).applyInPandasWithState(
        adding(key.column, case.measures[0].columns[0]),
        OUTPUT.format(key.column),
        STATE,
        "update",
        "NoTimeout",
    )


OPERATORS = {
    "aggregate": _aggregate,
    "combine": _combine,
    "join": _join,
    "route": _route,
    "stateful": _stateful,
    "two windows": _two_windows,
}
