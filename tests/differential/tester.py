"""Runs many cases, counts their verdicts, and shrinks those that differ."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from differential.case import Case
from differential.compare import Verdict, kind_of
from differential.generate import random_batch
from differential.generate_streams import random_stream
from differential.run import judge
from differential.script import script
from differential.shrink import shrunk

KINDS = ("batch", "stream", "all")
STREAM_EVERY = 6
"""Among cases of all kinds, every sixth is a stream."""
SHRINK_S = {False: 45.0, True: 120.0}
"""The seconds for shrinking a batch and a stream."""


def random_case(kind: str, seed: int, number: int) -> Case:
    """Return a case by its number."""
    if kind == "all":
        kind = "stream" if number % STREAM_EVERY == STREAM_EVERY - 1 else "batch"
    rng = Random(f"{kind} {seed} {number}")
    return random_stream(rng) if kind == "stream" else random_batch(rng)


@dataclass(frozen=True)
class Difference:
    """A case that differs, its number, and how long it took."""

    number: int
    case: Case
    verdict: Verdict
    seconds: float

    @property
    def signature(self) -> str:
        """A text that is equal for cases that probably differ for the same reason."""
        if self.verdict.kind in ("error", "no way out", "no error"):
            return f"{self.verdict.kind}: {kind_of(self.case, self.verdict.detail)}"
        scheme = self.case.scheme.partition(":")[0]
        window = self.case.window.function if self.case.window else ""
        return f"{self.verdict.kind}: {self.case.operator} {self.case.output} {window} {scheme}"


@dataclass
class Tally:
    """Counts of cases, refusals and differences."""

    labels: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    differences: dict[str, list[Difference]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def cases(self) -> int:
        """The number of cases."""
        return sum(self.labels.values())

    def add(self, number: int, case: Case, verdict: Verdict, seconds: float) -> Difference | None:
        """Count a case; return its difference if it is the first of its signature."""
        self.labels[case.label] += 1
        self.verdicts[verdict.kind] += 1
        self.seconds += seconds
        if verdict.kind == "refused":
            self.refusals[kind_of(case, verdict.detail)] += 1
        if not verdict.differs:
            return None
        difference = Difference(number, case, verdict, seconds)
        alike = self.differences.setdefault(difference.signature, [])
        alike.append(difference)
        return difference if len(alike) == 1 else None


def numbers(first: int, cases: int | None, minutes: float | None) -> Iterator[int]:
    """Yield the numbers of cases, up to a count or a time."""
    until = None if minutes is None else time.monotonic() + 60 * minutes
    number = first
    while (cases is None or number < first + cases) and (until is None or time.monotonic() < until):
        yield number
        number += 1


def run_case(spark: SparkSession, number: int, case: Case, tally: Tally) -> Difference | None:
    """Run a case and count it; return its difference if it is a new one."""
    start = time.monotonic()
    verdict = judge(spark, case)
    return tally.add(number, case, verdict, time.monotonic() - start)


def shrink(
    difference: Difference, judged: Callable[[Case], Verdict], limit_s: float | None = None
) -> Difference:
    """Return the difference of a smaller case that differs in the same way."""
    latest = {"verdict": difference.verdict}

    def differs(case: Case) -> bool:
        verdict = judged(case)
        alike = Difference(difference.number, case, verdict, 0.0)
        same = verdict.differs and verdict.kind == difference.verdict.kind
        if same and verdict.kind in ("error", "no way out"):
            same = alike.signature[:60] == difference.signature[:60]
        if same:
            latest["verdict"] = verdict
        return same

    limit = SHRINK_S[difference.case.stream] if limit_s is None else limit_s
    case = shrunk(difference.case, differs, limit)
    return Difference(difference.number, case, latest["verdict"], difference.seconds)


def write(difference: Difference, folder: Path, name: str) -> Path:
    """Write a case and the script that shows it; return the script's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{difference.number}.py"
    title = f"Case {difference.number}, {difference.verdict.kind}: {difference.verdict.detail}"
    path.write_text(script(difference.case, title))
    path.with_suffix(".json").write_text(difference.case.to_json())
    return path
