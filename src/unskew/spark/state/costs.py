"""What keys cost, as the tasks that process them measure it: seconds, records, bytes of state."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from pyspark import TaskContext

PART, LEAST_S = 0.01, 0.005
"""A key is reported if it took this part of the time that its task has run for, and no less."""

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """What a key cost in a batch, the state that it has, and the worker that it is on."""

    records: int
    seconds: float
    state_bytes: int
    worker: int

    def text(self, plan_key: int) -> str:
        """Return it as one word, with the key."""
        return f"{plan_key},{self.records},{self.seconds:.6f},{self.state_bytes},{self.worker}"


def read_costs(texts: Iterable[str]) -> dict[int, Cost]:
    """Return costs by key.

    Examples
    --------
    >>> read_costs([Cost(3, 0.25, 100, worker=2).text(-7)])
    {-7: Cost(records=3, seconds=0.25, state_bytes=100, worker=2)}
    """
    found = {}
    for text in texts:
        key, records, seconds, size, worker = text.split(",")
        found[int(key)] = Cost(int(records), float(seconds), int(size), int(worker))
    return found


class Meter:
    """Measures the calls of one key's function: the seconds, and the records that it is given."""

    def __init__(self) -> None:
        self.seconds, self.records = 0.0, 0

    def timed(self, results: Iterable[T]) -> Iterator[T]:
        """Pass results on, timing what it takes to make them."""
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
        """Pass chunks of rows on, counting the rows."""
        for chunk in chunks:
            self.records += len(chunk)
            yield chunk

    @property
    def matters(self) -> bool:
        """Whether the key took a part of its task's time that is worth to be told."""
        return self.records > 0 and self.seconds >= max(LEAST_S, PART * _running_s())


_task: tuple[int, float] = (-1, 0.0)


def _running_s() -> float:
    """Return how long the running task has been at it, from its first key on."""
    global _task
    context = TaskContext.get()
    attempt, now = -1 if context is None else context.taskAttemptId(), time.perf_counter()
    if _task[0] != attempt:
        _task = (attempt, now)
    return now - _task[1]
