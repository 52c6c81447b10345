"""Simple: forget where keys are, and place them all again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.kernels.rebalance import Bins, place_all
from unskew.planners.base import Planner
from unskew.planners.items import descending
from unskew.planners.problem import Homes, Problem


@dataclass(frozen=True)
class Simple(Planner):
    """Place every key again, the costliest first, where it leaves the least load.

    A yardstick of balance: ``theta <= (1/3)(1 - 1/n)`` wherever a perfect assignment exists
    (equal capacities). It moves nearly all state, and nearly every key gets an entry. Keys without
    cost stay where they are.

    References
    ----------
    Algorithm 5 and lemma 3 of Fang et al., 2017 (see `Mixed`).
    """

    name: ClassVar[str] = "simple"

    def _homes(self, problem: Problem) -> Homes:
        n = len(problem.capacities)
        none = np.zeros(n)
        bins = Bins(problem.fixed.copy(), none, problem.capacities, none, np.zeros(n, np.int64))
        keys = np.flatnonzero(problem.costs)
        keys = keys[descending(problem.costs[keys])]
        placed = np.empty(len(keys), np.int32)
        place_all(problem.costs[keys], bins, placed)
        homes = problem.starts.copy()
        homes[keys] = placed
        return homes
