"""From measured shares to a plan: which keys are hot, and on which workers they should be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.murmur import homes
from unskew.plan import Plan
from unskew.planners import Mixed, Planner, Statistics
from unskew.routers import Scheme
from unskew.spark.control.observed import SAMPLE
from unskew.spark.plans.split_plan import SplitPlan
from unskew.waterline import Demand, Pairs
from unskew.waterline import plan as plan_pairs

SAMPLED_RECORDS = 50_000
SWEEPS = 3
PARTS = 4
"""How finely a hot key is divided: into this many parts for each of its workers."""
MOST_PARTS = 16
"""The same, where a key is divided no more finely than the balance needs."""
FEW = 2
"""Tail keys have up to two choices in most schemes; in a plan they go by Spark's hash."""


@dataclass(frozen=True, eq=False)
class KeyFrequencies:
    """What was measured: frequent keys with their records, all records, and those of each home.

    The home of a key is the worker that it has by Spark's hash, whatever a plan says.
    """

    keys: Keys
    counts: NDArray[np.float64]
    records: float
    homes: NDArray[np.float64]

    def of(self, chosen: NDArray[np.bool_]) -> KeyFrequencies:
        """Return the same for some of the keys."""
        return replace(self, keys=self.keys[chosen], counts=self.counts[chosen])


class Strategy(Protocol):
    """What makes plans."""

    def plan(self, measured: KeyFrequencies, plan: SplitPlan) -> SplitPlan:
        """Return the next plan; the same one if nothing should change."""
        ...


@dataclass(frozen=True)
class PlannerStrategy:
    """Lets a planner decide: each key stays whole, and what cannot be told apart stays put."""

    planner: Planner
    n_workers: int
    capacities: Sequence[float] | None = None

    def plan(self, measured: KeyFrequencies, plan: SplitPlan) -> SplitPlan:
        """Return the planner's plan, by records as cost and as state."""
        found = self.table(measured, plan, rest_of(measured))
        made = SplitPlan(
            self.n_workers, found.keys, found.workers, plan.version + 1, self.planner.name
        )
        return plan if made.same_pairs(plan) else made

    def table(self, measured: KeyFrequencies, plan: SplitPlan, fixed: NDArray[np.float64]) -> Plan:
        """Return where keys should be, given what each worker has to do besides."""
        old = Plan((1.0,) * self.n_workers, *plan.whole(), fallback="spark")
        speeds = np.ones(self.n_workers) if self.capacities is None else self.capacities
        statistics = Statistics(
            measured.keys, measured.counts, measured.counts, np.array(speeds, np.float64), fixed
        )
        return self.planner.plan(statistics, old).plan


@dataclass(frozen=True)
class RouterStrategy:
    """Lets a router decide: it sees a sample with the measured shares, and is asked for candidates.

    So the same object decides as in online routing. Keys with more than two candidates are hot. Of
    the others, those that are frequent enough to be measured are placed whole, by a planner; the
    rest go by Spark's hash. Hot keys then fill up the workers, in turn, each over its own
    candidates to one level: what a router does by looking at loads, the plan does by shares.

    Parameters
    ----------
    scheme
        The router.
    n_workers
        Shuffle partitions.
    tolerance
        A plan that is expected to keep the largest load within this of the mean is left alone.
    tail
        Places the keys that are not hot.
    """

    scheme: Scheme
    n_workers: int
    tolerance: float = 0.05
    tail: Planner = field(default_factory=lambda: Mixed(theta_max=0.02))

    def plan(self, measured: KeyFrequencies, plan: SplitPlan) -> SplitPlan:
        """Return the plan for the keys that are hot now."""
        loads = expected_loads(measured, plan)
        if loads.max() <= (1 + self.tolerance) * loads.mean():
            return plan
        router = self.scheme.router(self.n_workers, **self.scheme.given)
        router.route(sample(measured))
        choices = [router.candidates(int(key)) for key in measured.keys]
        hot = np.array([len(w) > FEW or len(w) == self.n_workers for w in choices], np.bool_)
        counts = measured.counts
        spread = rest_of(measured)
        for i in np.flatnonzero(hot):
            spread[choices[i]] += counts[i] / len(choices[i])
        planner = PlannerStrategy(self.tail, self.n_workers)
        whole = planner.table(measured.of(~hot), plan.without(measured.keys[hot]), spread)
        pairs = SplitPlan(self.n_workers, whole.keys, whole.workers)
        loads = expected_loads(measured.of(~hot), pairs, spread)
        for i in [*np.flatnonzero(hot)[::-1]] * SWEEPS:
            loads -= np.bincount(choices[i], minlength=self.n_workers) * counts[i] / len(choices[i])
            choices[i] = fill(loads, router.candidates(int(measured.keys[i])), counts[i])
        rows = list(zip(whole.keys.tolist(), whole.workers.tolist(), strict=True))
        for i in np.flatnonzero(hot):
            rows += [(int(measured.keys[i]), int(worker)) for worker in choices[i]]
        made = SplitPlan.of(self.n_workers, rows, plan.version + 1, str(self.scheme))
        return plan if made.same_pairs(plan) else made


