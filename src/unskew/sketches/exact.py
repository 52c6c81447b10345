"""Exact counts, and the growing index of keys that they and the routing tables stand on."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels.table import Table, find_ids, index_keys, new_table, refill
from unskew.sketches.base import Estimates, Sketch, hottest
from unskew.state import Stateful

FIRST_CAPACITY = 1024


@dataclass(repr=False, eq=False)
class KeyIndex(Stateful):
    """Keys numbered 0, 1, 2, ... as they first come; grows by doubling.

    Examples
    --------
    >>> index = KeyIndex()
    >>> index.number(np.array([7, 9, 7], np.uint64)).tolist()
    [0, 1, 0]
    >>> index.find(np.array([9, 8], np.uint64)).tolist()
    [1, -1]
    """

    table: Table = field(init=False)
    size: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.table = new_table(FIRST_CAPACITY)
        self.size = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return int(self.size[0])

    def number(self, keys: Keys) -> NDArray[np.int32]:
        """Return the number of each key; new ones get the next."""
        ids = np.empty(len(keys), np.int32)
        done = index_keys(self.table, keys, 0, self.size, ids)
        while done < len(keys):
            larger = new_table(len(self.table.keys))
            refill(self.table, larger)
            self.table = larger
            done = index_keys(self.table, keys, done, self.size, ids)
        return ids

    def find(self, keys: Keys) -> NDArray[np.int32]:
        """Return the number of each key, -1 for one that never came."""
        ids = np.empty(len(keys), np.int32)
        find_ids(self.table, keys, ids)
        return ids

    def keys(self) -> Keys:
        """Return the keys by number."""
        used = self.table.ids >= 0
        keys = np.empty(len(self), np.uint64)
        keys[self.table.ids[used]] = self.table.keys[used]
        return keys


def grown(array: NDArray[np.int64], size: int, fill: int) -> NDArray[np.int64]:
    """Return an array with room for ``size`` entries, at least doubled when it has to grow."""
    if size <= len(array):
        return array
    larger = np.full(max(size, 2 * len(array)), fill, array.dtype)
    larger[: len(array)] = array
    return larger


@dataclass(repr=False, eq=False)
class Exact(Sketch):
    """A counter for every key: the yardstick. Memory grows with the number of keys.

    Examples
    --------
    >>> sketch = Exact()
    >>> sketch.update([1, 2, 1])
    >>> sketch.estimate([1, 2, 3]).tolist()
    [2.0, 1.0, 0.0]
    """

    index: KeyIndex = field(init=False, default_factory=KeyIndex)
    counts: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.counts = np.zeros(FIRST_CAPACITY, np.int64)

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.counts.sum())

    def hot(self, share: float = 0.0) -> tuple[Keys, Estimates]:
        """Return the keys with at least this share of the records, and their counts."""
        counts = self.counts[: len(self.index)].astype(np.float64)
        return hottest(self.index.keys(), counts, share * self.total)

    def _update(self, keys: Keys) -> None:
        self._add(keys, np.ones(len(keys), np.int64))

    def _add(self, keys: Keys, counts: NDArray[np.int64]) -> None:
        ids = self.index.number(keys)
        self.counts = grown(self.counts, len(self.index), 0)
        np.add.at(self.counts, ids, counts)

    def _bounds(self, keys: Keys) -> tuple[Estimates, Estimates]:
        ids = self.index.find(keys)
        counts = np.where(ids >= 0, self.counts[ids], 0).astype(np.float64)
        return counts, counts.copy()

    def _merge(self, other: Exact) -> None:
        self._add(other.index.keys(), other.counts[: len(other.index)])
