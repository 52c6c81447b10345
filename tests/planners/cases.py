"""Problems that the tests over all planners draw from, the odd ones too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.planners import PLANNERS, Plan, Planner, Proposal, Statistics
from unskew.routers.planned import TableRouter

Parameters = dict[str, Any]

KINDS = ("any", "skewed", "equal", "none", "giant")

any_key = st.integers(0, 2**64 - 1)
any_capacity = st.sampled_from([0.5, 1.0, 1.0, 2.0, 3.0])

settings_of_planners = st.fixed_dictionaries(
    {
        "theta_max": st.sampled_from([0.0, 0.05, 0.2, 1.0]),
        "max_entries": st.sampled_from([0, 1, 3, 10, 1000]),
        "beta": st.sampled_from([0.5, 1.0, 1.5, 2.0]),
    }
)


@dataclass(frozen=True)
class Case:
    """The statistics of an interval, and the plan it was routed by."""

    keys: list[int]
    costs: list[int]
    states: list[int]
    capacities: list[float]
    table: dict[int, int]
    ring: list[float]
    """The capacities that the plan knows."""
    seed: int = 0
    fallback: str = "consistent"

    @property
    def elastic(self) -> bool:
        """Whether workers came or went since the plan was made."""
        both = zip_longest(self.ring, self.capacities, fillvalue=0.0)
        return any((old > 0) != (new > 0) for old, new in both)

    @property
    def known(self) -> list[int]:
        """The keys of the statistics, then those that have an entry only."""
        return self.keys + sorted(self.table.keys() - set(self.keys))

    def statistics(self) -> Statistics:
        return Statistics(
            np.array(self.keys, np.uint64),
            np.array(self.costs, np.float64),
            np.array(self.states, np.float64),
            np.array(self.capacities, np.float64),
        )

    def empty_plan(self) -> Plan:
        return Plan.empty(self.ring, fallback=self.fallback, seed=self.seed)

    def plan(self) -> Plan:
        keys, workers = list(self.table), list(self.table.values())
        return self.empty_plan().with_entries(np.array(keys, np.uint64), workers, scheme="drawn")

    def tidy(self) -> Case:
        """Return the case without entries that say what the hash says."""
        hashed = dict(zip(self.table, routes(self.empty_plan(), list(self.table)), strict=True))
        kept = {key: home for key, home in self.table.items() if home != hashed[key]}
        return replace(self, table=kept)

    def worst(self, homes: NDArray[np.int32]) -> float:
        """Return the largest load for its capacity, with the keys at these homes."""
        return max(
            (load / capacity)
            for load, capacity in zip(self.loads(homes), self.capacities, strict=True)
            if capacity > 0
        )

    def loads(self, homes: NDArray[np.int32]) -> list[float]:
        sums = [0.0] * len(self.capacities)
        for home, cost in zip(homes.tolist(), self.costs, strict=True):
            sums[home] += cost
        return sums

    @property
    def mean(self) -> float:
        return sum(self.costs) / sum(self.capacities)

    def meets(self, homes: NDArray[np.int32], theta_max: float, tolerance: float = 1e-6) -> bool:
        return self.worst(homes) <= (1 + theta_max) * self.mean * (1 + tolerance)


def routes(plan: Plan, keys: list[int]) -> NDArray[np.int32]:
    return TableRouter.of(plan).route(np.array(keys, np.uint64))


def takes(name: str, parameter: str) -> bool:
    return parameter in [field.name for field in fields(PLANNERS[name]) if field.init]


def new_planner(name: str, given: Parameters) -> Planner:
    """Return a planner with those of the parameters that it has."""
    return PLANNERS[name](**{key: value for key, value in given.items() if takes(name, key)})


def proposed(name: str, given: Parameters, case: Case) -> Proposal:
    return new_planner(name, given).plan(case.statistics(), case.plan())


@st.composite
def costs_of(draw: st.DrawFn, n: int, n_workers: int, kinds: Sequence[str]) -> list[int]:
    """Draw the costs of n keys: any, skewed, all equal, none, or one above all others."""
    kind = draw(st.sampled_from(kinds))
    if kind == "skewed":
        return [120 // rank for rank in draw(st.permutations(range(1, n + 1)))]
    if kind in ("equal", "none"):
        return [draw(st.integers(1, 9)) if kind == "equal" else 0] * n
    costs = draw(st.lists(st.integers(0, 40), min_size=n, max_size=n))
    if kind == "giant" and n:
        costs[draw(st.integers(0, n - 1))] = sum(costs) * n_workers + 1
    return costs


@st.composite
def capacities_of(draw: st.DrawFn, n: int) -> list[float]:
    if draw(st.booleans()):
        return [1.0] * n
    return draw(st.lists(any_capacity, min_size=n, max_size=n))


@st.composite
def tables_of(draw: st.DrawFn, keys: list[int], workers: list[int]) -> dict[int, int]:
    """Draw entries: none, for some of the keys, or for all; any of them may be what h says."""
    share = draw(st.sampled_from(["none", "some", "all"]))
    if share == "none":
        return {}
    homes: list[int | None] = list(workers) if share == "all" else [None, *workers]
    drawn = draw(st.lists(st.sampled_from(homes), min_size=len(keys), max_size=len(keys)))
    return {key: home for key, home in zip(keys, drawn, strict=True) if home is not None}


@st.composite
def cases(
    draw: st.DrawFn, *, least_keys: int = 0, most_keys: int = 60, kinds: Sequence[str] = KINDS
) -> Case:
    """Draw a problem whose workers are those of the plan; some keys may have an entry only."""
    n_workers = draw(st.integers(1, 8))
    keys = draw(st.lists(any_key, unique=True, min_size=least_keys, max_size=most_keys))
    more = draw(st.lists(any_key, unique=True, max_size=5))
    costs = draw(costs_of(len(keys), n_workers, kinds))
    table = draw(tables_of([*keys, *set(more).difference(keys)], list(range(n_workers))))
    return Case(
        keys,
        costs,
        draw(st.lists(st.integers(0, 9), min_size=len(keys), max_size=len(keys))),
        draw(capacities_of(n_workers)),
        table,
        ring=draw(capacities_of(n_workers)),
        seed=draw(st.integers(0, 3)),
        fallback=draw(st.sampled_from(["consistent", "key"])),
    )


@st.composite
def elastic_cases(draw: st.DrawFn) -> Case:
    """Draw a problem of which workers have come, or left, or both."""
    case = draw(cases(most_keys=30).filter(lambda case: case.fallback == "consistent"))
    stay = draw(st.lists(st.booleans(), min_size=len(case.ring), max_size=len(case.ring)))
    kept = [capacity * alive for capacity, alive in zip(case.capacities, stay, strict=True)]
    came = draw(st.lists(any_capacity, min_size=0 if any(stay) else 1, max_size=3))
    return Case(case.keys, case.costs, case.states, kept + came, case.table, case.ring, case.seed)


@st.composite
def perfect_cases(draw: st.DrawFn) -> Case:
    """Draw a problem that some assignment solves exactly, with no key as heavy as the mean."""
    n_workers, mean = draw(st.integers(1, 6)), draw(st.integers(2, 40))
    cuts = st.sets(st.integers(1, mean - 1), min_size=1, max_size=8)
    costs: list[int] = []
    for _ in range(n_workers):
        bounds = [0, *sorted(draw(cuts)), mean]
        costs += [high - low for low, high in pairwise(bounds)]
    keys = list(range(len(costs)))
    homes = draw(st.lists(st.integers(0, n_workers - 1), min_size=len(keys), max_size=len(keys)))
    states = draw(st.lists(st.integers(0, 9), min_size=len(keys), max_size=len(keys)))
    even = [1.0] * n_workers
    return Case(keys, costs, states, even, dict(zip(keys, homes, strict=True)), ring=even)
