"""Planning between the batches of a stream, from a history of keys in which old batches decay."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.spark.control.controller import Controller
from unskew.spark.control.hot_keys import KeyFrequencies, Strategy
from unskew.spark.control.observed import TRACKED_KEYS, BatchObservation
from unskew.spark.plans.schedule import Schedule
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan


@dataclass
class KeyHistory:
    """Records by key and by home; older batches count less.

    Parameters
    ----------
    n_workers
        Shuffle partitions.
    decay
        The factor by which the weight of a batch shrinks with each later batch.
    tracked
        The number of keys that are tracked, at most.
    """

    n_workers: int
    decay: float
    tracked: int = TRACKED_KEYS
    counts: dict[int, float] = field(default_factory=dict)
    home_loads: NDArray[np.float64] = field(init=False)
    records: float = 0.0

    def __post_init__(self) -> None:
        self.home_loads = np.zeros(self.n_workers)

    def add(self, batch: BatchObservation) -> None:
        """Add a batch."""
        old = {key: self.decay * count for key, count in self.counts.items()}
        merged = {key: old.get(key, 0.0) + batch.hot.get(key, 0.0) for key in {*old, *batch.hot}}
        ranked = sorted(merged.items(), key=lambda pair: (-pair[1], pair[0]))
        self.counts = dict(ranked[: self.tracked])
        self.records = self.decay * self.records + batch.records
        self.home_loads = self.decay * self.home_loads + batch.home_loads

    def measured(self) -> KeyFrequencies:
        """Return the current frequencies of keys."""
        keys = np.array([key % 2**64 for key in self.counts], np.uint64)
        counts = np.array(list(self.counts.values()), np.float64)
        return KeyFrequencies(keys, counts, self.records, self.home_loads.copy())


class PlanController(Controller):
    """A controller that makes a plan after each batch, if the current one is not good enough.

    Parameters
    ----------
    folder
        The folder of plans, beside the checkpoint.
    history
        The records of keys in past batches.
    """

    def __init__(self, folder: PlanFolder, history: KeyHistory) -> None:
        self.folder, self.history = folder, history
        self.current = folder.latest() or SplitPlan.empty(history.n_workers)
        self._planning_s = 0.0

    @abstractmethod
    def next_plan(self, batch: BatchObservation) -> SplitPlan:
        """Learn from a batch; return the plan for the next ones, the current one if it will do."""

    def learn(self, batch: BatchObservation) -> None:
        """Learn from a batch, and make a plan if needed."""
        started = time.perf_counter()
        plan = self.next_plan(batch)
        if plan is not self.current:
            self.current = self.folder.save(plan)
        self._planning_s = time.perf_counter() - started

    def workers(self, key: int) -> list[int]:
        """Return the workers of a key by the newest plan; none if Spark's hash alone places it."""
        chosen = self.current.workers[self.current.keys == np.uint64(key % 2**64)]
        return [int(worker) for worker in np.unique(chosen)]

    def seconds(self, batch: int) -> float:
        """Return the seconds that planning after the last batch took."""
        return self._planning_s


class StrategyController(PlanController):
    """A controller that plans by the records of keys.

    Parameters
    ----------
    strategy
        The strategy that makes plans.
    folder, history
        The folder of plans, and the records of keys in past batches.
    """

    def __init__(self, strategy: Strategy, folder: PlanFolder, history: KeyHistory) -> None:
        super().__init__(folder, history)
        self.strategy = strategy

    def next_plan(self, batch: BatchObservation) -> SplitPlan:
        """Return the plan of the strategy."""
        self.history.add(batch)
        return self.strategy.plan(self.history.measured(), self.current)


class TimedPlanController(StrategyController):
    """A controller for windows: each window keeps the plan that was in force when it opened.

    Parameters
    ----------
    schedule
        The schedule of plans, which records the progress of event time.
    by_batch
        Whether batch numbers serve as times, for rows without event times.
    """

    def __init__(
        self,
        strategy: Strategy,
        folder: PlanFolder,
        history: KeyHistory,
        schedule: Schedule,
        by_batch: bool = False,
    ) -> None:
        super().__init__(strategy, folder, history)
        self.schedule, self.by_batch = schedule, by_batch

    def record_progress(self, batch: BatchObservation, watermark_us: int) -> None:
        """Record the event times and the watermark of a batch in the schedule."""
        latest_us = batch.latest_us
        if self.by_batch:
            latest_us = watermark_us = batch.number
        self.schedule.record_progress(batch.number, latest_us, watermark_us)
