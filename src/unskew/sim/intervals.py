"""Interval simulation: planners over a stream that is cut into intervals, a plan after each."""

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
        How many there are; sources matter to online schemes only.
    schemes
        Online schemes to compare with; ``shuffle`` is the ideal.
    interval, intervals
        Records in an interval (the stream's own, or its length over ``intervals``), and how many
        of them to run (all).
    window
        For how many intervals a record leaves state; or a `Window`, which also says how much, and
        what a record costs.
    fallback
        The hash of keys without an entry: ``consistent`` or ``key``.
    queue, migration
        Service times and the arrival rate, for throughput and latency; and how long a migration
        takes, during which moved keys pause. Without a queue a new plan holds at once.
    changes
        Workers that come and go, after the interval in which they do; a scheme that is not elastic
        starts anew with the workers there are.
    progress
        Is called with the number of records done since the last call.

    Returns
    -------
    dict
        ``stream``: what it is; ``results``: the measures of each contender, by interval, and means.

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
        raise ValueError("planners need a finite arrival rate: intervals take time")
    if changes and fallback == "key":
        raise ValueError("with the fallback 'key' workers cannot change: use 'consistent'")
    workforce = _Workforce(workers, queue, list(changes))
    contenders = _contenders(
        planners, schemes, workforce, sources=sources, fallback=fallback, migration=migration
    )
    length = _interval(source, interval, intervals)
    check_changes(changes, workers, intervals * length if intervals else None)
    rate, at = queue.rate if queue else 1.0, 0
    if not isinstance(window, Window):
        whole("window", window, 1)
        window = Window(window)
    window = replace(window)  # a new one: the caller's stays as it is
    for chunk, ends in _cut(source, length, intervals):
        arrivals_s = (at + np.arange(len(chunk.keys))) / rate
        window.update(chunk.keys)
        for contender in contenders:
            contender.take(chunk, arrivals_s)
        at += len(chunk.keys)
        if ends:
            _end_interval(contenders, workforce, window, at, at / rate)
        if progress is not None:
            progress(len(chunk.keys))
    for contender in contenders:
        contender.finish(workforce.capacities)
    return {
        "stream": source.describe(),
        "workers": workers,
        "interval_records": length,
        "results": [contender.result() for contender in contenders],
    }


class _Workforce:
    """The workers: their capacities, 0 for one that is not there (yet)."""

    def __init__(self, workers: int, queue: Queue | None, changes: list[WorkerChange]) -> None:
        self.workers, self.queue = workers, queue
        self.n_ever = most_workers(workers, tuple(changes))
        self.capacities = np.zeros(self.n_ever)
        self.queues()  # refuses what does not fit
        given = None if queue is None else queue.capacities
        self.capacities[:workers] = 1.0 if given is None else given
        self.changes = sorted(changes, key=lambda change: change.at)
        self.known = workers

    def queues(self) -> Queueing | None:
        return self.queue.model(self.workers, self.n_ever) if self.queue else None

    def change(self, at: int) -> None:
        """Carry out the changes up to a record."""
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
    workforce: _Workforce,
    *,
    sources: int,
    fallback: str,
    migration: Migration | None,
) -> list[Contender]:
    queue = workforce.queue
    plan = Plan.empty(workforce.capacities[: workforce.workers].tolist(), fallback=fallback)
    chosen = read_planners(planners) if isinstance(planners, str) else planners
    if isinstance(schemes, str):
        schemes = read_schemes(schemes)
    pauses = (migration or Migration()) if queue else None
    contenders: list[Contender] = [
        PlannerContender(name, workforce.n_ever, workforce.queues(), planner, plan, pauses)
        for name, planner in chosen.items()
    ]
    defaults = queue.defaults(sources) if queue else {}
    for scheme in schemes:
        routers = Sources(scheme, workforce.workers, sources, defaults=defaults)
        contenders.append(
            SchemeContender(str(scheme), workforce.n_ever, workforce.queues(), routers)
        )
    return contenders


def _end_interval(
    contenders: list[Contender], workforce: _Workforce, window: Window, at: int, boundary_s: float
) -> None:
    for contender in contenders:
        contender.end(workforce.capacities)
    workforce.change(at)
    statistics = window.close(workforce.capacities[: workforce.known])
    for contender in contenders:
        contender.replan(statistics, boundary_s)


def _interval(stream: Stream, interval: int | None, intervals: int | None) -> int:
    """Return the records in an interval: as given, the stream's own, or its length over them."""
    if intervals is not None:
        whole("intervals", intervals, 1)
    if interval is None:
        interval = getattr(stream, "interval", None)
    if interval is None and intervals is not None and stream.n_records:
        interval = max(1, stream.n_records // intervals)
    if interval is None:
        raise ValueError("how long is an interval? give its records, or the number of intervals")
    whole("interval", interval, 1)
    return interval


def _cut(stream: Stream, length: int, intervals: int | None) -> Iterator[tuple[Chunk, bool]]:
    """Return the stream in chunks that no interval ends within, and whether one ends after it."""
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
