"""What every periodic scheme is: a planner, which proposes a plan from an interval's statistics.

Laws, each with a test of the same name: *pure* (same statistics and plan, same proposal; nothing is
changed), *no key lost or doubled*, *within its budgets* (``max_entries`` where it has one), *never
worse than doing nothing*, *quiet when balanced*. Where no plan meets the bound on the imbalance,
the best one found is proposed, and the proposal says that it falls short.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from unskew.plan import Plan
from unskew.planners.problem import Homes, Problem, Proposal, meets
from unskew.planners.statistics import Statistics
from unskew.state import within

WORTH = 0.1
"""A plan that falls short must gain this part of theta_max, or nothing moves."""


@dataclass(frozen=True)
class Planner(ABC):
    """A scheme that plans between intervals; keys stay whole.

    Parameters
    ----------
    theta_max
        Bound on the imbalance: no worker should have more than ``1 + theta_max`` times its fair
        share of the load.
    """

    theta_max: float = 0.08
    name: ClassVar[str]

    def __post_init__(self) -> None:
        within("theta_max", self.theta_max, 0.0, 1e6)

    @property
    def budget(self) -> int | None:
        """The most entries of a plan; None where the scheme does not limit them."""
        most: int | None = getattr(self, "max_entries", None)
        return most

    def plan(self, statistics: Statistics, plan: Plan) -> Proposal:
        """Propose what to do after an interval with these statistics, under this plan."""
        problem = Problem.of(statistics, plan)
        homes, skew = problem.starts, problem.skew(problem.starts)
        tidy = self.budget is None or len(problem.plan.keys) <= self.budget
        if not (tidy and meets(skew, self.theta_max)):
            found = problem.within(self._homes(problem), self.budget)
            reached = problem.skew(found)
            enough = meets(reached, self.theta_max) or skew - reached > WORTH * self.theta_max
            if not tidy or (reached < skew and enough):
                homes = found
        return problem.proposal(homes, self.name, self.theta_max)

    @abstractmethod
    def _homes(self, problem: Problem) -> Homes:
        """Return a worker for every key."""
