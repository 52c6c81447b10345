"""Replication: at how many workers a key has state."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.kernels.measures import count_pairs
from unskew.kernels.table import Table, new_table, refill
from unskew.metrics.base import Measure, Result

FIRST_CAPACITY = 1024


@dataclass(eq=False)
class Replication(Measure):
    """Distinct (key, worker) pairs per distinct key: 1 for key grouping, at most the workers.

    Exact: a hash table of the keys and a bitmap of the workers of each, which double when full.
    Memory is 24 to 48 bytes a key and 8 to 16 bytes a key for every 64 workers.

    Parameters
    ----------
    n_workers
        Workers that there may ever be.

    Examples
    --------
    >>> measure = Replication(3)
    >>> measure.update([7, 7, 8, 7], [0, 1, 1, 0])
    >>> measure.result()
    {'keys': 2, 'replicas': 3, 'replication': 1.5, 'worker_keys': [1, 2, 0]}
    """

    _table: Table = field(init=False, repr=False)
    _rows: NDArray[np.uint64] = field(init=False, repr=False)
    _counters: NDArray[np.int64] = field(init=False, repr=False)
    _worker_keys: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._table = new_table(FIRST_CAPACITY)
        self._rows = np.zeros((FIRST_CAPACITY, -(-self.n_workers // 64)), np.uint64)
        self._counters = np.zeros(1, np.int64)
        self._worker_keys = np.zeros(self.n_workers, np.int64)

    def update(self, keys: ArrayLike, workers: ArrayLike) -> None:
        """Take in a chunk of records."""
        accepted = self._accept(keys, workers)
        hashes = np.ascontiguousarray(keys, np.uint64)
        done = self._mark(hashes, accepted, 0)
        while done < hashes.size:
            self._double()
            done = self._mark(hashes, accepted, done)

    def result(self) -> Result:
        """Return the keys, their replicas, and the keys that each worker holds."""
        keys, replicas = int(self._counters[0]), int(self._worker_keys.sum())
        return {
            "keys": keys,
            "replicas": replicas,
            "replication": replicas / max(keys, 1),
            "worker_keys": self._worker_keys.tolist(),
        }

    def _mark(self, keys: NDArray[np.uint64], workers: NDArray[np.int32], start: int) -> int:
        stop = count_pairs(
            keys, workers, start, self._table, self._rows, self._counters, self._worker_keys
        )
        return int(stop)

    def _double(self) -> None:
        table = new_table(2 * len(self._rows))
        refill(self._table, table)
        self._table = table
        self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
