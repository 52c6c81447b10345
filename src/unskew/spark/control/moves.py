"""Planning for keys that stay whole: after each batch, which of them should move with their state.

The cost of a key is the seconds that it took, as its tasks measured them; the cost of a key that
they did not report is estimated from its records. The cost of a move is the bytes of its state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from unskew.murmur import CELLS
from unskew.plan import Plan
from unskew.planners import Planner, Statistics
from unskew.spark.control.controller import Controller
from unskew.spark.control.hot_keys import KeyFrequencies, propose, rest_of
from unskew.spark.control.observed import BatchObservation
from unskew.spark.control.planning import KeyHistory, PlanController
from unskew.spark.control.schemes import MEASURED
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan
from unskew.spark.state.costs import Cost
from unskew.spark.state.move_log import MoveLog
from unskew.spark.state.record import CellOwners

IDLE = 1e-9
"""The capacity of a worker that is not active."""
MAX_KEYS = 10_000
"""Keys that are tracked, at most: tasks report all that take a relevant share of their time."""
MIN_CAPACITY, MAX_CAPACITY = 1 / 8, 8.0
"""The limits of measured capacities, relative to the mean."""


@dataclass
class KeyCosts:
    """The cost of a record of each key, in seconds at capacity 1, and the bytes of its state.

    Parameters
    ----------
    decay
        The factor by which the weight of a batch shrinks with each later batch.
    capacities
        The relative speeds of the workers.
    measured
        Whether capacities are measured by the seconds that workers take for a record. The costs of
        keys should then not differ much, or be spread well over the workers.
    """

    decay: float
    capacities: NDArray[np.float64]
    measured: bool = False
    spent: dict[int, tuple[float, float]] = field(default_factory=dict)
    """Decayed records and seconds, by key."""
    state_bytes: dict[int, int] = field(default_factory=dict)
    by_worker: NDArray[np.float64] = field(init=False)
    """Decayed records and seconds, by worker."""

    def __post_init__(self) -> None:
        self.by_worker = np.zeros((2, len(self.capacities)))

    def add(self, costs: dict[int, Cost], known: set[int]) -> None:
        """Add the costs of a batch, and drop keys that are not known any more."""
        self.by_worker *= self.decay
        for cost in costs.values():
            self.by_worker[:, cost.worker] += (cost.records, cost.seconds)
        if self.measured:
            self._measure_capacities()
        old = {key: (self.decay * n, self.decay * s) for key, (n, s) in self.spent.items()}
        for key, cost in costs.items():
            records, seconds = old.get(key, (0.0, 0.0))
            effort = cost.seconds * float(self.capacities[cost.worker])
            old[key] = (records + cost.records, seconds + effort)
            self.state_bytes[key] = cost.state_bytes
        self.spent = {key: spent for key, spent in old.items() if key in known}
        self.state_bytes = {k: size for k, size in self.state_bytes.items() if k in known}

    def _measure_capacities(self) -> None:
        records, seconds = self.by_worker
        if not seconds.sum():
            return
        reported = seconds > 0
        speeds = np.ones(len(records))
        speeds[reported] = records[reported] / seconds[reported]
        speeds[reported] /= speeds[reported].mean()
        self.capacities = np.clip(speeds, MIN_CAPACITY, MAX_CAPACITY)

    def statistics(self, measured: KeyFrequencies) -> Statistics:
        """Return the statistics for a planner: costs and states of keys, and worker capacities."""
        spent = np.array([*self.spent.values()]) if self.spent else np.ones((1, 2))
        mean = spent[:, 1].sum() / max(1.0, spent[:, 0].sum())
        cost_per_record = [
            self.spent[key][1] / self.spent[key][0] if key in self.spent else mean
            for key in measured.keys.tolist()
        ]
        sizes = [self.state_bytes.get(key) for key in measured.keys.tolist()]
        known = [size for size in sizes if size is not None] or [1]
        mean_size = sum(known) / len(known)
        return Statistics(
            measured.keys,
            measured.counts * cost_per_record,
            np.array([mean_size if size is None else size for size in sizes], np.float64),
            self.capacities,
            rest_of(measured) * mean,
        )


def of_active(statistics: Statistics, owners: CellOwners) -> Statistics:
    """Return statistics in which workers that are not active have next to no capacity.

    Their fixed loads go to the workers that own their cells now.
    """
    if len(owners.workers) == owners.n_workers:
        return statistics
    assert statistics.fixed is not None
    homes = np.arange(len(owners.by_cell)) // CELLS
    fixed = np.zeros(owners.n_workers)
    np.add.at(fixed, owners.by_cell, statistics.fixed[homes] / CELLS)
    inactive = np.isin(np.arange(owners.n_workers), owners.workers, invert=True)
    capacities = np.where(inactive, IDLE, statistics.capacities)
    return replace(statistics, capacities=capacities, fixed=fixed)


class MoveReporter(Controller):
    """A controller that makes no plans, and reports the states that moved between workers.

    Parameters
    ----------
    log
        The move log of the operator.
    """

    def __init__(self, log: MoveLog) -> None:
        self.log = log

    def moved(self, batch: int) -> tuple[int, int]:
        """Return the number and the bytes of the states that left their workers in a batch."""
        return self.log.sizes(batch)


class MoveController(MoveReporter, PlanController):
    """A controller that plans moves by the costs of keys.

    Parameters
    ----------
    planner
        The planner that makes plans.
    folder, log
        The folder of plans, and the move log of the operator.
    history
        The records of keys in past batches.
    capacities
        The relative speeds of the workers, ``"measured"``, or None if all are alike.
    """

    def __init__(
        self,
        planner: Planner,
        folder: PlanFolder,
        log: MoveLog,
        history: KeyHistory,
        capacities: Sequence[float] | str | None = None,
    ) -> None:
        MoveReporter.__init__(self, log)
        PlanController.__init__(self, folder, history)
        self.planner = planner
        if capacities is None or isinstance(capacities, str):
            speeds = np.ones(history.n_workers)
        else:
            speeds = np.array(capacities, np.float64)
        self.key_costs = KeyCosts(history.decay, speeds, measured=capacities == MEASURED)

    def next_plan(self, batch: BatchObservation) -> SplitPlan:
        """Return the plan of the planner for the keys that are worth moving."""
        # Reports of tasks are exact, and cover more keys than a sketch.
        reported = {key: float(cost.records) for key, cost in batch.costs.items()}
        self.history.add(replace(batch, hot={**batch.hot, **reported}))
        measured = self.history.measured()
        costs = {key % 2**64: cost for key, cost in batch.costs.items()}
        self.key_costs.add(costs, {*measured.keys.tolist(), *costs})
        statistics = of_active(self.key_costs.statistics(measured), self.log.cell_owners())
        old = Plan((1.0,) * self.history.n_workers, *self.current.whole(), fallback="spark")
        proposal = propose(self.planner, statistics, old)
        if not len(proposal.moves):
            return self.current
        pairs, version = (proposal.plan.keys, proposal.plan.workers), self.current.version + 1
        return SplitPlan(self.history.n_workers, *pairs, version, self.planner.name)
