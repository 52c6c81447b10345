"""The numbers of Spark's Murmur3 hash of an INT, and of its inverse.

Spark puts a row on partition ``pmod(murmur3(columns), n)``. Murmur3 over several columns is a
chain, the hash of one column seeds the next, and for an INT column every step can be undone. So for
the hash of the other columns there is one INT, the slot, with ``murmur3(columns, slot) = worker``.
What of the inverse depends on the worker only is its anchor.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

C1, C2, ADDED = 0xCC9E2D51, 0x1B873593, 0xE6546B64
F1, F2 = 0x85EBCA6B, 0xC2B2AE35
INVERSE_C1, INVERSE_C2, INVERSE_5, INVERSE_F1, INVERSE_F2 = (
    pow(factor, -1, 2**32) for factor in (C1, C2, 5, F1, F2)
)
LENGTH = 4
MASK = 0xFFFFFFFF


def anchors(n_workers: int) -> NDArray[np.uint32]:
    """Return the anchor of every worker."""
    h: NDArray[Any] = np.arange(n_workers, dtype=np.uint64)
    h = (h ^ (h >> 16)) * INVERSE_F2 & MASK
    h = (h ^ (h >> 13) ^ (h >> 26)) * INVERSE_F1 & MASK
    h = (((h ^ (h >> 16) ^ LENGTH) - ADDED) & MASK) * INVERSE_5 & MASK
    return (h << 19 | h >> 13).astype(np.uint32)


def targets(n_workers: int) -> NDArray[np.int64]:
    """Return each worker, in the upper half, with its anchor."""
    return (np.arange(n_workers) << 32) | anchors(n_workers).astype(np.int64)


def homes(keys: NDArray[np.uint64], n_workers: int) -> NDArray[np.int32]:
    """Return where Spark puts keys with a slot of 0; their lower half is their Murmur3 hash."""
    h: NDArray[Any] = keys & np.uint64(MASK)
    h = (((h << 13 | h >> 19) & MASK) * 5 + ADDED & MASK) ^ LENGTH
    h = (h ^ h >> 16) * F1 & MASK
    h = (h ^ h >> 13) * F2 & MASK
    return np.mod((h ^ h >> 16).astype(np.uint32).view(np.int32), n_workers)


CELLS = 32
"""Parts that the keys of a worker are in: when it leaves, each goes to some other worker."""


def cells(keys: NDArray[np.uint64], n_workers: int) -> NDArray[np.int64]:
    """Return the cells of keys: by where Spark puts them, and by their upper half."""
    part = (keys >> np.uint64(32)).astype(np.int64) % CELLS
    return homes(keys, n_workers).astype(np.int64) * CELLS + part


def cell_workers(n_workers: int, active: Collection[int]) -> NDArray[np.int64]:
    """Return the worker of every cell: its own one or, if that is not active, some other.

    By the highest random weight, so that few cells change place when workers come or go.

    Examples
    --------
    >>> before, after = cell_workers(4, {0, 1, 2}), cell_workers(4, {0, 1})
    >>> np.unique(before[after != before]).tolist(), np.bincount(after).tolist()
    ([2], [65, 63])
    """
    chosen = np.array(sorted(active))
    cell = np.arange(n_workers * CELLS)
    owner = cell // CELLS
    mixed = (cell[:, None] * n_workers + chosen).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
    other = chosen[np.argmax(mixed ^ (mixed >> np.uint64(29)), axis=1)]
    return np.where(np.isin(owner, chosen), owner, other)