@dataclass(frozen=True)
class WaterlineStrategy:
    """Fills workers up to one level and splits keys only at its edges, see `unskew.waterline`.

    The plan in force stays as long as the largest expected load is within the tolerance and the
    noise of what was measured. When it changes, keys stay where they are but for those that have
    to give way. Keys that are no longer measured go home.

    Parameters
    ----------
    n_workers
        Shuffle partitions.
    capacities
        Of the workers, relative to each other; all 1 if not given.
    tolerance
        How far above the level a load may be that is known exactly.
    deviations
        How many standard deviations of a measured load are taken for noise.
    sampled
        The part of the records that was looked at.
    pair_cost
        What a worker has to do for a key, however few of its records it gets, in records.
    """

    n_workers: int
    capacities: Sequence[float] | None = None
    tolerance: float = 0.02
    deviations: float = 4.0
    sampled: float = SAMPLE
    pair_cost: float = 0.0

    def plan(self, measured: KeyFrequencies, plan: SplitPlan) -> SplitPlan:
        """Return the plan for the shares that keys have now."""
        speeds = np.ones(self.n_workers) if self.capacities is None else self.capacities
        at_home = homes(measured.keys, self.n_workers).astype(np.int64)
        rest, q = rest_of(measured), np.array(speeds, np.float64)
        demand = Demand(measured.counts, at_home, rest, q, self.pair_cost)
        current = pairs_of(plan, measured.keys, demand)
        tolerance = self.tolerance + self.deviations * self._noise(measured, q)
        found = plan_pairs(demand, current, tolerance=tolerance)
        if found is current:
            return plan
        keys, workers = rounded(found, demand, self.tolerance / 4 * demand.level())
        made = SplitPlan.of(
            self.n_workers,
            list(zip(measured.keys[keys].tolist(), workers.tolist(), strict=True)),
            plan.version + 1,
            "waterline",
        )
        return plan if made.same_pairs(plan) else made

    def _noise(self, measured: KeyFrequencies, capacities: NDArray[np.float64]) -> float:
        """Return the standard deviation of the smallest fair load, relative to that."""
        least = capacities.min() / capacities.sum() * measured.records * self.sampled
        return 1.0 / float(np.sqrt(max(least, 1.0)))


def pairs_of(plan: SplitPlan, keys: Keys, demand: Demand) -> Pairs:
    """Return the pairs that a plan has for some keys, numbered as these are."""
    order = np.argsort(keys)
    at = np.searchsorted(keys[order], plan.keys)
    known = at < len(keys)
    known[known] = keys[order][at[known]] == plan.keys[known]
    numbers = order[at[known]]
    return Pairs.of(demand, numbers, plan.workers[known].astype(np.int64), np.ones(len(numbers)))


