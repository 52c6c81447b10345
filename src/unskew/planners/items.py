"""Keys as the rebalancing sees them: each for itself, or many as one vector (compact form)."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.compact import (
    Scale,
    discretise,
    extent,
    represent,
    spread,
    vector_codes,
)
from unskew.kernels.rebalance import Placed
from unskew.planners.problem import Homes, Problem
from unskew.planners.statistics import Floats
from unskew.sketches.exact import KeyIndex

MOST_UNITS = 2.0**20


def descending(values: Floats) -> NDArray[np.int64]:
    """Return the order by descending value; of equals the first first."""
    return np.argsort(-values, kind="stable")


class Items(ABC):
    """What a planner moves about: keys, or groups of them that it need not tell apart.

    They come by descending cost.

    Attributes
    ----------
    costs, states, counts
        Of each key of an item, and how many keys it has: v_c, v_S, #.
    origins, hashed, starts
        Workers, as of a `Problem`: d, d^h, and d after workers came or went.
    """

    problem: Problem
    costs: Floats
    states: Floats
    counts: NDArray[np.int64]
    origins: Homes
    hashed: Homes
    starts: Homes

    @abstractmethod
    def homes(self, starts: Homes, placed: Placed) -> Homes:
        """Return the home of every key of the problem, given where items start and are put."""


class Keys(Items):
    """The original key space: an item for each key that costs something or has an entry."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        chosen = np.flatnonzero((problem.costs > 0) | (problem.starts != problem.hashed))
        self.chosen = chosen[descending(problem.costs[chosen])]
        self.costs = problem.costs[self.chosen]
        self.states = problem.states[self.chosen]
        self.counts = np.ones(len(self.chosen), np.int64)
        self.origins = problem.origins[self.chosen]
        self.hashed = problem.hashed[self.chosen]
        self.starts = problem.starts[self.chosen]

    def homes(self, starts: Homes, placed: Placed) -> Homes:
        """Put each placed key where it was placed, the others where they start."""
        homes = self.problem.starts.copy()
        homes[self.chosen] = starts
        rows = int(placed.size[0])
        homes[self.chosen[placed.item[:rows]]] = placed.worker[:rows]
        return homes


class Vectors(Items):
    """The compact form: keys on the same worker, with the same hash and about the same values.

    A vector of the paper is (d', d, d^h, v_c, v_S, #); d' is what the rebalancing writes. Costs
    and state are represented by half-linear-half-exponential values of the given resolution.
    """

    def __init__(self, problem: Problem, resolution: int) -> None:
        self.problem = problem
        r = resolution.bit_length() - 1
        cost_levels, costs = self._discretise(problem.costs, r)
        state_levels, states = self._discretise(problem.states, r)
        n_workers, n_levels = len(problem.capacities), (costs.top + 1, states.top + 1)
        codes = np.empty(len(problem.keys), np.uint64)
        vector_codes(
            problem.starts, problem.hashed, cost_levels, state_levels, n_workers, n_levels, codes
        )
        index = KeyIndex()
        found = index.number(codes)
        code, state_level = np.divmod(index.keys(), np.uint64(n_levels[1]))
        code, cost_level = np.divmod(code, np.uint64(n_levels[0]))
        order = descending(cost_level.astype(np.float64))
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        self.vectors = rank[found]
        starts, hashed = np.divmod(code[order], np.uint64(n_workers))
        self.starts, self.hashed = starts.astype(np.int32), hashed.astype(np.int32)
        self.origins = self.starts
        self.counts = np.bincount(self.vectors, minlength=len(order))
        self.costs, self.states = np.empty((2, len(order)))
        represent(cost_level[order].astype(np.int64), costs, self.costs)
        represent(state_level[order].astype(np.int64), states, self.states)

    def homes(self, starts: Homes, placed: Placed) -> Homes:
        """Give the keys of a vector, as they come, to the workers that its placements name."""
        rows = int(placed.size[0])
        order = np.argsort(placed.item[:rows], kind="stable")
        end = np.cumsum(np.bincount(placed.item[:rows], minlength=len(self.counts)))
        start = np.concatenate([[0], end[:-1]]) if len(end) else end
        homes = np.empty(len(self.vectors), np.int32)
        spread(self.vectors, start, end, placed.worker[order], placed.keys[order], starts, homes)
        return homes

    def _discretise(self, values: Floats, r: int) -> tuple[NDArray[np.int32], Scale]:
        """Return the level of each value, and what the levels mean."""
        least, most = extent(values)
        unit = max(least, most / MOST_UNITS) if most > 0 else 1.0
        scale = Scale(unit, r, r + (int(most / unit) >> r))
        levels, order = np.empty((2, len(values)), np.int32)
        deviations = np.empty(len(self.problem.capacities))
        first = np.empty(r + 3, np.int64)
        discretise(values, scale, self.problem.starts, deviations, first, order, levels)
        return levels, scale
