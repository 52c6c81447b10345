"""Planning between the batches of a stream: what was hot decays, and new plans go to a folder."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.spark.control.controller import Controller
from unskew.spark.control.hot_keys import KeyFrequencies, Strategy
from unskew.spark.control.observed import TRACKED, BatchObservation
from unskew.spark.plans.schedule import Schedule
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan


@dataclass
class KeyHistory:
    """Records by key and by home, with older batches counting less.

    Parameters
    ----------
    n_workers
        How many there are.
    decay
        What a batch counts when the next one has come.
    tracked
        How many keys are remembered, at the most.
    """

    n_workers: int
    decay: float
    tracked: int = TRACKED
    counts: dict[int, float] = field(default_factory=dict)
    homes: NDArray[np.float64] = field(init=False)
    records: float = 0.0

    def __post_init__(self) -> None:
        self.homes = np.zeros(self.n_workers)

    def add(self, batch: BatchObservation) -> None:
        """Take in a batch."""
        old = {key: self.decay * count for key, count in self.counts.items()}
        merged = {key: old.get(key, 0.0) + batch.hot.get(key, 0.0) for key in {*old, *batch.hot}}
        ranked = sorted(merged.items(), key=lambda pair: (-pair[1], pair[0]))
        self.counts = dict(ranked[: self.tracked])
        self.records = self.decay * self.records + batch.records
        self.homes = self.decay * self.homes + batch.homes

    def measured(self) -> KeyFrequencies:
        """Return what is known now."""
        keys = np.array([key % 2**64 for key in self.counts], np.uint64)
        counts = np.array(list(self.counts.values()), np.float64)
        return KeyFrequencies(keys, counts, self.records, self.homes.copy())


class PlanController(Controller):
    """Makes a plan after each batch, if the last one will not do.

    Parameters
    ----------
    strategy
        Makes plans.
    folder
        Where they are kept, beside the checkpoint.
    memory
        Of what was hot.
    """

    def __init__(self, strategy: Strategy, folder: PlanFolder, history: KeyHistory) -> None:
        self.strategy, self.folder, self.history = strategy, folder, history
        self.current = folder.latest() or SplitPlan.empty(history.n_workers)
        self._took = 0.0

    def learn(self, batch: BatchObservation) -> None:
        """Take in a batch, and plan."""
        started = time.perf_counter()
        self.history.add(batch)
        plan = self.strategy.plan(self.history.measured(), self.current)
        if plan is not self.current:
            self.current = self.folder.save(plan)
        self._took = time.perf_counter() - started

    def workers(self, key: int) -> list[int]:
        """Return the workers that a key is on by the newest plan; none if by Spark's hash."""
        chosen = self.current.workers[self.current.keys == np.uint64(key % 2**64)]
        return [int(worker) for worker in np.unique(chosen)]

    def seconds(self, batch: int) -> float:
        """Return what the last plan took."""
        return self._took


class TimedPlanController(PlanController):
    """Planning for windows: each keeps the plan that was in force when it opened.

    Parameters
    ----------
    schedule
        Is told how far time has come.
    by_batch
        Whether batches are all the times there are.
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

    def tell(self, batch: BatchObservation, watermark_us: int) -> None:
        """Pass on how far time has come."""
        latest_us = batch.latest_us
        if self.by_batch:
            latest_us = watermark_us = batch.number
        self.schedule.tell(batch.number, latest_us, watermark_us)
