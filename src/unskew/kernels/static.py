"""Schemes that keep a key where it was first put: one place for each numbered key."""

from __future__ import annotations

from unskew.kernels.choices import LOWEST, add_load, least_of
from unskew.kernels.hashing import mix
from unskew.kernels.heap import sift_down
from unskew.kernels.jit import kernel


@kernel
def route_static_choices(keys, ids, seed, homes, loads, prime, out):
    """Put a new key on the less loaded of its two candidates (static PoTC)."""
    n = len(loads)
    for i in range(len(keys)):
        if homes[ids[i]] < 0:
            homes[ids[i]] = least_of(mix(keys[i], seed), min(2, n), loads, prime)
        worker = homes[ids[i]]
        loads[worker] += 1
        out[i] = worker


@kernel
def route_least_of_all(ids, homes, loads, cursor, out):
    """Put a new key on the least loaded of all workers, the lowest of equals (On-Greedy)."""
    n = len(loads.of)
    for i in range(len(ids)):
        if homes[ids[i]] < 0:
            # Nobody before the cursor is at the level that it was set for, nor ever will be.
            if cursor[1] != loads.low[LOWEST]:
                cursor[0], cursor[1] = 0, loads.low[LOWEST]
            while cursor[0] < n - 1 and loads.of[cursor[0]] != cursor[1]:
                cursor[0] += 1
            homes[ids[i]] = cursor[0]
        worker = homes[ids[i]]
        add_load(loads, worker)
        out[i] = worker


@kernel
def place_greedily(weights, values, workers, out):
    """Give each weight, in the order given, to the worker with the least so far.

    ``values`` and ``workers`` are the heap of the workers by weight.
    """
    for i in range(len(weights)):
        out[i] = workers[0]
        values[0] += weights[i]
        sift_down(values, workers, 0, len(values))
