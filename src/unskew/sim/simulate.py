"""Simulation: S sources and W workers over a stream, for one scheme or several side by side."""

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
    """The queueing model: records a second, seconds a record, and how fast workers are.

    A rate of infinity means that all records wait at the start: the makespan is then the time
    that the busiest worker takes.
    """

    rate: float = math.inf
    service_s: float = 1e-4
    capacities: Sequence[float] | None = None

    def model(self, n_workers: int, n_ever: int) -> Queueing:
        """Return the queues of the workers; one that comes later has a capacity of 1."""
        given = [1.0] * n_workers if self.capacities is None else list(self.capacities)
        if len(given) != n_workers:
            raise ValueError(
                f"capacities must have one entry for each of {n_workers} workers, got {len(given)}"
            )
        given += [1.0] * (n_ever - n_workers)
        return Queueing(n_ever, self.rate, self.service_s, given)

    def defaults(self, n_sources: int) -> dict[str, Any]:
        """Return what schemes can know of it: a source gets its part of the records."""
        known: dict[str, Any] = {"capacities": self.capacities}
        if math.isfinite(self.rate):
            known |= {"rate": self.rate / n_sources, "service_s": self.service_s * n_sources}
        return known


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
    """Send a stream through schemes, and measure what they do with it.

    The stream is read once, in chunks; an offline scheme makes it be read twice. Memory does not
    grow with the stream, only with its keys.

    Parameters
    ----------
    stream
        A stream, or its spec (`unskew.open_stream`).
    schemes
        Schemes, or a string that names them, as in ``"key,pkg:load=global"``.
    workers, sources
        How many there are.
    feed
        How records come to the sources: ``round-robin``, or by the hash of their source ``key``.
    queue
        Service times and the arrival rate, for throughput and latency.
    changes
        Workers that come and go; for elastic schemes only.
    interval
        Records over which the standard deviation of the loads is taken.
    agreement
        Whether to compare the decisions of every two schemes.
    chunk
        Records that are read and routed at a time.
    progress
        Is called with the number of records done since the last call.

    Returns
    -------
    dict
        ``stream``: what it is; ``results``: the measures of each scheme, in the order given; and
        ``agreement`` if asked for. Plain numbers and lists throughout.

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
    """Refuse changes that could not happen."""
    active, ever = set(range(n_workers)), n_workers
    for change in sorted(changes, key=lambda change: change.at):
        if n_records is not None and change.at >= n_records:
            raise ValueError(f"a change before record {change.at} of {n_records} comes too late")
        if change.worker is None:
            active.add(ever)
            ever += 1
        elif change.worker not in active or len(active) == 1:
            raise ValueError(f"worker {change.worker} cannot go before record {change.at}")
        else:
            active.remove(change.worker)


def _teach(runs: list[Run], stream: Stream, chunk: int) -> None:
    """Let offline schemes see the whole stream first."""
    offline = [run for run in runs if run.sources.scheme.router.offline]
    if offline:
        frequencies = Exact()
        for part in stream.chunks(chunk):
            frequencies.update(part.keys)
        for run in offline:
            run.sources.learn(frequencies)
