"""Interval simulation: a stream is cut into intervals, and planners plan after each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from unskew.metrics import Queueing
from unskew.planners import Plan, Planner, Window, read_planners
from unskew.routers import Scheme, read_schemes
from unskew.sim.contenders import Contender, Migration, PlannerContender, SchemeContender
from unskew.sim.run import WorkerChange, most_workers
from unskew.sim.simulate import Progress, Queue, check_changes
from unskew.sim.sources import Sources
from unskew.state import whole
from unskew.workloads import Chunk, Stream, open_stream

LARGEST_CHUNK = 65_536


def simulate_plans(
    stream: Stream | str,
    planners: str | dict[str, Planner],
    workers: int,
    *,
    schemes: str | Sequence[Scheme] = (),
    sources: int = 1,
    interval: int | None = None,
    intervals: int | None = None,
    window: Window | int = 5,
    fallback: str = "consistent",
    queue: Queue | None = None,
    migration: Migration | None = None,
    changes: Sequence[WorkerChange] = (),
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Send a stream through planners that replan after every interval, and measure each interval.

    Parameters
    ----------
    stream
        A stream, or its spec (`unskew.open_stream`).
    planners
        Planners by name, or a string that names them, as in ``"mixed:resolution=8,readj"``.
    workers, sources
        The numbers of workers and sources; sources matter only to online schemes.
    schemes
        Online schemes to compare with; ``shuffle`` is the ideal.
    interval, intervals
        The records of an interval (by default the stream's own interval, or its length over
        ``intervals``), and the number of intervals to run (by default all).
    window
        The number of intervals for which a record leaves state; or a `Window`, which also defines
        the size of the state and the cost of a record.
    fallback
        The hash of keys without an entry: ``consistent`` or ``key``.
    queue, migration
        Service times and the arrival rate, for throughput and latency; and the duration of a
        migration, during which moved keys pause. Without a queue a new plan takes effect at once.
    changes
        Workers that join and leave, at the end of the interval in which they do; a scheme that is
        not elastic starts again with the active workers.
    progress
        Called with the number of records since the last call.

    Returns
    -------
    dict
        ``stream``: its description; ``results``: the measures of each contender by interval, and
        their means.

    Examples
    --------
    >>> spec = "fluctuating-zipf:keys=1000,records=40000,interval=10000,workers=5,seed=1"
    >>> out = simulate_plans(spec, "mixed", workers=5, schemes="shuffle", fallback="key")
    >>> [row["falls_short"] for row in out["results"][0]["intervals"]]
    ['', '', '', '']
    """
    source = open_stream(stream) if isinstance(stream, str) else stream
    whole("workers", workers, 1)
    whole("sources", sources, 1)
    check_changes(changes, workers, source.n_records)
    if queue is not None and not math.isfinite(queue.rate):
        raise ValueError(
            f"planners need a finite arrival rate, got {queue.rate}: set one, because intervals "
            "take time"
        )
    if changes and fallback == "key":
        raise ValueError("with the fallback 'key' workers cannot change: use 'consistent'")
    pool = _WorkerPool(workers, queue, list(changes))
    contenders = _contenders(
        planners, schemes, pool, sources=sources, fallback=fallback, migration=migration
    )
    length = _interval(source, interval, intervals)
    check_changes(changes, workers, intervals * length if intervals else None)
    rate, at = queue.rate if queue else 1.0, 0
    if not isinstance(window, Window):
        whole("window", window, 1)
        window = Window(window)
    window = replace(window)  # a copy, so that the caller's window does not change
    for chunk, ends in _cut(source, length, intervals):
        arrivals_s = (at + np.arange(len(chunk.keys))) / rate
        window.update(chunk.keys)
        for contender in contenders:
            contender.take(chunk, arrivals_s)
        at += len(chunk.keys)
        if ends:
            _end_interval(contenders, pool, window, at, at / rate)
        if progress is not None:
            progress(len(chunk.keys))
    for contender in contenders:
        contender.finish(pool.capacities)
    return {
        "stream": source.describe(),
        "workers": workers,
        "interval_records": length,
        "results": [contender.result() for contender in contenders],
    }


