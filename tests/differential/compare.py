"""The outcome of a query, and the comparison of two outcomes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, DoubleType, FloatType, StructType

from differential.case import Case
from differential.measures import LISTS, ROUNDED

WAY_OUT = re.compile(
    r"\b(use|give|rename|make|cast|set|write|begin|start|put|omit|allow|keep|must be)\b",
    re.IGNORECASE,
)


@dataclass
class Outcome:
    """The outcome of a query: its schema, its rows by batch, or an error.

    ``built`` is whether the query could be built; if not, the error was raised before it ran.
    """

    schema: StructType | None = None
    batches: list[list[tuple[Any, ...]]] = field(default_factory=list)
    error: Exception | None = None
    built: bool = False


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison.

    ``kind`` is ``same``, ``refused`` or ``both fail``, which are fine; or ``schema``, ``rows``,
    ``order``, ``error``, ``no error`` or ``no way out``, which are differences.
    """

    kind: str
    detail: str = ""

    @property
    def differs(self) -> bool:
        """Whether the promise is broken."""
        return self.kind not in ("same", "refused", "both fail")


def compare(case: Case, plain: Outcome, balanced: Outcome) -> Verdict:
    """Return whether a balanced query gave the plain one's result, or was refused properly."""
    if plain.error is not None:
        return _failed(plain.error, balanced)
    if balanced.error is not None:
        return refused(balanced)
    assert plain.schema is not None
    assert balanced.schema is not None
    ours, theirs = (_described(case, s) for s in (balanced.schema, plain.schema))
    if ours != theirs:
        return Verdict("schema", f"plain {theirs}, balanced {ours}")
    return _compare_rows(case, plain, balanced)


def _failed(error: Exception, balanced: Outcome) -> Verdict:
    if balanced.error is None:
        return Verdict("no error", f"plain raises {short(error)}")
    ours, theirs = conditions(balanced.error), conditions(error)
    spark = isinstance(balanced.error, PySparkException)
    if spark and balanced.built and ours and theirs and not ours & theirs:
        return Verdict("error", f"plain raises {short(error)}, balanced {short(balanced.error)}")
    return Verdict("both fail", short(error))


def refused(balanced: Outcome) -> Verdict:
    """Return whether an error is a refusal: raised before anything ran, with a way out."""
    error = balanced.error
    refusal = isinstance(error, ValueError | TypeError | NotImplementedError)
    if not refusal or isinstance(error, PySparkException) or balanced.built:
        return Verdict("error", short(error))
    return Verdict("refused" if WAY_OUT.search(str(error)) else "no way out", short(error))


def short(error: Exception | None) -> str:
    """Return the class of an error and the beginning of its message."""
    return f"{type(error).__name__}: {str(error).strip()[:400]}"


def conditions(error: Exception) -> set[str]:
    """Return Spark's names of an error and of its causes."""
    names = set(re.findall(r"\[([A-Z][A-Z0-9_.]{5,})\]", str(error)))
    return {name.partition(".")[0] for name in names} - {
        "STREAM_FAILED",
        "FOREACH_BATCH_USER_FUNCTION_ERROR",
    }


def kind_of(case: Case, message: str) -> str:
    """Return a message without the parts that depend on a case: quotes, names and numbers."""
    message = re.sub(r"'[^']*'|\"[^\"]*\"|`[^`]*`", "…", message)
    names = {name for table in case.tables for name in table.names} | {case.scheme, "noise"}
    names |= {measure.name for measure in case.measures}
    for name in sorted(names, key=len, reverse=True):
        message = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "…", message)
    message = re.sub(r"…(, …)+", "…", message)
    return re.sub(r"\d+", "0", message)[:110]


def _described(case: Case, schema: StructType) -> list[tuple[str, Any]]:
    # A route case merges partial results itself: they may be nullable where a count is not, and a
    # sum of sums of decimals has more digits.
    if case.operator == "route":
        return [(f.name, f.dataType.typeName()) for f in schema]
    return [(f.name, (f.dataType.simpleString(), f.dataType, f.nullable)) for f in schema]


