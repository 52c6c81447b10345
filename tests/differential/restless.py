"""A planner that moves nearly every key after every batch: the worst case for plans."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from unskew.planners import PLANNERS, Plan, Planner, Proposal, Statistics
from unskew.planners.problem import Homes, Problem


class Restless(Planner):
    """Sends every key to a random worker."""

    name: ClassVar[str] = "restless"

    def plan(self, statistics: Statistics, plan: Plan) -> Proposal:
        """Return a proposal that moves nearly every key."""
        problem = Problem.of(statistics, plan)
        return problem.proposal(self._homes(problem), self.name, 0.0)

    def _homes(self, problem: Problem) -> Homes:
        rng = np.random.default_rng(problem.old.version)
        return rng.integers(0, len(problem.capacities), len(problem.keys)).astype(np.int32)


def allow_restless() -> None:
    """Register the planner under its name, unless it is registered already."""
    PLANNERS.setdefault(Restless.name, Restless)