class _WorkerPool:
    """The capacities of all workers; that of an inactive worker is 0."""

    def __init__(self, workers: int, queue: Queue | None, changes: list[WorkerChange]) -> None:
        self.workers, self.queue = workers, queue
        self.n_ever = most_workers(workers, tuple(changes))
        self.capacities = np.zeros(self.n_ever)
        self.queues()  # refuses a wrong number of capacities
        capacities = None if queue is None else queue.capacities
        self.capacities[:workers] = 1.0 if capacities is None else capacities
        self.changes = sorted(changes, key=lambda change: change.at)
        self.known = workers

    def queues(self) -> Queueing | None:
        return self.queue.model(self.workers, self.n_ever) if self.queue else None

    def change(self, at: int) -> None:
        """Apply the changes up to a record."""
        due = [change for change in self.changes if change.at <= at]
        self.changes = self.changes[len(due) :]
        for change in due:
            if change.worker is None:
                self.capacities[self.known] = 1.0
                self.known += 1
            else:
                self.capacities[change.worker] = 0.0


def _contenders(
    planners: str | dict[str, Planner],
    schemes: str | Sequence[Scheme],
    pool: _WorkerPool,
    *,
    sources: int,
    fallback: str,
    migration: Migration | None,
) -> list[Contender]:
    queue = pool.queue
    plan = Plan.empty(pool.capacities[: pool.workers].tolist(), fallback=fallback)
    chosen = read_planners(planners) if isinstance(planners, str) else planners
    if isinstance(schemes, str):
        schemes = read_schemes(schemes)
    pauses = (migration or Migration()) if queue else None
    contenders: list[Contender] = [
        PlannerContender(name, pool.n_ever, pool.queues(), planner, plan, pauses)
        for name, planner in chosen.items()
    ]
    defaults = queue.defaults(sources) if queue else {}
    for scheme in schemes:
        routers = Sources(scheme, pool.workers, sources, defaults=defaults)
        contenders.append(SchemeContender(str(scheme), pool.n_ever, pool.queues(), routers))
    return contenders


def _end_interval(
    contenders: list[Contender], pool: _WorkerPool, window: Window, at: int, boundary_s: float
) -> None:
    for contender in contenders:
        contender.end(pool.capacities)
    pool.change(at)
    statistics = window.close(pool.capacities[: pool.known])
    for contender in contenders:
        contender.replan(statistics, boundary_s)


def _interval(stream: Stream, interval: int | None, intervals: int | None) -> int:
    """Return the records of an interval: the argument, the stream's own, or a part of it."""
    if intervals is not None:
        whole("intervals", intervals, 1)
    if interval is None:
        interval = getattr(stream, "interval", None)
    if interval is None and intervals is not None and stream.n_records:
        interval = max(1, stream.n_records // intervals)
    if interval is None:
        raise ValueError(
            "the length of an interval is unknown: give its records, or the number of intervals"
        )
    whole("interval", interval, 1)
    return interval


def _cut(stream: Stream, length: int, intervals: int | None) -> Iterator[tuple[Chunk, bool]]:
    """Yield chunks that do not cross the end of an interval, and whether one ends after them."""
    left = math.inf if intervals is None else intervals
    size = math.ceil(length / math.ceil(length / LARGEST_CHUNK))
    filled = 0
    for chunk in stream.chunks(size):
        part = chunk
        while len(part.keys) and left > 0:
            cut = min(length - filled, len(part.keys))
            sources = part.source_keys
            yield (
                Chunk(part.keys[:cut], None if sources is None else sources[:cut]),
                filled + cut == length,
            )
            part = Chunk(part.keys[cut:], None if sources is None else sources[cut:])
            filled = (filled + cut) % length
            left -= filled == 0
        if left <= 0:
            return
