"""Keys, aggregates and windows of a case as columns of PySpark."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from differential.case import Case, Key, Measure
from differential.tables import NOISE, quoted


def key_arguments(case: Case) -> list[str | Column]:
    """Return the keys as they are passed to groupBy."""
    noise: list[str | Column] = [NOISE] if case.noise else []
    return [*map(as_given, case.keys), *noise]


def as_given(key: Key) -> str | Column:
    """Return a key as its case passes it."""
    if key.given == "column":
        return F.col(quoted(key.column))
    if key.given == "quoted":
        return quoted(key.column)
    return key.column.swapcase() if key.given == "case" else key.column


def key_names(case: Case) -> list[str]:
    """Return the names of the key columns."""
    return [*(key.column for key in case.keys), *([NOISE] if case.noise else [])]


def measure_column(measure: Measure) -> Column:
    """Return an aggregate as a plain column."""
    if measure.function == "count_star":
        return F.count("*")
    if measure.function == "spread":
        (x,) = map(quoted, measure.columns)
        return F.max(x) - F.min(x)
    columns = [F.col(quoted(name)) for name in measure.columns]
    function: Callable[..., Column] = getattr(F, measure.function)
    return function(*columns, *measure.arguments)


def window_column(case: Case, times: int = 1) -> Column | None:
    """Return the window of a case, some times as long, or none."""
    if case.window is None:
        return None
    window = case.window
    if window.function == "session_window":
        return F.session_window(quoted(window.time), f"{times * window.length_s} seconds")
    length, slide = f"{times * window.length_s} seconds", f"{window.slide_s} seconds"
    return F.window(quoted(window.time), length, slide if times == 1 else None)


def repr_combiner() -> Any:
    """Return a CombineFn that returns the sorted ``repr`` of its elements.

    Its class is local, so that it is pickled by value: workers cannot import this module.
    """

    class Reprs:
        def create_accumulator(self) -> list[str]:
            return []

        def add_input(self, accumulator: list[str], element: Any) -> list[str]:
            return [*accumulator, repr(element)]

        def merge_accumulators(self, accumulators: Iterable[list[str]]) -> list[str]:
            return [text for texts in accumulators for text in texts]

        def extract_output(self, accumulator: list[str]) -> list[str]:
            return sorted(accumulator)

    return Reprs()


def repr_column(columns: Iterable[str]) -> Column:
    """Return a plain aggregate with the result of `repr_combiner`."""

    def reprs(rows: list[Any]) -> list[str]:
        return sorted(repr(row[0] if len(row) == 1 else tuple(row)) for row in rows)

    structs = F.collect_list(F.struct(*(F.col(quoted(name)) for name in columns)))
    return F.udf(reprs, "array<string>", useArrow=False)(structs)


def flaky() -> Column:
    """Return a condition that always holds, but fails the first attempt of every second task."""

    def hold(_: int) -> bool:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context and context.attemptNumber() == 0 and context.partitionId() % 2 == 0:
            raise RuntimeError("a task fails once")
        return True

    # A constant, because streams accept no expression that depends on the partition.
    return F.udf(hold, "boolean", useArrow=False)(F.lit(1))


def lossy(local: str, marker: Path) -> Column:
    """Return a condition that always holds; the first task that runs it deletes shuffle files."""
    mark = str(marker)

    def hold(_: int) -> bool:
        from pathlib import Path

        if not Path(mark).exists():
            Path(mark).parent.mkdir(parents=True, exist_ok=True)
            Path(mark).touch()
            for path in Path(local).glob("blockmgr-*/*/shuffle_*"):
                path.unlink(missing_ok=True)
        return True

    return F.udf(hold, "boolean", useArrow=False)(F.lit(1))
