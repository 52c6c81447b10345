"""The running task: its partition, micro-batch, query and attempt, and its process."""

from __future__ import annotations

import gc
import os
from functools import cache
from uuid import uuid4

from pyspark import TaskContext


def partition_and_batch() -> tuple[int, int | None]:
    """Return the partition and the micro-batch of the running task; None for a batch job."""
    context = TaskContext.get()
    assert context is not None
    batch = context.getLocalProperty("streaming.sql.batchId")
    return context.partitionId(), None if batch is None else int(batch)


def query_and_run() -> tuple[str | None, str | None]:
    """Return the ids of the running task's streaming query and of its run; None for a batch job."""
    context = TaskContext.get()
    assert context is not None
    query = context.getLocalProperty("sql.streaming.queryId")
    # The job group of a streaming query is the id of its run.
    return query, None if query is None else context.getLocalProperty("spark.jobGroup.id")


def running() -> str | None:
    """Return the id of the run of the running task's query; None outside of tasks."""
    return None if TaskContext.get() is None else query_and_run()[1]


def attempt() -> str:
    """Return a name of the running task attempt that no other attempt of any run has."""
    context = TaskContext.get()
    number = uuid4().hex[:8] if context is None else context.taskAttemptId()
    return f"{(running() or 'no-run')[:8]}-{number}"


def micro_batch() -> int:
    """Return the micro-batch of the running task, which must belong to a streaming query."""
    _, batch = partition_and_batch()
    if batch is None:
        raise RuntimeError(
            "state cannot move in a task without a micro-batch: do not route within foreachBatch, "
            "but before it"
        )
    return batch


def freeze_imports() -> None:
    """Exempt all objects of this process from garbage collection; only the first call does it.

    Spark's Python worker collects garbage after each task, which takes 40 ms if pandas and Arrow
    are imported, and more with numba: as long as a small task itself. Frozen objects are skipped,
    and still freed when nothing refers to them.
    """
    _freeze(os.getpid())  # a worker is a fork, and has what it was forked from in its cache


@cache
def _freeze(process: int) -> None:
    gc.collect()
    gc.freeze()
