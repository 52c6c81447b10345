"""What a task knows of itself."""

from __future__ import annotations

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
    # Spark names the jobs of a query after its run.
    return query, None if query is None else context.getLocalProperty("spark.jobGroup.id")


def running() -> str | None:
    """Return what runs here: the run of a streaming query; None outside of tasks."""
    return None if TaskContext.get() is None else query_and_run()[1]


def attempt() -> str:
    """Return a name of the running attempt of a task, of no other attempt in any run."""
    context = TaskContext.get()
    number = uuid4().hex[:8] if context is None else context.taskAttemptId()
    return f"{(running() or 'no-run')[:8]}-{number}"


def micro_batch() -> int:
    """Return the micro-batch of the running task; it must be one of a streaming query."""
    _, batch = partition_and_batch()
    if batch is None:
        raise RuntimeError(
            "a task does not know its micro-batch, so state cannot be moved: do not route within "
            "foreachBatch, but before it"
        )
    return batch
