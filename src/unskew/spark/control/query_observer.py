"""The loop after each micro-batch: its progress reaches a controller, and becomes metrics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, MutableSequence
from dataclasses import dataclass, field, replace
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

from unskew.spark.control.controller import Controller
from unskew.spark.control.metrics import BatchMetrics, HotKey
from unskew.spark.control.observed import NAMED, BatchObservation, fields
from unskew.spark.runtime.files import append_line
from unskew.spark.state.costs import read_costs

POLL_S = 0.2

log = logging.getLogger("unskew.spark")


@dataclass
class QueryObserver:
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

    controller: Controller
    n_workers: int
    kept: MutableSequence[BatchMetrics]
    path: str
    also: str | None = None
    names: dict[int, str] = field(default_factory=dict, init=False)

    def look(self, progress: StreamingQueryProgress, row: Any) -> None:
        """Learn from a batch, and report."""
        also = progress.observedMetrics.get(self.also) if self.also else None
        more = {} if also is None else fields(also)
        batch = BatchObservation.of(row, self.n_workers)
        times = [time for time in (batch.latest_us, more.get("latest")) if time is not None]
        batch = replace(
            batch,
            number=progress.batchId,
            costs=read_costs(more.get("costs", ())),
            latest_us=max(times, default=None),
        )
        self.controller.tell(batch, _watermark_us(progress))
        if not batch.records:
            return
        try:
            self.controller.learn(batch)
        except Exception:  # the query goes on by the old plan
            log.exception("no new plan after batch %s", progress.batchId)
        try:
            self.report(progress, batch)
        except Exception:  # nor may a full disk end it
            log.exception("no metrics of batch %s", progress.batchId)

    def report(self, progress: StreamingQueryProgress, batch: BatchObservation) -> None:
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
                HotKey(
                    self.names[key], batch.hot[key] / batch.records, self.controller.workers(key)
                )
                for key in hottest
            ],
            max(rows, default=0),
            self.controller.seconds(progress.batchId),
            *self.controller.moved(progress.batchId),
        )
        self.kept.append(found)
        log.info("%s", found)
        append_line(self.path, found.to_json())


def _watermark_us(progress: StreamingQueryProgress) -> int:
    text = (progress.eventTime or {}).get("watermark", "1970-01-01T00:00:00.000Z")
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e6)


class ProgressListener(StreamingQueryListener):
    """The one listener of a session: the progress of each run of a query goes to its watches.

    A DataFrame may be started again, and by several queries, so each run has watches of its own.
    """

    def __init__(self) -> None:
        self.makers: dict[str, Callable[[], QueryObserver]] = {}
        self.runs: dict[str, dict[str, QueryObserver]] = {}

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


_LISTENERS: WeakKeyDictionary[SparkSession, ProgressListener] = WeakKeyDictionary()


def observe_query(session: SparkSession, name: str, maker: Callable[[], QueryObserver]) -> None:
    """Let a watch look at the batches of each run that has an observation of this name."""
    if session not in _LISTENERS:
        listener = ProgressListener()
        if type(session).__module__.startswith("pyspark.sql.connect"):
            args = (ref(session), listener)
            threading.Thread(target=_poll, args=args, daemon=True, name="unskew").start()
        else:
            session.streams.addListener(listener)
        _LISTENERS[session] = listener
    _LISTENERS[session].makers[name] = maker


def _poll(session: ref[SparkSession], listener: ProgressListener) -> None:
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
