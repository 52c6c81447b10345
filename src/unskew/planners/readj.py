"""Readj: one move or swap of a large key after the other; the baseline of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.readj import readjust
from unskew.kernels.rebalance import Bins
from unskew.planners.base import Planner
from unskew.planners.items import descending
from unskew.planners.problem import Homes, Problem, meets
from unskew.state import whole, within

MOST_TRACKED = 10_000


@dataclass(frozen=True)
class Readj(Planner):
    """Move all entries back, then move or swap large keys between the extremes, the best first.

    Only keys that cost at least sigma times the mean load of a worker take part. Without a given
    sigma it starts with that of the largest key and goes down by halves, until the bound on the
    imbalance is met or 10,000 keys take part, and takes the best of these runs.

    Parameters
    ----------
    theta_max
        As of every planner.
    max_entries
        The most entries of a plan. Where balance needs more, the cheapest keys go back.
    sigma
        The cost, as a part of the mean load, from which on a key is moved; searched if not given.

    Notes
    -----
    State plays no part. Each step looks at all pairs of keys of two workers, so the time grows with
    their square.

    References
    ----------
    Gedik, "Partitioning functions for stateful data parallelism in stream processing", VLDB Journal
    23(4), 2014, as summarised in section V of Fang et al., 2017 (see `Mixed`).
    """

    max_entries: int = 3000
    sigma: float | None = None
    name: ClassVar[str] = "readj"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("max_entries", self.max_entries, 0)
        if self.sigma is not None:
            within("sigma", self.sigma, 0.0, 1e6)

    def _homes(self, problem: Problem) -> Homes:
        order = descending(problem.costs)
        order = order[problem.costs[order] > 0]
        if self.sigma is not None or len(order) == 0:
            mean = problem.loads(problem.starts).sum() / np.count_nonzero(problem.capacities)
            least = (self.sigma or 0.0) * mean
            return self._run(problem, order[problem.costs[order] >= least])
        best, cost = problem.hashed, float(problem.costs[order[0]])
        while True:
            tracked = order[: np.count_nonzero(problem.costs >= cost)][:MOST_TRACKED]
            found = self._run(problem, tracked)
            best = min(best, problem.within(found, self.max_entries), key=problem.skew)
            if meets(problem.skew(best), self.theta_max) or len(tracked) == min(
                len(order), MOST_TRACKED
            ):
                return best
            cost /= 2

    def _run(self, problem: Problem, tracked: NDArray[np.int64]) -> Homes:
        """Return where keys are when those tracked have been moved about."""
        homes = problem.hashed.copy()
        n, capacities = len(problem.capacities), problem.capacities
        loads = problem.loads(homes)
        limits = (1 + self.theta_max) * loads.sum() * capacities / capacities.sum()
        bins = Bins(loads, limits, capacities, np.zeros(n), np.zeros(n, np.int64))
        moved = homes[tracked]
        scratch = np.empty((2, len(tracked)), np.int64)
        readjust(problem.costs[tracked], moved, bins, scratch[0], scratch[1])
        homes[tracked] = moved
        return homes
