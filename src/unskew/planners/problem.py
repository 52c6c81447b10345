"""A planning problem: where every key is, where its hash would put it, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels.rebalance import add_costs
from unskew.plan import Plan
from unskew.planners.statistics import Floats, Statistics
from unskew.routers.planned import TableRouter

Homes = NDArray[np.int32]
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Moves:
    """Keys that change place, from where to where, and the state that goes with each."""

    keys: Keys
    origins: Homes
    destinations: Homes
    state_bytes: Floats

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, eq=False)
class Proposal:
    """A new plan, what would have to move for it, and what it promises.

    Attributes
    ----------
    plan
        The new plan; the old one if nothing should change.
    moves
        Keys to move, with their state.
    loads
        The cost on each worker under the new plan, by the interval's statistics.
    max_over_mean
        The largest load over the mean one, each load relative to its worker's capacity.
    moved_fraction
        Of all state, that which moves.
    falls_short
        Empty if the plan meets its bound on the imbalance, else by how much it does not.
    """

    plan: Plan
    moves: Moves
    loads: Floats
    max_over_mean: float
    moved_fraction: float
    falls_short: str


@dataclass(frozen=True, eq=False)
class Problem:
    """The keys of the statistics and of the table together.

    ``origins`` is where they are, ``hashed`` where they belong without the table, and ``starts``
    where they are once workers that left are gone and new ones are on the ring: F, h, F again.
    """

    keys: Keys
    costs: Floats
    states: Floats
    origins: Homes
    hashed: Homes
    starts: Homes
    capacities: Floats
    fixed: Floats
    old: Plan
    plan: Plan

    @classmethod
    def of(cls, statistics: Statistics, plan: Plan) -> Problem:
        """Return the problem that statistics pose to a plan."""
        capacities = np.zeros(max(len(statistics.capacities), plan.n_workers))
        capacities[: len(statistics.capacities)] = statistics.capacities
        fixed = np.zeros(len(capacities))
        fixed[: len(statistics.capacities)] = statistics.fixed
        old, before = plan, TableRouter.of(plan)
        entries = before.table.find(statistics.keys)
        seen = np.zeros(len(plan.keys) + 1, np.bool_)
        seen[entries] = True  # -1, a key without an entry, is the last one
        unseen = np.flatnonzero(~seen[:-1]).astype(np.int32)
        none = np.zeros(len(unseen))
        keys = _joined(statistics.keys, plan.keys[unseen])
        entries = _joined(entries, unseen)
        hashed = before.hash(keys)
        listed = np.flatnonzero(entries >= 0)
        starts = origins = hashed.copy()
        origins[listed] = plan.workers[entries[listed]]
        if len(capacities) != plan.n_workers or ((capacities > 0) != plan.active).any():
            plan = plan.with_workers(capacities.tolist())
            hashed = TableRouter.of(plan).hash(keys)
            stay = (entries >= 0) & (capacities[origins] > 0)
            starts = np.where(stay, origins, hashed)
        return cls(
            keys,
            _joined(statistics.costs, none),
            _joined(statistics.state_bytes, none),
            origins,
            hashed,
            starts,
            capacities,
            fixed,
            old,
            plan,
        )

    def loads(self, homes: Homes) -> Floats:
        """Return the cost on each worker."""
        loads = self.fixed.copy()
        add_costs(homes, self.costs, loads)
        return loads

    def skew(self, homes: Homes) -> float:
        """Return the largest load over the mean, relative to the capacities; 1 without load."""
        loads, active = self.loads(homes), self.capacities > 0
        if not loads.any():
            return 1.0
        fair = loads.sum() * self.capacities[active] / self.capacities.sum()
        return float((loads[active] / fair).max())

    def entries(self, homes: Homes) -> int:
        """Return how many keys are not where their hash says."""
        return int(np.count_nonzero(homes != self.hashed))

    def moved(self, homes: Homes) -> float:
        """Return the state that has to move."""
        return float(self.states[homes != self.origins].sum())

    def within(self, homes: Homes, most: int | None) -> Homes:
        """Return homes with at most so many entries: the cheapest keys go back to their hash."""
        over = 0 if most is None else self.entries(homes) - most
        if over <= 0:
            return homes
        table = np.flatnonzero(homes != self.hashed)
        back = table[np.argsort(self.costs[table], kind="stable")[:over]]
        homes = homes.copy()
        homes[back] = self.hashed[back]
        return homes

    def proposal(self, homes: Homes, scheme: str, theta: float) -> Proposal:
        """Return the plan that puts every key at its home; no new one for ``starts`` itself."""
        plan, moved = self.plan, homes != self.origins
        if homes is not self.starts:
            table = homes != self.hashed
            plan = plan.with_entries(self.keys[table], homes[table], scheme=scheme)
            plan = replace(plan, version=self.old.version + 1)
        skew, whole = self.skew(homes), self.states.sum()
        return Proposal(
            plan,
            Moves(self.keys[moved], self.origins[moved], homes[moved], self.states[moved]),
            self.loads(homes),
            skew,
            float(self.states[moved].sum() / whole) if whole > 0 else 0.0,
            ""
            if meets(skew, theta)
            else f"max/mean {skew:.4g} where {1 + theta:.4g} was asked for",
        )


def meets(skew: float, theta: float) -> bool:
    """Say whether no worker is above its limit."""
    return skew <= (1 + theta) * (1 + ROUNDING)


def _joined(left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate([left, right]) if len(right) else left
