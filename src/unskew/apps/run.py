"""Runs an application, and compares the schemes that balance it."""

from __future__ import annotations

import logging
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from unskew.apps.base import App
from unskew.apps.sinks import open_sink
from unskew.apps.sources import BAD_RECORDS, Source, open_source
from unskew.spark import Balancer

WARM_UP = 2
POLL_S = 0.2
METRICS_TIMEOUT_S = 5
"""How long to wait for the metrics of the last batch, which arrive after its end."""

Progress = Callable[[int], None]

log = logging.getLogger("unskew.apps")


@dataclass(frozen=True)
class Job:
    """An application on a stream.

    Parameters
    ----------
    app, options
        The application and its options.
    stream, batch, columns
        The source of its rows, see `open_source`.
    balancer
        Returns the balancer, given the parameters of `Balancer`.
    """

    app: App
    stream: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 60_000
    columns: Mapping[str, str] = field(default_factory=dict)
    balancer: Callable[..., Balancer] = Balancer

    def source(self, spark: SparkSession, checkpoint: Path) -> Source:
        """Return the stream; generated and replayed rows are kept beside the checkpoint."""
        name = zlib.crc32(repr((self.app.name, self.stream, self.batch)).encode())
        folder = checkpoint / "unskew" / f"stream-{name:08x}"
        for other in folder.parent.glob("stream-????????"):
            if other != folder:
                raise ValueError(
                    f"the checkpoint {checkpoint} belongs to another stream: use the stream that "
                    "it was started with, or another checkpoint"
                )
        return open_source(
            spark, self.app, self.stream, folder, batch=self.batch, columns=self.columns
        )

    def start(
        self, source: Source, balance: Balancer, sink: str, checkpoint: Path, once: bool
    ) -> StreamingQuery:
        """Start the query."""
        target = open_sink(sink, self.app.keys)
        if self.app.learns:
            learner, model_sink = self.app.query(**self.options), target
            result = source.rows

            def target(batch: DataFrame, number: int) -> None:
                model = learner.learn(batch, number, balance)
                if isinstance(model_sink, str):
                    _show(model, model_sink)
                else:
                    model_sink(model, number)
        else:
            result = self.app.query(source.rows, balance, **self.options)
        writer = result.writeStream.outputMode(self.app.mode)
        writer = writer.format(target) if isinstance(target, str) else writer.foreachBatch(target)
        writer = writer.option("checkpointLocation", str(checkpoint)).option("truncate", False)
        return (writer.trigger(availableNow=True) if once or source.ends else writer).start()


