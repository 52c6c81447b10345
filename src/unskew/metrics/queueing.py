"""Latency and throughput of workers that are queues."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.kernels.measures import BUCKETS, DROPPED_BITS, bucket_of, queue
from unskew.metrics.base import Measure, Result

QUANTILES = {"latency_p50_s": 0.50, "latency_p95_s": 0.95, "latency_p99_s": 0.99}


@dataclass(eq=False)
class Queueing(Measure):
    """Every worker a first-in-first-out queue with a fixed service time: what a user would feel.

    Record i (from 0, over all chunks) arrives at i / arrival_rate seconds and takes service_s /
    capacity seconds of its worker. Latency is waiting plus service. Mean and maximum are exact;
    a percentile q (the smallest latency that q of the records do not exceed) is read from a
    logarithmic histogram and is at most 1 % off, as long as no latency is above 2^63 times the
    shortest service. O(1) a record, O(n_workers) memory.

    Parameters
    ----------
    n_workers
        Workers, each with its queue.
    arrival_rate
        Records that arrive a second; ``math.inf`` if all wait at time 0.
    service_s
        Seconds that a worker of capacity 1 needs for a record.
    capacities
        How many times faster each worker is; all 1 if not given.

    Examples
    --------
    >>> measure = Queueing(2, arrival_rate=1.0, service_s=2.0)
    >>> measure.update([7, 7, 8, 7], [0, 0, 1, 0])
    >>> result = measure.result()
    >>> result["makespan_s"], result["latency_mean_s"], result["latency_max_s"]
    (6.0, 2.5, 3.0)
    >>> [round(share, 3) for share in result["utilisation"]]
    [1.0, 0.333]
    """

    arrival_rate: float
    service_s: float
    capacities: ArrayLike | None = None
    _services_s: NDArray[np.float64] = field(init=False, repr=False)
    _free_s: NDArray[np.float64] = field(init=False, repr=False)
    _loads: NDArray[np.int64] = field(init=False, repr=False)
    _buckets: NDArray[np.int64] = field(init=False, repr=False)
    _totals: NDArray[np.float64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.arrival_rate > 0:
            raise ValueError(f"arrival_rate must be positive, got {self.arrival_rate}")
        if not 0 < self.service_s < math.inf:
            raise ValueError(f"service_s must be positive and finite, got {self.service_s}")
        self._services_s = self.service_s / self._checked_capacities()
        self._free_s = np.zeros(self.n_workers)
        self._loads = np.zeros(self.n_workers, np.int64)
        self._buckets = np.zeros(BUCKETS, np.int64)
        self._totals = np.zeros(3)

    def update(self, keys: ArrayLike, workers: ArrayLike) -> None:
        """Take in a chunk of records, the next that arrive; the keys do not matter."""
        accepted = self._accept(keys, workers)
        numbers = self._totals[0] + np.arange(len(accepted))
        self.serve(accepted, numbers / float(self.arrival_rate))

    def serve(
        self, workers: NDArray[np.int32], arrivals_s: NDArray[np.float64], release_s: float = 0.0
    ) -> None:
        """Take in records that arrived at given times and were held back until ``release_s``."""
        queue(
            workers,
            arrivals_s,
            release_s,
            self._services_s,
            self._free_s,
            self._loads,
            self._buckets,
            self._totals,
        )

    def result(self) -> Result:
        """Return the makespan, the throughput, the latencies and each worker's utilisation."""
        records = int(self._totals[0])
        makespan_s = float(self._free_s.max())
        busy_s = self._loads * self._services_s
        return {
            "records": records,
            "makespan_s": makespan_s,
            "throughput_per_s": records / makespan_s if records else 0.0,
            "latency_mean_s": float(self._totals[1]) / max(records, 1),
            **{name: self._quantile(share) for name, share in QUANTILES.items()},
            "latency_max_s": float(self._totals[2]),
            "utilisation": (busy_s / makespan_s if records else busy_s).tolist(),
        }

    def _quantile(self, share: float) -> float:
        """Return the middle of the bucket that holds the quantile; 0 without records."""
        ranks = np.cumsum(self._buckets)
        if ranks[-1] == 0:
            return 0.0
        rank = max(1, math.ceil(share * int(ranks[-1])))
        shortest_s, longest_s = self._services_s.min(), self._totals[2]
        bucket = int(bucket_of(shortest_s)) + int(np.searchsorted(ranks, rank))
        edges = np.array([bucket, bucket + 1], np.int64) << DROPPED_BITS
        return float(np.clip(edges.view(np.float64).mean(), shortest_s, longest_s))

    def _checked_capacities(self) -> NDArray[np.float64]:
        if self.capacities is None:
            return np.ones(self.n_workers)
        capacities = np.array(self.capacities, np.float64)
        if capacities.shape != (self.n_workers,):
            raise ValueError(
                f"capacities must have {self.n_workers} entries, got shape {capacities.shape}"
            )
        if not (np.isfinite(capacities) & (capacities > 0)).all():
            raise ValueError(f"capacities must be positive and finite, got {capacities.tolist()}")
        return capacities
