"""A planner that moves all it knows, after every batch: the worst that can happen to states."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from unskew.planners import PLANNERS, Plan, Planner, Proposal, Statistics
from unskew.planners.problem import Homes, Problem


class Restless(Planner):
    """Sends every key somewhere, by chance."""

    name: ClassVar[str] = "restless"

    def plan(self, statistics: Statistics, plan: Plan) -> Proposal:
        """Propose to move nearly everything."""
        problem = Problem.of(statistics, plan)
        return problem.proposal(self._homes(problem), self.name, 0.0)

    def _homes(self, problem: Problem) -> Homes:
        rng = np.random.default_rng(problem.old.version)
        return rng.integers(0, len(problem.capacities), len(problem.keys)).astype(np.int32)


PLANNERS["restless"] = Restless
