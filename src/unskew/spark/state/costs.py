"""Costs of keys as measured by the tasks that process them: seconds, records, bytes of state."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark import TaskContext

MIN_SHARE, MIN_SECONDS = 0.01, 0.005
"""A key is reported if it took this share of its task's time so far, and at least this long."""

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """The cost of a key in a batch, the size of its state, and the worker that processed it."""

    records: int
    seconds: float
    state_bytes: int
    worker: int

    def text(self, plan_key: int) -> str:
        """Return the cost and its key as one line of text."""
        return f"{plan_key},{self.records},{self.seconds:.6f},{self.state_bytes},{self.worker}"


def read_costs(texts: Iterable[str]) -> dict[int, Cost]:
    """Return costs by key.

    Examples
    --------
    >>> read_costs([Cost(3, 0.25, 100, worker=2).text(-7)])
    {-7: Cost(records=3, seconds=0.25, state_bytes=100, worker=2)}
    """
    costs = {}
    for text in texts:
        key, records, seconds, size, worker = text.split(",")
        costs[int(key)] = Cost(int(records), float(seconds), int(size), int(worker))
    return costs


class Meter:
    """Measures the calls of the user's function for one key: seconds and input records."""

    def __init__(self) -> None:
        self.seconds, self.records = 0.0, 0

    def timed(self, results: Iterable[T]) -> Iterator[T]:
        """Yield results, and add up the time that it takes to compute them."""
        source = iter(results)
        while True:
            started = time.perf_counter()
            try:
                result = next(source)
            except StopIteration:
                return
            finally:
                self.seconds += time.perf_counter() - started
            yield result

    def counted(self, chunks: Iterable[Any]) -> Iterator[Any]:
        """Yield chunks of rows, and count the rows."""
        for chunk in chunks:
            self.records += len(chunk)
            yield chunk

    @property
    def worth_reporting(self) -> bool:
        """Whether the key took a share of its task's time that is worth reporting."""
        return self.records > 0 and self.seconds >= max(MIN_SECONDS, MIN_SHARE * _running_s())


_task: tuple[int, float] = (-1, 0.0)


def _running_s() -> float:
    """Return how long the running task has been processing, since its first key."""
    global _task
    context = TaskContext.get()
    attempt, now = -1 if context is None else context.taskAttemptId(), time.perf_counter()
    if _task[0] != attempt:
        _task = (attempt, now)
    return now - _task[1]
