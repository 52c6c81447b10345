"""The workflow that all heuristics of the paper share: clean, prepare, assign (LLFD).

Symbols: c cost, S state, h hash, F present home, theta imbalance, A table; psi is the order in
which keys are picked, eta that in which entries are moved back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unskew.kernels import rebalance as kernels
from unskew.planners.items import Items, descending
from unskew.planners.problem import Homes
from unskew.planners.statistics import Floats


def migration_priority(costs: Floats, states: Floats, beta: float) -> Floats:
    """Return the index gamma = c^beta / S: what a key brings for the state that it takes along.

    Examples
    --------
    >>> migration_priority(np.array([7.0, 4.0]), np.array([7.0, 4.0]), beta=1.0).tolist()
    [1.0, 1.0]
    """
    # A key without state moves for nothing.
    gamma = np.full(len(costs), np.inf)
    np.divide(costs**beta, states, out=gamma, where=states > 0)
    return np.where(costs > 0, gamma, 0.0)


@dataclass(frozen=True, eq=False)
class Trial:
    """What one run of the workflow gives: its placements, the table's size, the state moved."""

    cleaned: int
    starts: Homes
    placed: kernels.Placed
    entries: int
    moved: float

    @property
    def fits(self) -> bool:
        """Whether every worker is within its limit, by the costs that the run knew."""
        return int(self.placed.size[1]) == 0


@dataclass(eq=False)
class Workflow:
    """Runs of the workflow over the same items.

    Parameters
    ----------
    items
        By descending cost.
    beta
        Keys are picked by the index gamma with this beta; by cost alone if None.
    sticky
        Whether a key that was taken off goes back to where it was if there is room after all.
    """

    items: Items
    beta: float | None = None
    sticky: bool = False
    psi: NDArray[np.int32] = field(init=False)
    eta: NDArray[np.int64] = field(init=False)
    """Items with entries, those with the least state first, of equals those with the least cost."""
    table_counts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        items = self.items
        self.psi = np.arange(len(items.costs), dtype=np.int32)
        if self.beta is not None:
            gamma = migration_priority(items.costs, items.states, self.beta)
            self.psi = descending(gamma).astype(np.int32)
        listed = np.flatnonzero(items.starts != items.hashed)
        self.eta = listed[np.lexsort((items.costs[listed], items.states[listed]))]
        self.table_counts = np.cumsum(items.counts[self.eta])

    @cached_property
    def by_cost(self) -> Workflow:
        """The same, with keys picked by cost alone."""
        return Workflow(self.items, None, self.sticky)

    @property
    def table_keys(self) -> int:
        """How many keys have an entry."""
        return int(self.table_counts[-1]) if len(self.table_counts) else 0

    def run(self, clean: int, theta: float) -> Trial:
        """Return what the three phases do, with at least ``clean`` entries moved back first."""
        items, starts = self.items, self.items.starts.copy()
        back = self.eta[: np.searchsorted(self.table_counts, clean) + 1 if clean else 0]
        starts[back] = items.hashed[back]
        liked = items.origins if self.sticky else np.full_like(starts, -1)
        moving = kernels.Items(items.costs, starts, items.counts, liked)
        bins = self._bins(theta)
        order = kernels.Order(np.empty_like(self.psi), np.empty(len(bins.load) + 1, np.int64))
        kernels.order_by_worker(self.psi, starts, order)
        staying, waiting = np.empty((2, len(starts)), np.int64)
        kernels.disassociate(moving, order, bins, staying, waiting)
        keys = int(items.counts.sum())
        to_item, to_worker = np.empty((2, keys), np.int32)
        placed = kernels.Placed(to_item, to_worker, np.empty(keys, np.int64), np.zeros(2, np.int64))
        kernels.place_decreasing(moving, order, bins, staying, waiting, placed)
        return self._trial(clean, starts, staying, placed)

    def _bins(self, theta: float) -> kernels.Bins:
        problem = self.items.problem
        capacities, load = problem.capacities, problem.fixed.copy()
        whole = (self.items.costs * self.items.counts).sum() + load.sum()
        limits = (1 + theta) * whole * capacities / capacities.sum()
        seen = np.zeros(len(limits), np.int64)
        return kernels.Bins(load, limits, capacities, np.zeros(len(limits)), seen)

    def _trial(
        self, clean: int, starts: Homes, staying: NDArray[np.int64], placed: kernels.Placed
    ) -> Trial:
        items, rows = self.items, int(placed.size[0])
        item, worker, count = placed.item[:rows], placed.worker[:rows], placed.keys[:rows]
        entries = staying[starts != items.hashed].sum() + count[worker != items.hashed[item]].sum()
        moved = (staying * items.states)[starts != items.origins].sum()
        moved += (count * items.states[item])[worker != items.origins[item]].sum()
        return Trial(clean, starts, placed, int(entries), float(moved))
