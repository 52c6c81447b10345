"""Simulation of one or several schemes over a stream, with S sources and W workers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from unskew.metrics import Agreement, Queueing
from unskew.routers import Scheme, read_schemes
from unskew.sim.run import Run, WorkerChange, most_workers
from unskew.sim.sources import Feed, Sources
from unskew.sketches import Exact
from unskew.state import whole
from unskew.workloads import Stream, open_stream

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Queue:
    """The queueing model: records a second, seconds for a record, and how fast each worker is.

    With an infinite rate all records wait at the start: the makespan is then the time of the
    busiest worker.
    """

    rate: float = math.inf
    service_s: float = 1e-4
    capacities: Sequence[float] | None = None

    def model(self, n_workers: int, n_ever: int) -> Queueing:
        """Return the queues of the workers; a worker that joins later has a capacity of 1."""
        capacities = [1.0] * n_workers if self.capacities is None else list(self.capacities)
        if len(capacities) != n_workers:
            raise ValueError(
                f"capacities must have one entry for each of {n_workers} workers, "
                f"got {len(capacities)}"
            )
        capacities += [1.0] * (n_ever - n_workers)
        return Queueing(n_ever, self.rate, self.service_s, capacities)

    def defaults(self, n_sources: int) -> dict[str, Any]:
        """Return the parameters of the model for schemes; a source sees its part of the records."""
        parameters: dict[str, Any] = {"capacities": self.capacities}
        if math.isfinite(self.rate):
            parameters |= {"rate": self.rate / n_sources, "service_s": self.service_s * n_sources}
        return parameters


def simulate(
    stream: Stream | str,
    schemes: str | Iterable[Scheme],
    workers: int,
    *,
    sources: int = 1,
    feed: Feed = "round-robin",
    queue: Queue | None = None,
    changes: Sequence[WorkerChange] = (),
    interval: int = 10_000,
    agreement: bool = False,
    chunk: int = 65_536,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Send a stream through schemes, and measure balance, replication and latency.

    The stream is read once, in chunks; an offline scheme needs a second pass. Memory grows with the
    number of keys, not with the length of the stream.

    Parameters
    ----------
    stream
        A stream, or its spec (`unskew.open_stream`).
    schemes
        Schemes, or a string that names them, as in ``"key,pkg:load=global"``.
    workers, sources
        The numbers of workers and sources.
    feed
        How records are assigned to sources: ``round-robin``, or by the hash of their source
        ``key``.
    queue
        Service times and the arrival rate, for throughput and latency.
    changes
        Workers that join and leave; for elastic schemes only.
    interval
        The number of records over which the standard deviation of the loads is measured.
    agreement
        Whether to compare the decisions of each pair of schemes.
    chunk
        The number of records that are read and routed at a time.
    progress
        Called with the number of records since the last call.

    Returns
    -------
    dict
        ``stream``: its description; ``results``: the measures of each scheme, in the order of
        ``schemes``; and ``agreement`` if requested. All values are plain numbers and lists.

    Examples
    --------
    >>> out = simulate("zipf:z=1.4,keys=100,records=10000,seed=1", "key,pkg,shuffle", workers=4)
    >>> [(r["scheme"], r["replicas"], round(r["relative_imbalance"], 2)) for r in out["results"]]
    [('key', 100, 1.19), ('pkg', 122, 0.06), ('shuffle', 378, 0.0)]
    """
    source = open_stream(stream) if isinstance(stream, str) else stream
    chosen = read_schemes(schemes) if isinstance(schemes, str) else list(schemes)
    whole("workers", workers, 1)
    whole("sources", sources, 1)
    check_changes(changes, workers, source.n_records)
    n_ever = most_workers(workers, tuple(changes))
    defaults = queue.defaults(sources) if queue else {}
    runs = [
        Run(
            Sources(scheme, workers, sources, feed, defaults),
            queue.model(workers, n_ever) if queue else None,
            interval,
            tuple(changes),
        )
        for scheme in chosen
    ]
    _teach(runs, source, chunk)
    pairs = list(itertools.combinations(range(len(runs)), 2)) if agreement else []
    agreements = [Agreement() for _ in pairs]
    for part in source.chunks(chunk):
        routed = [run.take(part) for run in runs]
        for (a, b), measure in zip(pairs, agreements, strict=True):
            measure.update(routed[a], routed[b])
        if progress is not None:
            progress(len(part.keys))
    out = {"stream": source.describe(), "results": [run.result() for run in runs]}
    if agreement:
        out["agreement"] = [
            {"schemes": [str(chosen[a]), str(chosen[b])], **measure.result()}
            for (a, b), measure in zip(pairs, agreements, strict=True)
        ]
    return out


def check_changes(changes: Sequence[WorkerChange], n_workers: int, n_records: int | None) -> None:
    """Refuse changes of workers that cannot happen."""
    active, ever = set(range(n_workers)), n_workers
    for change in sorted(changes, key=lambda change: change.at):
        if n_records is not None and change.at >= n_records:
            raise ValueError(
                f"a change of workers must come before record {n_records}, the end of the stream, "
                f"got record {change.at}"
            )
        if change.worker is None:
            active.add(ever)
            ever += 1
        elif change.worker not in active or len(active) == 1:
            raise ValueError(
                f"worker {change.worker} cannot leave before record {change.at}: it must be "
                "active, and not the only one"
            )
        else:
            active.remove(change.worker)


def _teach(runs: list[Run], stream: Stream, chunk: int) -> None:
    """Give offline schemes the frequencies of the whole stream."""
    offline = [run for run in runs if run.sources.scheme.router.offline]
    if offline:
        frequencies = Exact()
        for part in stream.chunks(chunk):
            frequencies.update(part.keys)
        for run in offline:
            run.sources.learn(frequencies)
