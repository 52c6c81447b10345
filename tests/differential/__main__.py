"""Compares random balanced queries with plain ones: python -m differential --help."""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from differential.case import Case
from differential.run import judge
from differential.session import scratch_folder, start_session
from differential.tester import (
    KINDS,
    Tally,
    numbers,
    random_case,
    run_case,
    shrink,
    write,
)

SESSION_CASES = 600
"""A new session starts after this many cases, as a driver gets slower with every query."""
PROGRESS_EVERY = 100
"""The number of cases between two lines of progress if there is no terminal."""


def main(
    kind: Annotated[str, typer.Option(help="batch, stream or all")] = "all",
    cases: Annotated[int | None, typer.Option(help="The number of cases", min=1)] = None,
    minutes: Annotated[float | None, typer.Option(help="The minutes to run", min=0.01)] = None,
    seed: Annotated[int, typer.Option(help="The seed of the series of cases")] = 1,
    first: Annotated[int, typer.Option(help="The number of the first case", min=0)] = 0,
    out: Annotated[Path, typer.Option(help="The folder for differences")] = Path(
        "out/differential"
    ),
    shrinking: Annotated[bool, typer.Option("--shrink/--no-shrink")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the counts as JSON")] = False,
) -> None:
    """Run random cases; exit with 1 if a balanced query differs from the plain one."""
    if kind not in KINDS:
        raise typer.BadParameter(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
    if cases is None and minutes is None:
        cases = 100
    tally, console = Tally(), Console(stderr=True)
    folder = scratch_folder()
    spark = start_session(folder)
    try:
        with console.status("starting") as status:
            for number in numbers(first, cases, minutes):
                if tally.cases and tally.cases % SESSION_CASES == 0:
                    spark.stop()
                    spark = start_session(folder)
                case = random_case(kind, seed, number)
                difference = run_case(spark, number, case, tally)
                line = progress(tally, number, case)
                status.update(line)
                if not console.is_terminal and tally.cases % PROGRESS_EVERY == 0:
                    console.print(line, markup=False)
                if difference is None:
                    continue
                console.print(f"case {number}: {difference.signature}", markup=False)
                if shrinking:
                    difference = shrink(difference, partial(judge, spark))
                path = write(difference, out, f"{kind}-{seed}")
                console.print(f"  {difference.verdict.detail[:300]}\n  {path}", markup=False)
    except KeyboardInterrupt:
        console.print("interrupted; the counts so far:")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(summary(tally), indent=2, ensure_ascii=False) if as_json else report(tally))
    sys.exit(1 if tally.differences else 0)


def progress(tally: Tally, number: int, case: Case) -> str:
    """Return a line about the progress."""
    rate = 60 * tally.cases / max(tally.seconds, 1e-9)
    differing = sum(map(len, tally.differences.values()))
    return f"case {number} ({case.label}), {rate:.0f} a minute, {differing} differences"


def summary(tally: Tally) -> dict[str, object]:
    """Return the counts by name."""
    return {
        "cases": tally.cases,
        "seconds": round(tally.seconds, 1),
        "cases_per_minute": round(60 * tally.cases / max(tally.seconds, 1e-9), 1),
        "kinds": dict(tally.labels.most_common()),
        "verdicts": dict(tally.verdicts.most_common()),
        "refusals": dict(tally.refusals.most_common()),
        "differences": {
            signature: [difference.number for difference in alike]
            for signature, alike in tally.differences.items()
        },
    }


def report(tally: Tally) -> str:
    """Return the counts as text."""
    lines = []
    for name, value in summary(tally).items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {count}  {what}" for what, count in value.items()]
        else:
            lines.append(f"{name}: {value}")
    return "\n".join(lines)


if __name__ == "__main__":
    typer.run(main)
