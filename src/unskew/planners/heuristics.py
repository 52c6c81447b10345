"""LLFD, MinTable and MinMig: the workflow with one cleaning and one order of picking each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from unskew.planners.base import Planner
from unskew.planners.items import Items, Keys, Vectors
from unskew.planners.problem import Homes, Problem, meets
from unskew.planners.rebalance import Trial, Workflow
from unskew.state import whole, within

ATTEMPTS = 6
CORRECTIONS = 3


@dataclass(frozen=True)
class Heuristic(Planner):
    """A planner that cleans the table, takes keys off overloaded workers, and runs LLFD.

    Where a run falls short of theta_max, others with wider bounds follow, and the best is taken:
    first with ``(1/3)(1 - 1/n)``, at which LLFD succeeds from any start if a perfect assignment
    exists (theorem 1), then by halving.

    Parameters
    ----------
    theta_max
        As of every planner.
    resolution
        Of the compact form, a power of two: values are told apart in steps of R times the
        smallest, below that by powers of two. 0 for the original key space.
    """

    resolution: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("resolution", self.resolution, 0)
        if self.resolution.bit_count() > 1 or self.resolution > 2**20:
            raise ValueError(
                f"resolution must be 0 or a power of two up to 2^20, got {self.resolution}"
            )

    @abstractmethod
    def _search(self, workflow: Workflow, theta: float) -> Trial:
        """Return the run of the workflow for a bound on the imbalance."""

    def _workflow(self, items: Items) -> Workflow:
        """Return the workflow with its psi: the costliest first, unless said otherwise."""
        return Workflow(items)

    def _homes(self, problem: Problem) -> Homes:
        items = Vectors(problem, self.resolution) if self.resolution else Keys(problem)
        workflow = self._workflow(items)

        def attempt(theta: float) -> _Attempt:
            trial = self._search(workflow, theta)
            small = self.budget is None or trial.entries <= self.budget
            homes = problem.within(items.homes(trial.starts, trial.placed), self.budget)
            return _Attempt(homes, problem.skew(homes), trial.fits and small)

        found = best = attempt(self.theta_max)
        aim = self.theta_max
        for _ in range(CORRECTIONS if self.resolution else 0):
            if meets(best.skew, self.theta_max) or not found.fits:
                break
            # The estimate met the bound, the loads do not: aim lower by what they are above it.
            aim = max(0.0, aim - 1.5 * (found.skew - 1 - self.theta_max))
            found = attempt(aim)
            best = min(best, found, key=_skew)
        if not meets(best.skew, self.theta_max):
            best = self._widen(problem, attempt, best)
        return best.homes

    def _widen(
        self, problem: Problem, attempt: Callable[[float], _Attempt], best: _Attempt
    ) -> _Attempt:
        low, high = self.theta_max, min(best.skew, problem.skew(problem.starts)) - 1
        theta = (1 - 1 / int(np.count_nonzero(problem.capacities))) / 3
        for _ in range(ATTEMPTS):
            if not low < theta < high:
                theta = (low + high) / 2
            found = attempt(theta)
            best = min(best, found, key=_skew)
            if found.fits:
                high = min(theta, found.skew - 1)
            else:
                low = theta
            theta = (low + high) / 2
        return best


class _Attempt(NamedTuple):
    homes: Homes
    skew: float
    fits: bool


def _skew(attempt: _Attempt) -> float:
    return attempt.skew


@dataclass(frozen=True)
class LeastLoadFit(Heuristic):
    """LLFD alone: keep the table, and take the costliest keys off overloaded workers.

    A key goes, costliest first, to the least loaded worker; where it does not fit, smaller keys
    that were there make room and are placed after it (Adjust). The table may grow without bound.

    References
    ----------
    Algorithm 1 and theorem 1 of Fang et al., 2017 (see `Mixed`).
    """

    name: ClassVar[str] = "llfd"

    def _search(self, workflow: Workflow, theta: float) -> Trial:
        return workflow.run(0, theta)


@dataclass(frozen=True)
class MinTable(Heuristic):
    """Move all entries back to their hash first, then the costliest keys: the smallest table.

    Parameters
    ----------
    theta_max, resolution
        As of every heuristic.
    max_entries
        The most entries of a plan. Where balance needs more, the cheapest keys go back.

    References
    ----------
    Algorithm 2 of Fang et al., 2017 (see `Mixed`).
    """

    max_entries: int = 3000
    name: ClassVar[str] = "min-table"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("max_entries", self.max_entries, 0)

    def _search(self, workflow: Workflow, theta: float) -> Trial:
        return workflow.run(workflow.table_keys, theta)


@dataclass(frozen=True)
class MinMig(Heuristic):
    """Keep the table, and move what brings most for its state: the index gamma = c^beta / S.

    The table may grow without bound: after many intervals a key is as likely anywhere, so that
    ``(n - 1) / n`` of the keys have an entry.

    Parameters
    ----------
    theta_max, resolution
        As of every heuristic.
    beta
        How much cost weighs against state; from 1.5 on nearly only cost does.

    References
    ----------
    Algorithm 3 of Fang et al., 2017 (see `Mixed`).
    """

    beta: float = 1.5
    name: ClassVar[str] = "min-mig"

    def __post_init__(self) -> None:
        super().__post_init__()
        within("beta", self.beta, 0.0, 100.0)

    def _workflow(self, items: Items) -> Workflow:
        return Workflow(items, self.beta)

    def _search(self, workflow: Workflow, theta: float) -> Trial:
        return workflow.run(0, theta)
