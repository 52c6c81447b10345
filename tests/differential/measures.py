"""Aggregates that a case may have, with the types that each accepts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from differential.case import Field, Measure
from differential.kinds import (
    FLOATS,
    INTEGERS,
    INTERVALS,
    NUMBERS,
    TIMES,
    has_map,
)
from differential.values import summable

LISTS = ("collect_list", "collect_set")
"""Aggregates whose result is an unordered list."""
ROUNDED = ("sum", "avg", "try_sum", "try_avg", "stddev", "var_pop", "corr", "covar_samp")
"""Aggregates that round if their result is a floating-point number."""
MERGEABLE = ("count_star", "count", "min", "max")
"""Aggregates whose results by key and slot can be merged by another aggregate.

Sums cannot: a sum of decimals that overflows is null, but the sum of the others is not."""
READY = (
    *("count_star", "count", "sum", "avg", "min", "max", "collect_list", "collect_set"),
    *("count_distinct", "approx_count_distinct"),
)
"""Aggregates that `unskew.spark.functions` offers."""
STREAMABLE = (
    *("count_star", "count", "sum", "avg", "try_sum", "min", "max", "collect_list", "collect_set"),
    *("approx_count_distinct", "median", "percentile_approx", "stddev", "var_pop", "bool_or"),
    *("bool_and", "count_if", "bit_xor", "spread", "max_by", "min_by", "covar_samp", "corr"),
)
"""Aggregates that Spark supports in streams: those that are not distinct."""
NAMES = (
    "n",
    "total",
    "Total",
    "n__0",
    "__unskew_records",
    "sum(x)",
    "Slot",
    "left",
    "x.y",
    "a",
    "b",
)


@dataclass(frozen=True)
class Column:
    """A column that may be aggregated; ``wild`` if its values are as large as the type allows."""

    field: Field
    wild: bool


Rule = Callable[[Column], bool]


def _any(_: Column) -> bool:
    return True


def _no_map(column: Column) -> bool:
    return not has_map(column.field.kind)


def _summable(column: Column) -> bool:
    return summable(column.field.kind, column.wild)


def _tame_number(column: Column) -> bool:
    return column.field.kind in NUMBERS and not column.wild


def _of(*kinds: str) -> Rule:
    return lambda column: column.field.kind in kinds


RULES: dict[str, Rule] = {
    "count": _any,
    "sum": _summable,
    "avg": _summable,
    "try_sum": lambda column: column.field.kind in NUMBERS and _summable(column),
    "min": _no_map,
    "max": _no_map,
    "collect_list": _any,
    "collect_set": _no_map,
    "count_distinct": _no_map,
    "approx_count_distinct": _no_map,
    "median": _of(*NUMBERS, *INTERVALS),
    "percentile_approx": _of(*NUMBERS, *TIMES[:2], *INTERVALS),
    "stddev": _tame_number,
    "var_pop": _tame_number,
    "bool_or": _of("boolean"),
    "bool_and": _of("boolean"),
    "count_if": _of("boolean"),
    "bit_xor": _of(*INTEGERS),
    "sum_distinct": _of(*INTEGERS),
    "spread": _of(*INTEGERS, "date"),
    "max_by": _any,
    "min_by": _any,
    "covar_samp": _tame_number,
    "corr": lambda column: _tame_number(column) and column.field.kind not in FLOATS,
}


def random_measures(
    rng: Random, columns: list[Column], unique: str, functions: tuple[str, ...] = ()
) -> tuple[Measure, ...]:
    """Return some aggregates with names of their own; ties are broken by a unique column."""
    names = rng.sample(NAMES, rng.choice((1, 1, 2, 2, 3, 5)))
    names = list({name.lower(): name for name in names}.values())
    return tuple(random_measure(rng, name, columns, unique, functions) for name in names)


def random_measure(
    rng: Random, name: str, columns: list[Column], unique: str, functions: tuple[str, ...]
) -> Measure:
    """Return an aggregate of a column whose type it accepts."""
    allowed = [f for f in RULES if not functions or f in functions]
    column = rng.choice(columns) if columns else None
    fitting = [f for f in allowed if column is not None and RULES[f](column)]
    if column is None or not fitting or rng.random() < 0.1:
        return Measure(name, "count_star")
    function, of = rng.choice(fitting), column.field.name
    if function in ("max_by", "min_by", "covar_samp", "corr"):
        return Measure(name, function, (of, unique))
    if function == "count_distinct" and rng.random() < 0.3:
        return Measure(name, function, (of, unique))
    return Measure(name, function, (of,), (0.5,) if function == "percentile_approx" else ())
