"""Mixed, and Mixed by brute force: as little migration as a table of bounded size allows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.planners.heuristics import MinMig
from unskew.planners.items import Items
from unskew.planners.rebalance import Trial, Workflow
from unskew.state import whole


@dataclass(frozen=True)
class Mixed(MinMig):
    """MinMig, with so many entries moved back first that the new table is within its bound.

    It starts with none; when the table comes out too large, as many more entries as it was over
    are moved back, those with the least state first, and it tries again. Once that was needed, the
    same with the costliest keys picked first (their entries bring most) may move less, and the
    better of the two is taken.

    Parameters
    ----------
    theta_max, resolution, beta
        As of `MinMig`.
    max_entries
        The most entries of a plan: A_max. Where balance needs more, the cheapest keys go back.

    Examples
    --------
    >>> from unskew.planners import Plan, Statistics
    >>> costs = state_bytes = [6, 2, 2, 2]
    >>> statistics = Statistics([1, 2, 3, 4], costs, state_bytes, capacities=[1, 1])
    >>> proposal = Mixed().plan(statistics, Plan.empty(2))
    >>> proposal.moves.keys.tolist(), proposal.loads.tolist()
    ([4], [6.0, 6.0])

    Notes
    -----
    The paper tries n = (entries over the bound) in each round, which can go round in circles; here
    n adds up. It goes over to MinTable at last; here that is the end of the second search. A key
    that was taken off goes back to where it was if there is room after all. In the compact form
    whole vectors are moved back.

    References
    ----------
    Fang, Zhang, Fu, Zhang, Zhou and Zhu, "Parallel stream processing against workload skewness and
    variance", HPDC 2017: algorithm 4, section IV for the compact form.
    """

    max_entries: int = 3000
    name: ClassVar[str] = "mixed"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("max_entries", self.max_entries, 0)

    def _workflow(self, items: Items) -> Workflow:
        return Workflow(items, self.beta, sticky=True)

    def _search(self, workflow: Workflow, theta: float) -> Trial:
        trial = self._clean(workflow, theta)
        if trial.cleaned == 0:
            return trial
        return min(trial, self._clean(workflow.by_cost, theta), key=self._worth)

    def _clean(self, workflow: Workflow, theta: float) -> Trial:
        """Return the run with as few entries moved back as the size of the table allows."""
        back = 0
        while True:
            trial = workflow.run(back, theta)
            over = trial.entries - self.max_entries
            if over <= 0 or back >= workflow.table_keys:
                return trial
            back += over

    def _worth(self, trial: Trial) -> tuple[bool, bool, float]:
        return trial.entries > self.max_entries, not trial.fits, trial.moved


@dataclass(frozen=True)
class MixedBruteForce(Mixed):
    """Mixed with every number of entries moved back: the least migration of all of them.

    A run of the whole workflow for each entry of the table: a yardstick, too slow to use.

    Parameters
    ----------
    theta_max, resolution, beta, max_entries
        As of `Mixed`.

    References
    ----------
    Section III-C of Fang et al., 2017 (see `Mixed`).
    """

    name: ClassVar[str] = "mixed-bf"

    def _search(self, workflow: Workflow, theta: float) -> Trial:
        best: Trial | None = None
        # Between two steps of the counts the same vectors are moved back.
        for back in np.concatenate([[0], workflow.table_counts]):
            trial = workflow.run(int(back), theta)
            good = trial.fits and trial.entries <= self.max_entries
            if good and (best is None or trial.moved < best.moved):
                best = trial
        return super()._search(workflow, theta) if best is None else best
