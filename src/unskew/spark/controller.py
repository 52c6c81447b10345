"""The controller: after each micro-batch it learns what was hot, and plans for the next ones."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from unskew.spark.hot_keys import Measured, Strategy
from unskew.spark.plans import PlanFolder, SplitPlan

TRACKED = 500

log = logging.getLogger("unskew.spark")


def observed(n_workers: int, key: Column, **workers: Column) -> list[Column]:
    """Return what a query should observe: its records, its frequent keys, records by worker.

    ``homes`` are the workers of rows by Spark's hash alone, ``loads`` those that they go to.
    """
    loads = [
        _top(column, n_workers, max(n_workers, 100)).alias(name) for name, column in workers.items()
    ]
    hot = _top(key, TRACKED, 20 * TRACKED).alias("hot")
    return [F.count(F.lit(1)).alias("records"), hot, *loads]


def _top(column: Column, k: int, tracked: int) -> Column:
    return F.call_function("approx_top_k", column, F.lit(k), F.lit(tracked))


@dataclass
class Memory:
    """Records by key and by home, with older batches counting less.

    Examples
    --------
    >>> memory = Memory(n_workers=2, decay=0.5)
    >>> memory.add({7: 8.0}, {0: 8.0}, 8)
    >>> memory.add({9: 4.0}, {1: 4.0}, 4)
    >>> memory.measured().counts.tolist()
    [4.0, 4.0]
    """

    n_workers: int
    decay: float
    counts: dict[int, float] = field(default_factory=dict)
    homes: NDArray[np.float64] = field(init=False)
    records: float = 0.0

    def __post_init__(self) -> None:
        self.homes = np.zeros(self.n_workers)

    def add(self, counts: dict[int, float], homes: dict[int, float], records: float) -> None:
        """Take in a batch."""
        old = {key: self.decay * count for key, count in self.counts.items()}
        merged = {key: old.get(key, 0.0) + counts.get(key, 0.0) for key in {*old, *counts}}
        ranked = sorted(merged.items(), key=lambda pair: (-pair[1], pair[0]))
        self.counts = dict(ranked[:TRACKED])
        self.records = self.decay * self.records + records
        self.homes *= self.decay
        for worker, load in homes.items():
            self.homes[worker] += load

    def add_row(self, row: Any) -> None:
        """Take in what a query observed."""
        self.add(_counts(row["hot"]), _counts(row["homes"]), row["records"])

    def measured(self) -> Measured:
        """Return what is known now."""
        keys = np.array([key % 2**64 for key in self.counts], np.uint64)
        counts = np.array(list(self.counts.values()), np.float64)
        return Measured(keys, counts, self.records, self.homes.copy())


class Controller(StreamingQueryListener):
    """Plans between the batches of one query.

    Parameters
    ----------
    name
        Of the query's observation.
    strategy
        Makes plans.
    folder
        Where plans are kept, beside the checkpoint.
    memory
        Of what was hot.
    """

    def __init__(self, name: str, strategy: Strategy, folder: PlanFolder, memory: Memory) -> None:
        self.name, self.strategy, self.folder, self.memory = name, strategy, folder, memory
        self.current = folder.latest() or SplitPlan.empty(memory.n_workers)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Learn from a batch, and plan."""
        row = event.progress.observedMetrics.get(self.name)
        if row is None or not row["records"]:
            return
        try:
            self.memory.add_row(row)
            plan = self.strategy.plan(self.memory.measured(), self.current)
            if plan is not self.current:
                self.folder.save(plan)
                self.current = plan
        except Exception:  # a listener that raises is lost, and the query goes on by the old plan
            log.exception("no new plan after batch %s", event.progress.batchId)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Nothing to do: the next run makes its own controller."""


def _counts(rows: list[Any]) -> dict[int, float]:
    return {int(row["item"]): float(row["count"]) for row in rows if row["item"] is not None}
