"""What became of each micro-batch: as objects, as lines of JSON, and in the log."""

from __future__ import annotations

import json
import logging
from collections.abc import MutableSequence, Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from unskew.spark.files import append_line
from unskew.spark.observed import Observed

log = logging.getLogger("unskew.spark")


@dataclass(frozen=True)
class HotKey:
    """A frequent key: its text, its share of the records, and the workers that it may be on now.

    No workers are named if Spark's hash alone places it.
    """

    key: str
    share: float
    workers: Sequence[int]


@dataclass(frozen=True)
class BatchMetrics:
    """What became of a micro-batch.

    Parameters
    ----------
    batch, records, seconds
        Its number, its records, and how long it took.
    loads
        Records of each worker, estimated from a sample.
    hot
        The most frequent keys.
    state_rows
        Rows in the state of the routed operator.
    replication
        State rows for a key, where the operator that merges tells how many keys there are.
    routing_s
        Seconds of routing: in the routers of all tasks if online, on the driver, beside the query,
        if planned.
    """

    batch: int
    records: int
    seconds: float
    loads: Sequence[int]
    hot: Sequence[HotKey]
    state_rows: int
    replication: float | None
    routing_s: float

    @property
    def imbalance(self) -> float:
        """The largest load less the mean, as a share of all records: what the papers draw."""
        return (max(self.loads) - sum(self.loads) / len(self.loads)) / max(1, sum(self.loads))

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps({**asdict(self), "imbalance": self.imbalance})

    def __str__(self) -> str:
        hottest = ", ".join(
            f"{hot.key} {hot.share:.1%} on {max(1, len(hot.workers))}" for hot in self.hot[:3]
        )
        return (
            f"batch {self.batch}: {self.records:,} records in {self.seconds:.1f} s, "
            f"imbalance {self.imbalance:.2%}, {self.state_rows:,} state rows; hot: {hottest}"
        )


class Guide:
    """What routes a query, as far as the driver has to do with it: here, nothing."""

    def learn(self, batch: Observed) -> None:
        """Take in what was observed of a batch."""

    def workers(self, key: int) -> list[int]:
        """Return the workers that a key may be on now; none if its hash tells."""
        return []

    def seconds(self, batch: int) -> float:
        """Return what routing a batch took."""
        return 0.0


class Watch(StreamingQueryListener):
    """Listens to one query: lets its guide learn, and reports.

    Parameters
    ----------
    session
        Where the query runs.
    name
        Of the query's observation.
    guide
        Routes the query.
    n_workers
        Shuffle partitions.
    kept
        Takes the metrics.
    path
        Of the file that takes them as lines of JSON.
    """

    def __init__(
        self,
        session: SparkSession,
        name: str,
        guide: Guide,
        n_workers: int,
        kept: MutableSequence[BatchMetrics],
        path: str,
    ) -> None:
        self.session, self.name, self.guide, self.n_workers = session, name, guide, n_workers
        self.kept, self.path = kept, path
        self.run = ""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Learn from a batch, and report."""
        row = event.progress.observedMetrics.get(self.name)
        if row is None:
            return
        self.run = str(event.progress.runId)
        if not row["records"]:
            return
        batch = Observed.of(row, self.n_workers)
        try:
            self.guide.learn(batch)
        except Exception:  # a listener that raises is lost, and the query goes on by the old plan
            log.exception("no new plan after batch %s", event.progress.batchId)
        try:
            self.report(event.progress, batch)
        except Exception:  # nor may a full disk end it
            log.exception("no metrics of batch %s", event.progress.batchId)

    def report(self, progress: StreamingQueryProgress, batch: Observed) -> None:
        """Make metrics of a batch, and pass them on."""
        rows = [operator.numRowsTotal for operator in progress.stateOperators]
        ranked = sorted(batch.names, key=lambda key: -batch.hot.get(key, 0.0))
        found = BatchMetrics(
            progress.batchId,
            batch.records,
            progress.durationMs.get("triggerExecution", 0) / 1000,
            [round(load) for load in batch.loads],
            [
                HotKey(batch.names[key], batch.hot[key] / batch.records, self.guide.workers(key))
                for key in ranked
                if key in batch.hot
            ],
            max(rows, default=0),
            max(rows) / max(1, min(rows)) if len(rows) > 1 else None,
            self.guide.seconds(progress.batchId),
        )
        self.kept.append(found)
        log.info("%s", found)
        append_line(self.path, found.to_json())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Listen no more: the next run has a watch of its own."""
        if str(event.runId) == self.run:
            self.session.streams.removeListener(self)
