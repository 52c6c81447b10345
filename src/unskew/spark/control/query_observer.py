"""Query observers: after each micro-batch they call the controller and report metrics."""

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
from unskew.spark.control.observed import NAMED_KEYS, BatchObservation, fields
from unskew.spark.runtime.files import append_line
from unskew.spark.state.costs import read_costs

POLL_S = 0.2

log = logging.getLogger("unskew.spark")


@dataclass
class QueryObserver:
    """Observes the batches of one query: lets its controller learn, and reports metrics.

    Parameters
    ----------
    controller
        The controller of the query.
    n_workers
        Shuffle partitions.
    metrics
        The sequence that metrics are appended to.
    path
        The file that metrics are appended to, as lines of JSON.
    also
        The name of a second observation: the costs of keys, or the times of another stream.
    """

    controller: Controller
    n_workers: int
    metrics: MutableSequence[BatchMetrics]
    path: str
    also: str | None = None
    names: dict[int, str] = field(default_factory=dict, init=False)

    def on_batch(self, progress: StreamingQueryProgress, row: Any) -> None:
        """Let the controller learn from a batch, and report the metrics of the batch."""
        second = progress.observedMetrics.get(self.also) if self.also else None
        more = {} if second is None else fields(second)
        batch = BatchObservation.of(row, self.n_workers)
        times = [time for time in (batch.latest_us, more.get("latest")) if time is not None]
        batch = replace(
            batch,
            number=progress.batchId,
            costs=read_costs(more.get("costs", ())),
            latest_us=max(times, default=None),
        )
        self.controller.record_progress(batch, _watermark_us(progress))
        if not batch.records:
            return
        try:
            self.controller.learn(batch)
        except Exception:  # the query continues with the old plan
            log.exception("planning after batch %s failed, the plan stays", progress.batchId)
        try:
            self.report(progress, batch)
        except Exception:  # a full disk must not end the query
            log.exception("reporting the metrics of batch %s failed", progress.batchId)

    def report(self, progress: StreamingQueryProgress, batch: BatchObservation) -> None:
        """Append the metrics of a batch to the sequence and the file, and log them."""
        rows = [operator["numRowsTotal"] for operator in progress["stateOperators"]]
        names = {**self.names, **batch.names}
        self.names = {key: name for key, name in names.items() if key in batch.hot}
        hottest = sorted(self.names, key=lambda key: -batch.hot[key])[:NAMED_KEYS]
        metrics = BatchMetrics(
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
        self.metrics.append(metrics)
        log.info("%s", metrics)
        append_line(self.path, metrics.to_json())


def _watermark_us(progress: StreamingQueryProgress) -> int:
    text = (progress.eventTime or {}).get("watermark", "1970-01-01T00:00:00.000Z")
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1e6)


class ProgressListener(StreamingQueryListener):
    """The only listener of a session: passes the progress of each query run to its observers.

    A DataFrame may be started again, and by several queries, so each run has its own observers.
    """

    def __init__(self) -> None:
        self.factories: dict[str, Callable[[], QueryObserver]] = {}
        self.runs: dict[str, dict[str, QueryObserver]] = {}

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Pass the progress of a query to the observers of its run."""
        self.on_progress(event.progress)

    def on_progress(self, progress: StreamingQueryProgress) -> None:
        """Pass the progress of a query to the observers of its run, which may be new."""
        observers = self.runs.setdefault(str(progress.runId), {})
        for name, row in progress.observedMetrics.items():
            if name in self.factories:
                if name not in observers:
                    observers[name] = self.factories[name]()
                observers[name].on_batch(progress, row)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Drop the observers of the run; the next run has its own."""
        self.runs.pop(str(event.runId), None)


_LISTENERS: WeakKeyDictionary[SparkSession, ProgressListener] = WeakKeyDictionary()


def observe_query(session: SparkSession, name: str, factory: Callable[[], QueryObserver]) -> None:
    """Register an observer for the batches of each run that has an observation of this name."""
    if session not in _LISTENERS:
        listener = ProgressListener()
        if type(session).__module__.startswith("pyspark.sql.connect"):
            args = (ref(session), listener)
            threading.Thread(target=_poll, args=args, daemon=True, name="unskew").start()
        else:
            session.streams.addListener(listener)
        _LISTENERS[session] = listener
    _LISTENERS[session].factories[name] = factory


def _poll(session: ref[SparkSession], listener: ProgressListener) -> None:
    """Poll the progress of queries until the session ends.

    On Connect, listeners fail as soon as a query runs Python: the client takes the server's message
    about profilers for an error.
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
                        listener.on_progress(progress)
        except Exception as error:  # the server is gone, or will answer next time
            log.debug("cannot read the progress of queries: %s", error)
        del spark
        time.sleep(POLL_S)
