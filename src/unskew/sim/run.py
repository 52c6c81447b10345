"""A run of one scheme over one stream, with all its measures."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.metrics import Imbalance, IntervalSpread, Queueing, Replication
from unskew.sim.sources import Sources
from unskew.spec import number
from unskew.workloads import Chunk


@dataclass(frozen=True)
class WorkerChange:
    """A worker that joins (``worker`` is None) or leaves before record number ``at``."""

    at: int
    worker: int | None = None

    @classmethod
    def read(cls, text: str) -> WorkerChange:
        """Return the change that ``at:+`` (a worker joins) or ``at:-worker`` stands for.

        Examples
        --------
        >>> WorkerChange.read("5e5:+"), WorkerChange.read("800000:-3")
        (WorkerChange(at=500000, worker=None), WorkerChange(at=800000, worker=3))
        """
        at, _, change = text.strip().partition(":")
        try:
            record = int(number("at", at, whole=True))
            worker = None if change == "+" else int(change.removeprefix("-"))
            if record < 0 or not (change == "+" or change.startswith("-")):
                raise ValueError
        except ValueError:
            raise ValueError(
                f"a change of workers must look like 500000:+ or 500000:-3, got {text!r}"
            ) from None
        return cls(record, worker)


@dataclass
class Run:
    """A scheme at its sources, with its measures so far."""

    sources: Sources
    queueing: Queueing | None = None
    interval: int = 10_000
    changes: tuple[WorkerChange, ...] = ()
    at: int = field(init=False, default=0)
    seconds: float = field(init=False, default=0.0)
    active: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        if self.changes and not self.sources.scheme.router.elastic:
            raise ValueError(
                f"{self.sources.scheme.name} cannot change its workers while it runs: "
                "use fish or consistent"
            )
        self.changes = tuple(sorted(self.changes, key=lambda change: change.at))
        most = most_workers(self.sources.n_workers, self.changes)
        self.active = np.arange(most) < self.sources.n_workers
        self._added = self.sources.n_workers
        self.imbalance = Imbalance(most)
        self.spread = IntervalSpread(most, self.interval)
        self.replication = Replication(most)
        self._update_measures()

    def take(self, chunk: Chunk) -> NDArray[np.int32]:
        """Route a chunk, update the measures, and return the workers of its records."""
        started = time.perf_counter()
        workers = np.empty(len(chunk.keys), np.int32)
        for part in self._parts(len(chunk.keys)):
            self._before(self.at)
            source_keys = None if chunk.source_keys is None else chunk.source_keys[part]
            piece = Chunk(chunk.keys[part], source_keys)
            workers[part] = self.sources.route(piece)
            for measure in (self.imbalance, self.spread, self.replication, self.queueing):
                if measure is not None:
                    measure.update(piece.keys, workers[part])
            self.at += len(piece.keys)
        self.seconds += time.perf_counter() - started
        return workers

    def _parts(self, length: int) -> Iterator[slice]:
        """Yield the parts of a chunk between probes and changes of workers."""
        start, end = self.at, self.at + length
        cuts = {change.at for change in self.changes if start < change.at < end}
        if every := self.sources.probe_every:
            cuts.update(range(start - start % every + every, end, every))
        edges = [start, *sorted(cuts), end]
        for low, high in itertools.pairwise(edges):
            if low < high:
                yield slice(low - start, high - start)

    def _before(self, record: int) -> None:
        every = self.sources.probe_every
        if every and record and record % every == 0:
            self.sources.probe(self.imbalance.loads)
        while self.changes and self.changes[0].at <= record:
            change, *rest = self.changes
            self.changes = tuple(rest)
            if change.worker is None:
                self.sources.add_worker()
                self.active[self._added] = True
                self._added += 1
            else:
                self.sources.remove_worker(change.worker)
                self.active[change.worker] = False
            self._update_measures()

    def _update_measures(self) -> None:
        self.imbalance.set_active(self.active)
        self.spread.set_active(self.active)

    def result(self) -> dict[str, Any]:
        """Return all measures as plain numbers and lists."""
        imbalance, spread = self.imbalance.result(), self.spread.result()
        replication = self.replication.result()
        result = {
            "scheme": str(self.sources.scheme),
            "workers": self.sources.n_workers,
            "workers_at_end": int(self.active.sum()),
            "sources": self.sources.n_sources,
            "feed": self.sources.feed,
            "records": imbalance["records"],
            "keys": replication["keys"],
            "imbalance_final": imbalance["imbalance"],
            "imbalance_final_fraction": imbalance["imbalance_fraction"],
            "imbalance_average_fraction": imbalance["mean_imbalance_fraction"],
            "relative_imbalance": imbalance["imbalance_to_mean_load"],
            "replicas": replication["replicas"],
            "replication": replication["replication"],
            "loads": imbalance["loads"],
            "worker_keys": replication["worker_keys"],
            "load_std_mean": spread["load_std_mean"],
            "load_std_interval_records": self.interval,
            "through_time": {
                "records": imbalance["series_records"],
                "imbalance_fraction": imbalance["series_imbalance_fraction"],
                "interval_records": spread["series_records"],
                "load_std": spread["series_load_std"],
            },
            "seconds": self.seconds,
            "records_per_s": imbalance["records"] / max(self.seconds, 1e-9),
        }
        if self.queueing is not None:
            result["queueing"] = self.queueing.result()
        return result


def most_workers(n_workers: int, changes: tuple[WorkerChange, ...]) -> int:
    """Return the number of workers over the whole run, including those that left."""
    return n_workers + sum(change.worker is None for change in changes)