def _compare_rows(case: Case, plain: Outcome, balanced: Outcome) -> Verdict:
    assert plain.schema is not None
    shape = Shape.of(case, plain.schema)
    pairs = [
        _batches(case, [[*map(shape.split, batch)] for batch in outcome.batches])
        for outcome in (balanced, plain)
    ]
    if len(pairs[0]) != len(pairs[1]):
        counts = [[len(batch) for batch in each] for each in pairs]
        return Verdict("rows", f"rows by batch: plain {counts[1]}, balanced {counts[0]}")
    for number, (actual, expected) in enumerate(zip(*pairs, strict=True)):
        if case.ordered and [r[0] for r in actual] != [r[0] for r in expected]:
            kind = "order" if sorted(actual, key=repr) == sorted(expected, key=repr) else "rows"
            return Verdict(kind, f"plain {expected[:5]}, balanced {actual[:5]}")
        difference = shape.difference(actual, expected)
        if difference:
            return Verdict("rows", f"batch {number}: {difference}")
    return Verdict("same")


def _batches(case: Case, batches: list[list[Any]]) -> list[list[Any]]:
    """Return the batches that can be compared: all as one, or only those with rows."""
    if case.output in ("", "append"):
        return [[row for batch in batches for row in batch]]
    kept = [batch for batch in batches if batch]
    if case.output == "update":
        return kept
    # In complete mode a batch without input returns the same table again.
    kept = [sorted(batch, key=repr) for batch in kept]
    return [batch for i, batch in enumerate(kept) if i == 0 or batch != kept[i - 1]]


@dataclass(frozen=True)
class Shape:
    """The columns of a result that are unordered lists, and those that are rounded, with a scale.

    In the columns of ``infinite``, the order of rows decides which non-finite number results.
    """

    lists: frozenset[int]
    rounded: dict[int, float]
    infinite: frozenset[int] = frozenset()

    @classmethod
    def of(cls, case: Case, schema: StructType) -> Shape:
        """Return the shape of the results of a case."""
        first = len(schema) - len(case.measures)
        lists, rounded, infinite = set(), {}, set()
        if case.operator in ("aggregate", "route", "two windows"):
            for at, measure in enumerate(case.measures, first):
                if measure.function in LISTS:
                    lists.add(at)
                if measure.function in ROUNDED and _floating(schema[at].dataType):
                    rounded[at] = 1e-9 * _scale(case.tables[0].values(measure.columns[0]))
                if measure.function == "covar_samp":
                    infinite.add(at)
        return cls(frozenset(lists), rounded, frozenset(infinite))

    def split(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the exact and the rounded values of a row, in one form each."""
        exact = tuple(
            canonical(value, at in self.lists)
            for at, value in enumerate(row)
            if at not in self.rounded
        )
        return exact, tuple(self._rounded(at, row[at]) for at in self.rounded)

    def _rounded(self, at: int, value: Any) -> Any:
        if at in self.infinite and value is not None and not math.isfinite(value):
            return "not finite"
        return canonical(value)

    def difference(self, actual: list[Any], expected: list[Any]) -> str:
        """Return the difference between rows in any order; empty if they are the same."""
        actual, expected = sorted(actual, key=repr), sorted(expected, key=repr)
        if [row[0] for row in actual] != [row[0] for row in expected]:
            extra = [row for row in map(repr, actual) if row not in {*map(repr, expected)}]
            missing = [row for row in map(repr, expected) if row not in {*map(repr, actual)}]
            return (
                f"{len(expected)} rows, balanced {len(actual)}; plain {missing[:3]}, "
                f"balanced {extra[:3]}"
            )
        for ours, theirs in zip(actual, expected, strict=True):
            for a, b, scale in zip(ours[1], theirs[1], self.rounded.values(), strict=True):
                if not _near(a, b, scale):
                    return f"plain {theirs}, balanced {ours}"
        return ""


def _floating(kind: DataType) -> bool:
    return isinstance(kind, DoubleType | FloatType)


def _scale(values: list[Any]) -> float:
    finite = [abs(float(v)) for v in values if v is not None and math.isfinite(float(v))]
    return max([1.0, *finite])


def _near(a: Any, b: Any, scale: float) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=scale)
    return bool(a == b)


def canonical(value: Any, unordered: bool = False) -> Any:
    """Return a value in canonical form: one NaN, one zero, unordered lists sorted."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return "map", *sorted(((canonical(k), canonical(v)) for k, v in value.items()), key=repr)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, tuple):
        return tuple(map(canonical, value))
    if isinstance(value, list):
        values = [canonical(v) for v in value]
        return sorted(values, key=repr) if unordered else values
    return value
