"""Strategies, which turn measured key frequencies into plans: hot keys and their workers."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels.jit import uncompiled
from unskew.murmur import homes
from unskew.plan import Plan
from unskew.planners import Mixed, Planner, Proposal, Statistics
from unskew.routers import Scheme
from unskew.spark.plans.split_plan import SplitPlan

SAMPLED_RECORDS = 50_000
SWEEPS = 3
PARTS_PER_WORKER = 4
"""Parts into which a hot key is divided, for each of its workers."""
FEW_KEYS = 2000
"""Up to this many keys a planner takes less time as plain Python than the compiler does."""
TAIL_CHOICES = 2
"""Tail keys have up to this many candidates in most schemes; a plan does not split them."""


@dataclass(frozen=True, eq=False)
class KeyFrequencies:
    """Measured frequencies: frequent keys with their records, all records, and those by home.

    The home of a key is the worker that Spark's hash gives it, whatever a plan says.
    """

    keys: Keys
    counts: NDArray[np.float64]
    records: float
    home_loads: NDArray[np.float64]

    def select(self, mask: NDArray[np.bool_]) -> KeyFrequencies:
        """Return the frequencies of some of the keys."""
        return replace(self, keys=self.keys[mask], counts=self.counts[mask])


class Strategy(Protocol):
    """Makes plans from measured frequencies."""

    def plan(self, measured: KeyFrequencies, plan: SplitPlan) -> SplitPlan:
        """Return the next plan; the same one if nothing should change."""
        ...


@dataclass(frozen=True)
class PlannerStrategy:
    """A strategy by a planner: keys stay whole, and keys that were not measured stay at home."""

    planner: Planner
    n_workers: int
    capacities: Sequence[float] | None = None

    def plan(self, measured: KeyFrequencies, plan: SplitPlan) -> SplitPlan:
        """Return the planner's plan, with records as the cost and as the state of a key."""
        table = self.table(measured, plan, rest_of(measured))
        new_plan = SplitPlan(
            self.n_workers, table.keys, table.workers, plan.version + 1, self.planner.name
        )
        return plan if new_plan.same_pairs(plan) else new_plan

    def table(self, measured: KeyFrequencies, plan: SplitPlan, fixed: NDArray[np.float64]) -> Plan:
        """Return the workers of keys, given the fixed load of each worker."""
        old = Plan((1.0,) * self.n_workers, *plan.whole(), fallback="spark")
        speeds = np.ones(self.n_workers) if self.capacities is None else self.capacities
        statistics = Statistics(
            measured.keys, measured.counts, measured.counts, np.array(speeds, np.float64), fixed
        )
        return propose(self.planner, statistics, old).plan


@dataclass(frozen=True)
class RouterStrategy:
    """A strategy by a router, which routes a sample with the measured shares.

    So the same code decides as in online routing. Keys for which the router then has more than two
    candidates are hot. The other measured keys are placed whole, by a planner; the rest go by
    Spark's hash. Then the records of the hot keys, one key after the other, fill the candidates of
    each key up to one level: the plan balances by shares, as a router does by loads.

    Parameters
    ----------
    scheme
        The router and its parameters.
    n_workers
        Shuffle partitions.
    tolerance
        A plan is kept if it is expected to keep the largest load within this of the mean.
    tail
        The planner that places keys that are not hot.
    """

    scheme: Scheme
    n_workers: int
    tolerance: float = 0.05
    tail: Planner = field(default_factory=lambda: Mixed(theta_max=0.02))

    @uncompiled()  # compiling would take longer than routing the sample
    def plan(self, measured: KeyFrequencies, plan: SplitPlan) -> SplitPlan:
        """Return the plan for the keys that are hot now."""
        loads = expected_loads(measured, plan)
        if loads.max() <= (1 + self.tolerance) * loads.mean():
            return plan
        router = self.scheme.router(self.n_workers, **self.scheme.given)
        router.route(sample(measured))
        choices = [router.candidates(int(key)) for key in measured.keys]
        hot = np.array(
            [len(w) > TAIL_CHOICES or len(w) == self.n_workers for w in choices], np.bool_
        )
        counts = measured.counts
        spread = rest_of(measured)
        for i in np.flatnonzero(hot):
            spread[choices[i]] += counts[i] / len(choices[i])
        planner = PlannerStrategy(self.tail, self.n_workers)
        whole = planner.table(measured.select(~hot), plan.without(measured.keys[hot]), spread)
        pairs = SplitPlan(self.n_workers, whole.keys, whole.workers)
        loads = expected_loads(measured.select(~hot), pairs, spread)
        for i in [*np.flatnonzero(hot)[::-1]] * SWEEPS:
            loads -= np.bincount(choices[i], minlength=self.n_workers) * counts[i] / len(choices[i])
            choices[i] = fill(loads, router.candidates(int(measured.keys[i])), counts[i])
        rows = list(zip(whole.keys.tolist(), whole.workers.tolist(), strict=True))
        for i in np.flatnonzero(hot):
            rows += [(int(measured.keys[i]), int(worker)) for worker in choices[i]]
        new_plan = SplitPlan.of(self.n_workers, rows, plan.version + 1, str(self.scheme))
        return plan if new_plan.same_pairs(plan) else new_plan


