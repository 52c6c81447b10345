"""Planning for keys that stay whole: after each batch, which of them should move, with their state.

The cost of a key is the seconds that it took, as tasks measured them; that of a key of which they
told nothing is by its records. What would have to move is the bytes of its state.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from unskew.murmur import CELLS
from unskew.plan import Plan
from unskew.planners import Planner, Statistics
from unskew.spark.control.controller import Controller
from unskew.spark.control.hot_keys import KeyFrequencies, rest_of
from unskew.spark.control.observed import BatchObservation
from unskew.spark.control.planning import KeyHistory
from unskew.spark.control.schemes import MEASURED
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan
from unskew.spark.state.costs import Cost
from unskew.spark.state.move_log import MoveLog
from unskew.spark.state.record import CellOwners

IDLE = 1e-9
"""The capacity of a worker that is not active."""
MOST_KEYS = 10_000
"""How many keys are remembered, at the most: tasks tell of all that take a part of their time."""
LEAST, MOST = 1 / 8, 8.0
"""How slow or fast a worker is taken to be, at the most, beside the mean."""


@dataclass
class KeyCosts:
    """What a record of a key costs, in seconds of a worker of capacity 1, and the bytes of state.

    Parameters
    ----------
    decay
        What a batch counts when the next one has come.
    capacities
        Of the workers: how fast they are.
    measured
        Whether capacities follow what workers need for a record. The costs of keys should not
        differ much then, or be spread well over the workers.
    """

    decay: float
    capacities: NDArray[np.float64]
    measured: bool = False
    spent: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Records and seconds, by key."""
    state_bytes: dict[int, int] = field(default_factory=dict)
    by_worker: NDArray[np.float64] = field(init=False)
    """Records and seconds, by worker."""

    def __post_init__(self) -> None:
        self.by_worker = np.zeros((2, len(self.capacities)))

    def add(self, costs: dict[int, Cost], known: set[int]) -> None:
        """Take in the costs of a batch; forget keys that are not known any more."""
        self.by_worker *= self.decay
        for cost in costs.values():
            self.by_worker[:, cost.worker] += (cost.records, cost.seconds)
        if self.measured:
            self._measure()
        old = {key: (self.decay * n, self.decay * s) for key, (n, s) in self.spent.items()}
        for key, cost in costs.items():
            records, seconds = old.get(key, (0.0, 0.0))
            effort = cost.seconds * float(self.capacities[cost.worker])
            old[key] = (records + cost.records, seconds + effort)
            self.state_bytes[key] = cost.state_bytes
        self.spent = {key: spent for key, spent in old.items() if key in known}
        self.state_bytes = {k: size for k, size in self.state_bytes.items() if k in known}

    def _measure(self) -> None:
        records, seconds = self.by_worker
        if not seconds.sum():
            return
        told = seconds > 0
        speeds = np.ones(len(records))
        speeds[told] = records[told] / seconds[told]
        speeds[told] /= speeds[told].mean()
        self.capacities = np.clip(speeds, LEAST, MOST)

    def statistics(self, measured: KeyFrequencies) -> Statistics:
        """Return what a planner needs to know."""
        spent = np.array([*self.spent.values()]) if self.spent else np.ones((1, 2))
        mean = spent[:, 1].sum() / max(1.0, spent[:, 0].sum())
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
            self.capacities,
            rest_of(measured) * mean,
        )


def of_active(statistics: Statistics, homes: CellOwners) -> Statistics:
    """Return statistics for the workers that are active: others can do next to nothing.

    What they have of keys that cannot be told apart goes to those that stand in for them.
    """
    if len(homes.workers) == homes.n_workers:
        return statistics
    assert statistics.fixed is not None
    owners = np.arange(len(homes.by_cell)) // CELLS
    fixed = np.zeros(homes.n_workers)
    np.add.at(fixed, homes.by_cell, statistics.fixed[owners] / CELLS)
    resting = np.isin(np.arange(homes.n_workers), homes.workers, invert=True)
    capacities = np.where(resting, IDLE, statistics.capacities)
    return replace(statistics, capacities=capacities, fixed=fixed)


class MoveReporter(Controller):
    """Makes no plans, and tells what moved as workers came and went.

    Parameters
    ----------
    log
        Of states on their way.
    """

    def __init__(self, log: MoveLog) -> None:
        self.log = log

    def moved(self, batch: int) -> tuple[int, int]:
        """Return the states that left their workers in a batch, and their bytes."""
        return self.log.sizes(batch)


class MoveController(MoveReporter):
    """Makes a plan after each batch, if the last one will not do.

    Parameters
    ----------
    planner
        Makes plans.
    folder, log
        Where plans are kept, and states on their way.
    memory
        Of what was hot.
    capacities
        How fast each worker is, ``"measured"``, or all the same.
    """

    def __init__(
        self,
        planner: Planner,
        folder: PlanFolder,
        log: MoveLog,
        history: KeyHistory,
        capacities: Sequence[float] | str | None = None,
    ) -> None:
        super().__init__(log)
        self.planner, self.folder, self.history = planner, folder, history
        given = None if capacities is None or isinstance(capacities, str) else capacities
        speeds = np.ones(history.n_workers) if given is None else np.array(given, np.float64)
        self.key_costs = KeyCosts(history.decay, speeds, measured=capacities == MEASURED)
        self.current = folder.latest() or SplitPlan.empty(history.n_workers)
        self._took = 0.0

    def learn(self, batch: BatchObservation) -> None:
        """Take in a batch, and plan."""
        started = time.perf_counter()
        # What tasks tell is exact, and of more keys than a sketch has.
        told = {key: float(cost.records) for key, cost in batch.costs.items()}
        self.history.add(replace(batch, hot={**batch.hot, **told}))
        measured = self.history.measured()
        costs = {key % 2**64: cost for key, cost in batch.costs.items()}
        self.key_costs.add(costs, {*measured.keys.tolist(), *costs})
        owners = self.log.cell_owners()
        old = Plan((1.0,) * self.history.n_workers, *self.current.whole(), fallback="spark")
        found = self.planner.plan(of_active(self.key_costs.statistics(measured), owners), old)
        if len(found.moves):
            pairs = (found.plan.keys, found.plan.workers)
            version = self.current.version + 1
            made = SplitPlan(self.history.n_workers, *pairs, version, self.planner.name)
            self.current = self.folder.save(made)
        self._took = time.perf_counter() - started

    def workers(self, key: int) -> list[int]:
        """Return the worker that a key has by the newest plan; none if its hash tells."""
        found = self.current.workers[self.current.keys == np.uint64(key % 2**64)]
        return [int(worker) for worker in found]

    def seconds(self, batch: int) -> float:
        """Return what the last plan took."""
        return self._took
