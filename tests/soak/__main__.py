"""Kills a balanced query on a real cluster repeatedly: python -m soak --help."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer

from soak.query import QUERIES
from soak.soak import Soak

KINDS = ("shuffle", "python", "driver", "executor", "python", "interrupt", "shuffle", "executor",
         "driver", "worker")  # fmt: skip


def main(
    query: Annotated[str, typer.Option(help="online, planned or state")] = "online",
    scheme: Annotated[str | None, typer.Option(help="A router or a planner")] = None,
    kills: Annotated[int, typer.Option(help="The number of kills", min=0)] = 20,
    seconds: Annotated[
        float, typer.Option(help="The time over which kills are spread", min=0)
    ] = 200,
    rows: Annotated[int, typer.Option(help="Rows of a file; two files a second", min=1)] = 2000,
    seed: int = 1,
    keep: Annotated[Path | None, typer.Option(help="Work in this folder and keep it")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Kill parts of a query and of its cluster; exit with 1 if a result is not exact.

    With --query state, the query is a function with state whose keys all move after every batch.
    """
    if query not in QUERIES:
        raise typer.BadParameter(f"query must be one of {', '.join(QUERIES)}, got {query!r}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(f"soak: ended by signal {number}"))
    rng = np.random.default_rng(seed)
    deck = [KINDS[i % len(KINDS)] for i in range(kills)]
    kinds = [str(kind) for kind in rng.permutation(deck)]
    with TemporaryDirectory() as scratch:
        folder = (keep or Path(scratch)).resolve()
        soak = Soak(folder, scheme or QUERIES[query], query, rows=rows, seed=seed)
        report = soak.run(kinds, seconds)
    print(json.dumps(report) if as_json else "\n".join(f"{k}: {v}" for k, v in report.items()))
    raise typer.Exit(not report["exact"])


if __name__ == "__main__":
    typer.run(main)