def propose(planner: Planner, statistics: Statistics, plan: Plan) -> Proposal:
    """Return the proposal of a planner; for few keys it does not wait for a compiler."""
    with uncompiled() if len(statistics.keys) <= FEW_KEYS else nullcontext():
        return planner.plan(statistics, plan)


def fill(
    loads: NDArray[np.float64], workers: NDArray[np.int32], amount: float
) -> NDArray[np.int32]:
    """Divide an amount over workers so that they come to one level, and add it to the loads.

    Returns each worker as many times as it gets parts of the amount.

    Examples
    --------
    >>> loads = np.array([1.0, 3.0, 9.0])
    >>> fill(loads, np.arange(3, dtype=np.int32), 4.0).tolist(), loads.tolist()
    ([0, 0, 0, 1], [4.0, 4.0, 9.0])
    """
    ascending = np.sort(loads[workers])
    # The level if the k lowest workers take it all, for each k; the first that no other is below.
    levels = (amount + np.cumsum(ascending)) / np.arange(1, len(workers) + 1)
    covered = np.append(ascending[1:], np.inf) >= levels
    level = levels[int(np.argmax(covered))]
    parts = np.maximum(0.0, level - loads[workers])
    exact = parts / parts.sum() * PARTS_PER_WORKER * len(workers)
    times = np.rint(exact).astype(np.int64)
    if not times.any():
        times[int(np.argmax(parts))] = 1
    divisor = np.gcd.reduce(times)
    chosen = np.repeat(workers, times // divisor)
    loads[:] += np.bincount(chosen, minlength=len(loads)) * (amount / len(chosen))
    return chosen


def expected_loads(
    measured: KeyFrequencies, plan: SplitPlan, rest: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return the records that each worker would get under a plan, by the measured frequencies."""
    loads = (rest_of(measured) if rest is None else rest).copy()
    first = np.searchsorted(plan.keys, measured.keys)
    last = np.searchsorted(plan.keys, measured.keys, side="right")
    at_home = homes(measured.keys, plan.n_workers)
    for count, home, low, high in zip(measured.counts, at_home, first, last, strict=True):
        workers = plan.workers[low:high] if low < high else np.array([home])
        np.add.at(loads, workers, count / len(workers))
    return loads


def sample(measured: KeyFrequencies, seed: int = 0) -> Keys:
    """Return sample records with the measured shares; all others have different keys."""
    counts = np.rint(measured.counts * SAMPLED_RECORDS / max(measured.records, 1)).astype(np.int64)
    rng = np.random.default_rng(seed)
    rest = rng.integers(0, 2**64, max(0, SAMPLED_RECORDS - int(counts.sum())), np.uint64)
    return rng.permutation(np.concatenate([np.repeat(measured.keys, counts), rest]))


def rest_of(measured: KeyFrequencies) -> NDArray[np.float64]:
    """Return the records that Spark's hash sends to each worker, without those of measured keys."""
    n_workers = len(measured.home_loads)
    known = np.bincount(homes(measured.keys, n_workers), measured.counts, minlength=n_workers)
    return np.maximum(0.0, measured.home_loads - known)
