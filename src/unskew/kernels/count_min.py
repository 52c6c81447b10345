"""Count-min rows, with weights and a salt: the plain sketch and the time-adaptive one."""

from __future__ import annotations

import numpy as np

from unskew.kernels.hashing import GOLDEN, U32, mix
from unskew.kernels.jit import inlined, kernel

ROW_SALT = np.uint64(0xBF58476D1CE4E5B9)


@inlined
def cell(key, salt, row, width):
    """Return the column of a key in a row: each row has a hash function of its own."""
    h = mix(key, salt + np.uint64(row) * ROW_SALT)
    return np.int64(((h >> U32) * np.uint64(width)) >> U32)


@kernel
def add_to_cells(cells, keys, salt, weight):
    depth, width = cells.shape
    for i in range(len(keys)):
        for row in range(depth):
            cells[row, cell(keys[i], salt, row, width)] += weight


@kernel
def add_least_cells(cells, keys, salt, scale, out):
    """Add the least cell of each key, times ``scale``, to ``out``."""
    depth, width = cells.shape
    for i in range(len(keys)):
        least = cells[0, cell(keys[i], salt, 0, width)]
        for row in range(1, depth):
            least = min(least, cells[row, cell(keys[i], salt, row, width)])
        out[i] += least * scale


def salt_of(seed: int, epoch: int) -> np.uint64:
    """Return the salt of an epoch: another hash function for each."""
    return np.uint64((seed + 1 + epoch) * int(GOLDEN) % 2**64)
