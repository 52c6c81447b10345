"""Planning for keys that stay whole: after each batch, which of them should move, with their state.

The cost of a key is the seconds that it took, as tasks measured them; that of a key of which they
told nothing is by its records. What would have to move is the bytes of its state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from unskew.plan import Plan
from unskew.planners import Planner, Statistics
from unskew.spark.costs import Cost
from unskew.spark.hot_keys import Measured, rest_of
from unskew.spark.metrics import Guide
from unskew.spark.observed import Observed
from unskew.spark.planning import Memory
from unskew.spark.plans import PlanFolder, SplitPlan
from unskew.spark.whereabouts import MoveLog


@dataclass
class Prices:
    """What a record of a key costs, and the bytes of its state, as last measured."""

    decay: float
    spent: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Records and seconds, by key."""
    state_bytes: dict[int, int] = field(default_factory=dict)

    def add(self, costs: dict[int, Cost], known: set[int]) -> None:
        """Take in the costs of a batch; forget keys that are not known any more."""
        old = {key: (self.decay * n, self.decay * s) for key, (n, s) in self.spent.items()}
        for key, cost in costs.items():
            records, seconds = old.get(key, (0.0, 0.0))
            old[key] = (records + cost.records, seconds + cost.seconds)
            self.state_bytes[key] = cost.state_bytes
        self.spent = {key: spent for key, spent in old.items() if key in known}
        self.state_bytes = {k: size for k, size in self.state_bytes.items() if k in known}

    def statistics(self, measured: Measured, capacities: list[float]) -> Statistics:
        """Return what a planner needs to know."""
        records, seconds = (
            map(sum, zip(*self.spent.values(), strict=True)) if self.spent else (1, 1)
        )
        mean = seconds / max(1.0, records)
        price = [
            self.spent[key][1] / self.spent[key][0] if key in self.spent else mean
            for key in measured.keys.tolist()
        ]
        sizes = [self.state_bytes.get(key) for key in measured.keys.tolist()]
        known = [size for size in sizes if size is not None] or [1]
        guess = sum(known) / len(known)
        return Statistics(
            measured.keys,
            measured.counts * price,
            np.array([guess if size is None else size for size in sizes], np.float64),
            np.array(capacities),
            rest_of(measured) * mean,
        )


class Moving(Guide):
    """Makes a plan after each batch, if the last one will not do.

    Parameters
    ----------
    planner
        Makes plans.
    folder, log
        Where plans are kept, and states on their way.
    memory
        Of what was hot.
    """

    def __init__(self, planner: Planner, folder: PlanFolder, log: MoveLog, memory: Memory) -> None:
        self.planner, self.folder, self.log, self.memory = planner, folder, log, memory
        self.prices = Prices(memory.decay)
        self.capacities = [1.0] * memory.n_workers
        self.current = folder.latest() or SplitPlan.empty(memory.n_workers)
        self._took = 0.0

    def learn(self, batch: Observed) -> None:
        """Take in a batch, and plan."""
        started = time.perf_counter()
        self.memory.add(batch)
        measured = self.memory.measured()
        costs = {key % 2**64: cost for key, cost in batch.costs.items()}
        self.prices.add(costs, {*measured.keys.tolist(), *costs})
        old = Plan(tuple(self.capacities), *self.current.whole(), fallback="spark")
        found = self.planner.plan(self.prices.statistics(measured, self.capacities), old)
        if len(found.moves):
            pairs = (found.plan.keys, found.plan.workers)
            version = self.current.version + 1
            made = SplitPlan(self.memory.n_workers, *pairs, version, self.planner.name)
            self.current = self.folder.save(made)
        self._took = time.perf_counter() - started

    def workers(self, key: int) -> list[int]:
        """Return the worker that a key has by the newest plan; none if its hash tells."""
        found = self.current.workers[self.current.keys == np.uint64(key % 2**64)]
        return [int(worker) for worker in found]

    def seconds(self, batch: int) -> float:
        """Return what the last plan took."""
        return self._took

    def moved(self, batch: int) -> tuple[int, int]:
        """Return the states that left their workers in a batch, and their bytes."""
        return self.log.sizes(batch)
