"""A counting Bloom filter: a set of keys with removal, in one array of counters."""

from __future__ import annotations

import numpy as np

from unskew.kernels.hashing import U32, mix
from unskew.kernels.jit import inlined, kernel

SEED = np.uint64(0x5851F42D4C957F2D)
FULL = 65535
U1 = np.uint64(1)


@inlined
def first_probe(key):
    """Return where the probes of a key start, and the step between them."""
    h = mix(key, SEED)
    return h, (h >> U32) | U1


@inlined
def contains(counts, probes, key):
    """Say whether a key is in the set: never a false no."""
    h, step = first_probe(key)
    mask = np.uint64(len(counts) - 1)
    for _ in range(probes):
        if counts[h & mask] == 0:
            return False
        h += step
    return True


@inlined
def add_key(counts, probes, key):
    h, step = first_probe(key)
    mask = np.uint64(len(counts) - 1)
    for _ in range(probes):
        if counts[h & mask] < FULL:
            counts[h & mask] += 1
        h += step


@inlined
def remove_key(counts, probes, key):
    """Take a key out once; a counter that is full stays, for it no longer knows its number."""
    h, step = first_probe(key)
    mask = np.uint64(len(counts) - 1)
    for _ in range(probes):
        if 0 < counts[h & mask] < FULL:
            counts[h & mask] -= 1
        h += step


@kernel
def add_keys(counts, probes, keys):
    for i in range(len(keys)):
        add_key(counts, probes, keys[i])


@kernel
def remove_keys(counts, probes, keys):
    """Take keys out; return how many were refused because they were not in."""
    refused = 0
    for i in range(len(keys)):
        if contains(counts, probes, keys[i]):
            remove_key(counts, probes, keys[i])
        else:
            refused += 1
    return refused


@kernel
def multiplicities(counts, probes, keys, out):
    """Write an upper bound of how often each key is in: its least counter."""
    mask = np.uint64(len(counts) - 1)
    for i in range(len(keys)):
        h, step = first_probe(keys[i])
        least = np.int64(FULL)
        for _ in range(probes):
            least = min(least, np.int64(counts[h & mask]))
            h += step
        out[i] = least
