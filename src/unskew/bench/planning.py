"""The speed of planners and the cost of their plans, over intervals of a fluctuating workload."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import hash_longs
from unskew.planners import Plan, Planner, Proposal, Statistics, read_planners
from unskew.planners.heuristics import Heuristic
from unskew.state import whole
from unskew.workloads import FluctuatingZipf

RECORDS_PER_KEY = 10


def planning_speed(
    planners: str,
    keys: Sequence[int],
    workers: Sequence[int],
    *,
    resolutions: Sequence[int] = (0,),
    fluctuations: Sequence[float] = (1.0,),
    intervals: int = 6,
    window: int = 5,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Return the planning time and the quality of the plans of each planner in each setting.

    Frequencies are swapped by ``f`` before each interval; a planner replans after each interval,
    from its own last plan. Figures are means over the intervals after the first, in which kernels
    compile; the time is a median. A resolution of 0 is the original key space.
    """
    whole("intervals", intervals, 2)
    for n_keys, n_workers in itertools.product(keys, workers):
        whole("keys", n_keys, 1)
        whole("workers", n_workers, 1)
    chosen = _planners(planners, resolutions)
    results = []
    for n_keys, n_workers, f in itertools.product(keys, workers, fluctuations):
        stream = FluctuatingZipf(
            keys=n_keys,
            records=intervals * RECORDS_PER_KEY * n_keys,
            interval=RECORDS_PER_KEY * n_keys,
            f=f,
            workers=n_workers,
            seed=seed,
        )
        plans = [Plan.empty(n_workers, fallback="key") for _ in chosen]
        runs: list[list[tuple[float, Proposal]]] = [[] for _ in chosen]
        for statistics in _statistics(stream, window):
            for i, (_, planner) in enumerate(chosen):
                started = time.perf_counter()
                proposal = planner.plan(statistics, plans[i])
                runs[i].append((time.perf_counter() - started, proposal))
                plans[i] = proposal.plan
                if progress is not None:
                    progress(1)
        setting = {"keys": n_keys, "workers": n_workers, "f": f}
        results += [_row(*chosen[i], runs[i][1:], setting) for i in range(len(chosen))]
    return results


def _planners(text: str, resolutions: Sequence[int]) -> list[tuple[str, Planner]]:
    """Return the planners in every resolution; a planner without a resolution is listed once."""
    chosen: list[tuple[str, Planner]] = []
    for name, planner in read_planners(text).items():
        if isinstance(planner, Heuristic) and planner.resolution == 0:
            chosen += [(name, replace(planner, resolution=r)) for r in resolutions]
        else:
            chosen.append((name, planner))
    return chosen


def _statistics(stream: FluctuatingZipf, window: int) -> Iterator[Statistics]:
    """Yield the statistics of each interval; a record costs 1 and leaves state 1 for the window."""
    keys = hash_longs(np.arange(1, stream.keys + 1))
    counts: list[NDArray[np.float64]] = []
    for ids in stream.ids(stream.interval):
        counts.append(np.bincount(ids - 1, minlength=stream.keys).astype(np.float64))
        counts = counts[-window:]
        yield Statistics(keys, counts[-1], np.sum(counts, axis=0), np.ones(stream.workers))


def _row(
    name: str, planner: Planner, runs: list[tuple[float, Proposal]], setting: dict[str, Any]
) -> dict[str, Any]:
    seconds, proposals = zip(*runs, strict=True)
    return {
        "planner": name,
        **setting,
        "resolution": getattr(planner, "resolution", 0),
        "plan_s": float(np.median(seconds)),
        "moved_fraction": float(np.mean([p.moved_fraction for p in proposals])),
        "table_entries": int(np.mean([len(p.plan.keys) for p in proposals])),
        "max_over_mean": float(np.mean([p.max_over_mean for p in proposals])),
        "falls_short": sum(bool(p.falls_short) for p in proposals),
    }
