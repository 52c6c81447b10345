"""What became of each micro-batch: as objects, as lines of JSON, and in the log."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any
from weakref import WeakKeyDictionary, ref

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from unskew.spark.control.observed import NAMED, Observed, fields
from unskew.spark.runtime.files import append_line
from unskew.spark.state.costs import read_costs

POLL_S = 0.2

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
        Rows in the largest state of the query.
    routing_s
        Seconds of routing: in the routers of all tasks if online, on the driver, beside the query,
        if planned.
    moved_keys, moved_bytes
        States that left their workers for others, and their size.
    """

    batch: int
    records: int
    seconds: float
    loads: Sequence[int]
    hot: Sequence[HotKey]
    state_rows: int
    routing_s: float
    moved_keys: int = 0
    moved_bytes: int = 0

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

    def tell(self, batch: Observed, watermark_us: int) -> None:
        """Take in how far time has come, after each batch, also an empty one."""

    def workers(self, key: int) -> list[int]:
        """Return the workers that a key may be on now; none if its hash tells."""
        return []

    def seconds(self, batch: int) -> float:
        """Return what routing a batch took."""
        return 0.0

    def moved(self, batch: int) -> tuple[int, int]:
        """Return how many states left their workers in a batch, and their bytes."""
        return 0, 0


@dataclass
class Watch:
    """Looks at the batches of one query: lets its guide learn, and reports.

    Parameters
    ----------
    guide
        Routes the query.
    n_workers
        Shuffle partitions.
    kept
        Takes the metrics.
    path
        Of the file that takes them as lines of JSON.
    also
        The name of what else is observed: the costs of keys, or the times of another stream.
    """

    guide: Guide
    n_workers: int
    kept: MutableSequence[BatchMetrics]
    path: str
    also: str | None = None
    names: dict[int, str] = field(default_factory=dict, init=False)

    def look(self, progress: StreamingQueryProgress, row: Any) -> None:
        """Learn from a batch, and report."""
        also = progress.observedMetrics.get(self.also) if self.also else None
        more = {} if also is None else fields(also)
        batch = Observed.of(row, self.n_workers)
        times = [time for time in (batch.latest_us, more.get("latest")) if time is not None]
        batch = replace(
            batch,
            number=progress.batchId,
            costs=read_costs(more.get("costs", ())),
            latest_us=max(times, default=None),
        )
        self.guide.tell(batch, _watermark_us(progress))
        if not batch.records:
            return
        try:
            self.guide.learn(batch)
        except Exception:  # the query goes on by the old plan
            log.exception("no new plan after batch %s", progress.batchId)
        try:
            self.report(progress, batch)
        except Exception:  # nor may a full disk end it
            log.exception("no metrics of batch %s", progress.batchId)

    def report(self, progress: StreamingQueryProgress, batch: Observed) -> None:
        """Make metrics of a batch, and pass them on."""
        rows = [operator["numRowsTotal"] for operator in progress["stateOperators"]]
        known = {**self.names, **batch.names}
        self.names = {key: name for key, name in known.items() if key in batch.hot}
        hottest = sorted(self.names, key=lambda key: -batch.hot[key])[:NAMED]
        found = BatchMetrics(
            progress.batchId,
            batch.records,
            progress.durationMs.get("triggerExecution", 0) / 1000,
            [round(load) for load in batch.loads],
            [
                HotKey(self.names[key], batch.hot[key] / batch.records, self.guide.workers(key))
                for key in hottest
            ],
            max(rows, default=0),
            self.guide.seconds(progress.batchId),
            *self.guide.moved(progress.batchId),
        )
        self.kept.append(found)
        log.info("%s", found)
        append_line(self.path, found.to_json())


def _watermark_us(progress: StreamingQueryProgress) -> int:
    text = (progress.eventTime or {}).get("watermark", "1970-01-01T00:00:00.000Z")
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e6)


class Listener(StreamingQueryListener):
    """The one listener of a session: the progress of each run of a query goes to its watches.

    A DataFrame may be started again, and by several queries, so each run has watches of its own.
    """

    def __init__(self) -> None:
        self.makers: dict[str, Callable[[], Watch]] = {}
        self.runs: dict[str, dict[str, Watch]] = {}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Let the watches of the query look."""
        self.look(event.progress)

    def look(self, progress: StreamingQueryProgress) -> None:
        """Let the watches of a query's run look at a batch."""
        watches = self.runs.setdefault(str(progress.runId), {})
        for name, row in progress.observedMetrics.items():
            if name in self.makers:
                if name not in watches:
                    watches[name] = self.makers[name]()
                watches[name].look(progress, row)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget the watches of the run: the next one has others."""
        self.runs.pop(str(event.runId), None)


_LISTENERS: WeakKeyDictionary[SparkSession, Listener] = WeakKeyDictionary()


def watch(session: SparkSession, name: str, maker: Callable[[], Watch]) -> None:
    """Let a watch look at the batches of each run that has an observation of this name."""
    if session not in _LISTENERS:
        listener = Listener()
        if type(session).__module__.startswith("pyspark.sql.connect"):
            args = (ref(session), listener)
            threading.Thread(target=_poll, args=args, daemon=True, name="unskew").start()
        else:
            session.streams.addListener(listener)
        _LISTENERS[session] = listener
    _LISTENERS[session].makers[name] = maker


def _poll(session: ref[SparkSession], listener: Listener) -> None:
    """Ask for the progress of queries again and again, until the session has gone.

    On Connect listeners are lost as soon as a query runs Python: the client takes what the server
    tells of profilers for an error.
    """
    seen: dict[str, int] = {}
    while (spark := session()) is not None and not getattr(spark, "is_stopped", False):
        try:
            queries = spark.streams.active
            for ended in listener.runs.keys() - {str(query.runId) for query in queries}:
                del listener.runs[ended]
            for query in queries:
                run, last = str(query.runId), query.lastProgress
                if last is None or last["batchId"] <= seen.get(run, -1):
                    continue
                for progress in query.recentProgress:
                    if progress["batchId"] > seen.get(run, -1):
                        seen[run] = progress["batchId"]
                        listener.look(progress)
        except Exception as error:  # the server has gone, or will answer next time
            log.debug("no progress to be had: %s", error)
        del spark
        time.sleep(POLL_S)