def run(
    spark: SparkSession,
    job: Job,
    scheme: str,
    routing: str | None = None,
    *,
    sink: str = "noop",
    checkpoint: Path | None = None,
    once: bool = False,
    seconds: float | None = None,
    bad_records: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Run a job until its stream ends, its time is up, or it is interrupted; return a report.

    Parameters
    ----------
    scheme, routing
        The scheme and the routing of the balancer.
    sink
        The sink of the results, see `open_sink`.
    checkpoint
        The checkpoint to continue from later; by default a temporary folder.
    once
        Stop when all available rows were read, even if more may arrive.
    seconds
        Stop after this many seconds.
    bad_records
        The folder that gets the texts of a Kafka topic that are left out, as lines: all that the
        topic has when the job ends, each once, however often the job is run.
    progress
        Called with the number of records of each batch.
    """
    with _folder(checkpoint) as folder:
        balance = job.balancer(scheme=scheme, routing=routing, checkpoint=str(folder))
        source = job.source(spark, folder)
        if bad_records is not None and source.bad is None:
            raise ValueError("bad records are kept of kafka:// streams only: omit --bad-records")
        try:
            query = job.start(source, balance, sink, folder, once)
            batches, stopped = _run_until_stopped(query, seconds, progress)
        except PySparkException as error:
            raise RuntimeError(f"the query failed: {_reason(error)}") from error
        if (failure := query.exception()) is not None:
            raise RuntimeError(f"the query failed: {_reason(failure)}") from failure
        if bad_records is not None and source.bad is not None:
            _keep_bad_records(source.bad, bad_records)
        if not job.app.learns:  # learners route each micro-batch as a batch, without metrics
            _wait_for_metrics(balance, batches)
        return {
            "app": job.app.name,
            "stream": job.stream,
            "scheme": scheme,
            "routing": balance.decisions[0].routing if balance.decisions else routing,
            "workers": balance.n_workers(source.rows),
            "stopped": stopped,
            **_summary(batches, balance),
        }


def compare(
    spark: SparkSession,
    job: Job,
    schemes: Sequence[tuple[str, str | None]],
    *,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Run a job with one scheme after the other; return reports, with the gain over the first.

    An interrupt ends the comparison, which then returns the reports so far.
    """
    reports: list[dict[str, Any]] = []
    for scheme, routing in schemes:
        report = run(spark, job, scheme, routing, progress=progress)
        first = reports[0] if reports else report
        gain = report["records_per_s"] / max(1e-9, first["records_per_s"])
        reports.append({**report, "over_first": gain})
        if report["stopped"] == "interrupted":
            break
    return reports


def _run_until_stopped(
    query: StreamingQuery, seconds: float | None, progress: Progress | None
) -> tuple[list[Any], str]:
    """Wait for the end of a query, or stop it; return the progress of its batches and why."""
    started, seen, stopped = time.monotonic(), dict[int, Any](), "end"
    try:
        while query.isActive:
            time.sleep(POLL_S)
            _collect_progress(query, seen, progress)
            if seconds is not None and time.monotonic() - started > seconds:
                stopped = "time"
                break
    except KeyboardInterrupt:
        stopped = "interrupted"
    finally:
        query.stop()
    _collect_progress(query, seen, progress)
    return [seen[number] for number in sorted(seen)], stopped


def _collect_progress(
    query: StreamingQuery, seen: dict[int, Any], progress: Progress | None
) -> None:
    for batch in query.recentProgress:
        if batch["numInputRows"] and batch["batchId"] not in seen:
            seen[batch["batchId"]] = batch
            if progress is not None:
                progress(batch["numInputRows"])


def _keep_bad_records(texts: DataFrame, folder: Path) -> None:
    writer = texts.writeStream.format("text").option("path", str(folder))
    writer = writer.option("checkpointLocation", str(folder / "_checkpoint"))
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except PySparkException as error:  # the job itself is done
        log.warning("bad records were not written to %s: %s", folder, _reason(error))


def _bad_records(batch: Any) -> int:
    observed = batch["observedMetrics"].get(BAD_RECORDS)
    return 0 if observed is None else int(observed["n"])


def _summary(batches: Sequence[Any], balance: Balancer) -> dict[str, Any]:
    metrics = {m.batch: m for m in balance.metrics}
    rows = [
        {
            "batch": b["batchId"],
            "records": b["numInputRows"],
            "seconds": b["durationMs"]["triggerExecution"] / 1000,
            "state_rows": max((op["numRowsTotal"] for op in b["stateOperators"]), default=0),
            "state_bytes": sum(op["memoryUsedBytes"] for op in b["stateOperators"]),
            "imbalance": metrics[b["batchId"]].imbalance if b["batchId"] in metrics else None,
            "loads": [*metrics[b["batchId"]].loads] if b["batchId"] in metrics else [],
        }
        for b in batches
    ]
    warm = rows[WARM_UP:] or rows
    latencies = [row["seconds"] for row in warm]
    imbalances = [row["imbalance"] for row in warm if row["imbalance"] is not None]
    return {
        "records": sum(row["records"] for row in rows),
        "bad_records": sum(map(_bad_records, batches)),
        "records_per_s": sum(row["records"] for row in warm) / max(1e-9, sum(latencies)),
        "latency_s": float(np.median(latencies)) if latencies else None,
        "worst_latency_s": max(latencies, default=None),
        "imbalance": float(np.mean(imbalances)) if imbalances else None,
        "state_rows": max((row["state_rows"] for row in rows), default=0),
        "state_bytes": max((row["state_bytes"] for row in rows), default=0),
        "batches": rows,
    }


def _wait_for_metrics(balance: Balancer, batches: Sequence[Any]) -> None:
    deadline = time.monotonic() + METRICS_TIMEOUT_S
    while batches and time.monotonic() < deadline:
        if balance.metrics and balance.metrics[-1].batch >= batches[-1]["batchId"]:
            return
        time.sleep(POLL_S)


def _show(model: DataFrame, sink: str) -> None:
    if sink == "console":
        model.show(truncate=False)
    else:
        model.write.format(sink).mode("overwrite").save()


def _reason(error: Exception) -> str:
    """Return the useful line of an error of Spark: its last cause."""
    lines = [re.sub(r"^(Caused by)?: ", "", line.strip()) for line in str(error).splitlines()]
    causes = [line for line in lines if re.match(r"[\w.$]*(Error|Exception|ERROR)\b.*: ", line)]
    return (causes or [line for line in lines if line] or [repr(error)])[-1 if causes else 0][:500]


@contextmanager
def _folder(checkpoint: Path | None) -> Iterator[Path]:
    if checkpoint is not None:
        yield checkpoint
        return
    folder = Path(tempfile.mkdtemp(prefix="unskew-run-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