def rounded(
    pairs: Pairs, demand: Demand, precision: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the keys and workers of pairs, each as often as its part; none for keys at home.

    A key is divided into the fewest parts with which no pair is off by more than the precision, or
    else into those with which the pair that is off most is so least.

    Examples
    --------
    >>> demand = Demand(np.array([9.0, 1.0]), np.array([0, 0]), np.zeros(2), np.ones(2))
    >>> pairs = Pairs(np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([6.1, 2.9, 1.0]))
    >>> rounded(pairs, demand, precision=0.2)
    (array([0, 0, 0]), array([0, 0, 1]))
    """
    keys, first, counts = np.unique(pairs.keys, return_index=True, return_counts=True)
    times = np.repeat(counts > 1, counts) | (pairs.workers != demand.homes[pairs.keys])
    parts = times.astype(np.int64)
    for at in np.flatnonzero(counts > 1):
        part = slice(first[at], first[at] + counts[at])
        wanted = pairs.amounts[part] / demand.amounts[keys[at]]
        sizes = np.arange(counts[at], MOST_PARTS * counts[at] + 1)
        whole = np.maximum(1, np.rint(sizes[:, None] * wanted))
        off = np.abs(whole / whole.sum(axis=1, keepdims=True) - wanted).max(axis=1)
        good = off * demand.amounts[keys[at]] <= precision
        parts[part] = whole[int(np.argmax(good) if good.any() else np.argmin(off))]
    return np.repeat(pairs.keys, parts), np.repeat(pairs.workers, parts)


def fill(
    loads: NDArray[np.float64], workers: NDArray[np.int32], amount: float
) -> NDArray[np.int32]:
    """Pour an amount over workers so that they come to one level; return each as often as its part.

    The loads are raised accordingly.

    Examples
    --------
    >>> loads = np.array([1.0, 3.0, 9.0])
    >>> fill(loads, np.arange(3, dtype=np.int32), 4.0).tolist(), loads.tolist()
    ([0, 0, 0, 1], [4.0, 4.0, 9.0])
    """
    ascending = np.sort(loads[workers])
    # The level at which the lowest k take it all, for each k; the first that leaves none below.
    levels = (amount + np.cumsum(ascending)) / np.arange(1, len(workers) + 1)
    covered = np.append(ascending[1:], np.inf) >= levels
    level = levels[int(np.argmax(covered))]
    parts = np.maximum(0.0, level - loads[workers])
    wanted = parts / parts.sum() * PARTS * len(workers)
    times = np.rint(wanted).astype(np.int64)
    if not times.any():
        times[int(np.argmax(parts))] = 1
    divisor = np.gcd.reduce(times)
    chosen = np.repeat(workers, times // divisor)
    loads[:] += np.bincount(chosen, minlength=len(loads)) * (amount / len(chosen))
    return chosen


def expected_loads(
    measured: KeyFrequencies, plan: SplitPlan, rest: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the records that each worker would have under a plan, by what was measured."""
    loads = (rest_of(measured) if rest is None else rest).copy()
    first = np.searchsorted(plan.keys, measured.keys)
    last = np.searchsorted(plan.keys, measured.keys, side="right")
    at_home = homes(measured.keys, plan.n_workers)
    for count, home, low, high in zip(measured.counts, at_home, first, last, strict=True):
        workers = plan.workers[low:high] if low < high else np.array([home])
        np.add.at(loads, workers, count / len(workers))
    return loads


def sample(measured: KeyFrequencies, seed: int = 0) -> Keys:
    """Return records with the measured shares, the rest of them all different."""
    counts = np.rint(measured.counts * SAMPLED_RECORDS / max(measured.records, 1)).astype(np.int64)
    rng = np.random.default_rng(seed)
    rest = rng.integers(0, 2**64, max(0, SAMPLED_RECORDS - int(counts.sum())), np.uint64)
    return rng.permutation(np.concatenate([np.repeat(measured.keys, counts), rest]))


def rest_of(measured: KeyFrequencies) -> NDArray[np.float64]:
    """Return the records that each worker has by Spark's hash, without those of measured keys."""
    n_workers = len(measured.homes)
    known = np.bincount(homes(measured.keys, n_workers), measured.counts, minlength=n_workers)
    return np.maximum(0.0, measured.homes - known)
