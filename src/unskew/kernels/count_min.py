"""Count-min rows, with weights and a salt: the plain sketch and the time-adaptive one."""

from __future__ import annotations

import numpy as np

from unskew.kernels.hashing import GOLDEN, LOW_32, U32, mix
from unskew.kernels.jit import inlined, kernel


@inlined
def cell(h, row, width):
    """Return the column of a hash in a row (Kirsch and Mitzenmacher: two hashes serve for all)."""
    low = (h & LOW_32) + np.uint64(row) * ((h >> U32) | np.uint64(1))
    return np.int64(((low & LOW_32) * np.uint64(width)) >> U32)


@kernel
def add_to_cells(cells, keys, salt, weight):
    depth, width = cells.shape
    for i in range(len(keys)):
        h = mix(keys[i], salt)
        for row in range(depth):
            cells[row, cell(h, row, width)] += weight


@kernel
def add_least_cells(cells, keys, salt, scale, out):
    """Add the least cell of each key, times ``scale``, to ``out``."""
    depth, width = cells.shape
    for i in range(len(keys)):
        h = mix(keys[i], salt)
        least = cells[0, cell(h, 0, width)]
        for row in range(1, depth):
            least = min(least, cells[row, cell(h, row, width)])
        out[i] += least * scale


def salt_of(seed: int, epoch: int) -> np.uint64:
    """Return the salt of an epoch: another hash function for each."""
    return np.uint64((seed + 1 + epoch) * int(GOLDEN) % 2**64)
