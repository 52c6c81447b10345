"""The inverse of Spark's hash partitioning: the INT that sends a row where it should go.

How it works is told in `unskew.murmur`.
"""

from __future__ import annotations

import numpy as np

from unskew import murmur
from unskew.kernels.jit import inlined, kernel
from unskew.murmur import ADDED, C1, C2, F1, F2, INVERSE_C1, INVERSE_C2

LENGTH, MASK = np.uint64(murmur.LENGTH), np.uint64(murmur.MASK)


# 32-bit numbers are kept in 64 bits: numba widens a product of two uint32 anyway.
@inlined
def times(x, factor):
    return (x * np.uint64(factor)) & MASK


@inlined
def rotated(x, left):
    return ((x << np.uint64(left)) | (x >> np.uint64(32 - left))) & MASK


@inlined
def murmur_int(value, seed):
    """Return Spark's Murmur3 hash of an INT, seeded by the hash of the columns before it."""
    h = seed ^ times(rotated(times(value, C1), 15), C2)
    h = (times(rotated(h, 13), 5) + np.uint64(ADDED)) & MASK
    h ^= LENGTH
    h = times(h ^ (h >> np.uint64(16)), F1)
    h = times(h ^ (h >> np.uint64(13)), F2)
    return h ^ (h >> np.uint64(16))


@inlined
def partition_of(h, n_workers):
    """Return Spark's pmod of a hash, which is a signed 32-bit number."""
    found = np.int64(h)
    signed = found - (found >> 31 << 32)
    return signed - n_workers * (signed // n_workers)


@kernel
def write_slots(hashes, workers, anchors, out):
    """Write the slot that sends each row, by the hash of its other columns, to its worker.

    It is 0 on the worker that Spark's hash would choose, so a key has one slot for each worker.
    """
    for i in range(len(hashes)):
        home = partition_of(murmur_int(np.uint64(0), np.uint64(hashes[i])), len(anchors))
        mixed = times(np.uint64(anchors[workers[i]] ^ hashes[i]), INVERSE_C2)
        out[i] = 0 if workers[i] == home else times(rotated(mixed, 17), INVERSE_C1)


@kernel
def write_partitions(hashes, slots, n_workers, out):
    """Write where Spark puts rows with these slots."""
    for i in range(len(hashes)):
        out[i] = partition_of(murmur_int(np.uint64(slots[i]), np.uint64(hashes[i])), n_workers)


@kernel
def route_spark(keys, n_workers, out):
    """Write where Spark puts keys with a slot of 0; their lower half is their Murmur3 hash."""
    for i in range(len(keys)):
        out[i] = partition_of(murmur_int(np.uint64(0), keys[i] & MASK), n_workers)
