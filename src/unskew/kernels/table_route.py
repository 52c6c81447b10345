"""Routing by a table of keys, and by hash for all others."""

from __future__ import annotations

import numpy as np

from unskew.kernels.choices import first_choice
from unskew.kernels.counters import count_record
from unskew.kernels.hashing import mix
from unskew.kernels.jit import inlined, kernel
from unskew.kernels.table import find

BUCKET_SALT = np.uint64(0x94D049BB133111EB)


@inlined
def bucket_of(key, seed, n_buckets):
    return first_choice(mix(key, seed ^ BUCKET_SALT), n_buckets)


@kernel
def learn_buckets(keys, seed, counters, n_workers, bucket_counts, out):
    """Route by hash, and count keys and buckets."""
    for i in range(len(keys)):
        count_record(counters, keys[i])
        bucket_counts[bucket_of(keys[i], seed, len(bucket_counts))] += 1
        out[i] = first_choice(mix(keys[i], seed), n_workers)


@kernel
def route_buckets(keys, seed, table, key_workers, bucket_workers, out):
    """Route keys of the table to their workers, the others by bucket."""
    for i in range(len(keys)):
        key_id = find(table, keys[i])[1]
        if key_id >= 0:
            out[i] = key_workers[key_id]
        else:
            out[i] = bucket_workers[bucket_of(keys[i], seed, len(bucket_workers))]


@kernel
def route_homes(keys, ids, seed, homes, n_workers, out):
    """Route numbered keys to their homes, keys without a number by hash."""
    for i in range(len(keys)):
        if ids[i] >= 0:
            out[i] = homes[ids[i]]
        else:
            out[i] = first_choice(mix(keys[i], seed), n_workers)


@kernel
def route_entries(keys, table, homes, out):
    """Overwrite the workers of keys that have an entry; a home of -1 is void."""
    for i in range(len(keys)):
        key_id = find(table, keys[i])[1]
        if key_id >= 0 and homes[key_id] >= 0:
            out[i] = homes[key_id]


@kernel
def find_buckets(keys, seed, n_buckets, out):
    for i in range(len(keys)):
        out[i] = bucket_of(keys[i], seed, n_buckets)
