"""From measured shares to a plan: which keys are hot, and on which workers they should be."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.plan import Plan
from unskew.planners import Mixed, Planner, Statistics
from unskew.routers import Scheme, TableRouter
from unskew.spark.plans import SplitPlan

SAMPLE = 50_000
FEW = 2
"""Tail keys have up to two choices in most schemes; in a plan they go by Spark's hash."""


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured: frequent keys with their records, all records, and those of each home.

    The home of a key is the worker that it has by Spark's hash, whatever a plan says.
    """

    keys: Keys
    counts: NDArray[np.float64]
    records: float
    homes: NDArray[np.float64]

    def of(self, chosen: NDArray[np.bool_]) -> Measured:
        """Return the same for some of the keys."""
        return replace(self, keys=self.keys[chosen], counts=self.counts[chosen])


class Strategy(Protocol):
    """What makes plans."""

    def plan(self, measured: Measured, plan: SplitPlan) -> SplitPlan:
        """Return the next plan; the same one if nothing should change."""
        ...


@dataclass(frozen=True)
class Planned:
    """Lets a planner decide: each key stays whole, and what cannot be told apart stays put."""

    planner: Planner
    n_workers: int

    def plan(self, measured: Measured, plan: SplitPlan) -> SplitPlan:
        """Return the planner's plan, by records as cost and as state."""
        found = self.table(measured, plan, _rest(measured))
        made = SplitPlan(
            self.n_workers, found.keys, found.workers, plan.version + 1, self.planner.name
        )
        return plan if made.same_pairs(plan) else made

    def table(self, measured: Measured, plan: SplitPlan, fixed: NDArray[np.float64]) -> Plan:
        """Return where keys should be, given what each worker has to do besides."""
        old = Plan((1.0,) * self.n_workers, *plan.whole(), fallback="spark")
        statistics = Statistics(
            measured.keys, measured.counts, measured.counts, np.ones(self.n_workers), fixed
        )
        return self.planner.plan(statistics, old).plan


@dataclass(frozen=True)
class Classified:
    """Lets a router decide: it sees a sample with the measured shares, and is asked for candidates.

    So the same object decides as in online routing. Keys with more than two candidates are hot, and
    are spread over them. Of the others, those that are frequent enough to be measured are placed
    whole around them, by a planner; the rest go by Spark's hash.
    """

    scheme: Scheme
    n_workers: int
    tail: Planner = field(default_factory=lambda: Mixed(theta_max=0.02))

    def plan(self, measured: Measured, plan: SplitPlan) -> SplitPlan:
        """Return the plan for the keys that are hot now."""
        router = self.scheme.router(self.n_workers, **self.scheme.given)
        router.route(sample(measured))
        load = _rest(measured)
        hot, pairs = np.zeros(len(measured.keys), np.bool_), []
        for i, key in enumerate(measured.keys):
            workers = router.candidates(int(key))
            hot[i] = len(workers) > FEW or len(workers) == self.n_workers
            if hot[i]:
                load[workers] += measured.counts[i] / len(workers)
                pairs += [(int(key), int(worker)) for worker in workers]
        tail = Planned(self.tail, self.n_workers)
        whole = tail.table(measured.of(~hot), plan.without(measured.keys[hot]), load)
        pairs += zip(whole.keys.tolist(), whole.workers.tolist(), strict=True)
        keys = np.array([key for key, _ in pairs], np.uint64)
        order = np.argsort(keys, kind="stable")
        workers = np.array([worker for _, worker in pairs], np.int32)
        name = str(self.scheme)
        made = SplitPlan(self.n_workers, keys[order], workers[order], plan.version + 1, name)
        return plan if made.same_pairs(plan) else made


def sample(measured: Measured, seed: int = 0) -> Keys:
    """Return records with the measured shares, the rest of them all different."""
    counts = np.rint(measured.counts * SAMPLE / max(measured.records, 1)).astype(np.int64)
    rng = np.random.default_rng(seed)
    rest = rng.integers(0, 2**64, max(0, SAMPLE - int(counts.sum())), np.uint64)
    return rng.permutation(np.concatenate([np.repeat(measured.keys, counts), rest]))


def _rest(measured: Measured) -> NDArray[np.float64]:
    """Return the records that each worker has by Spark's hash, without those of measured keys."""
    n_workers = len(measured.homes)
    homes = TableRouter.of(Plan((1.0,) * n_workers, fallback="spark")).route(measured.keys)
    known = np.bincount(homes, measured.counts, minlength=n_workers)
    return np.maximum(0.0, measured.homes - known)
