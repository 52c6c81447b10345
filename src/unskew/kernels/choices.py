"""The candidates of a key, and the least loaded of them.

Candidates are distinct by construction and cost no memory: with a prime p >= n, the walk
``first, first + step, first + 2 step, ... (mod p)`` meets every number below p once, and the
numbers that are no workers (>= n) are stepped over. This is double hashing, which balances as
independent choices do (Mitzenmacher, "Balanced allocations and double hashing", SPAA 2014).
The first candidate of a key is its place under key grouping.

Of equally loaded candidates the first in the key's own order is taken. That keeps a key with few
records on few workers; ties broken by worker number would lead every key round all of them.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.hashing import LOW_32, U32, mix
from unskew.kernels.jit import inlined, kernel

LOWEST, HOW_MANY = 0, 1


class Loads(NamedTuple):
    """Loads that grow by 1; ``low`` is the lowest load and how many workers have it."""

    of: NDArray[np.int64]
    low: NDArray[np.int64]


class Cursors(NamedTuple):
    """Where the search among each owner's candidates stands.

    None of the first ``widths[owner]`` candidates is below ``levels[owner]``, none before
    ``ranks[owner]`` is at it, and none ever will be, since loads only grow; ``workers[owner]`` is
    the candidate of that rank. Width 0: no search yet.
    """

    widths: NDArray[np.int64]
    levels: NDArray[np.int64]
    ranks: NDArray[np.int64]
    workers: NDArray[np.int64]


def new_loads(n_workers: int) -> Loads:
    """Return loads of 0."""
    return Loads(np.zeros(n_workers, np.int64), np.array([0, n_workers]))


def new_cursors(owners: int) -> Cursors:
    """Return cursors of searches that have not begun."""
    return Cursors(*(np.zeros(owners, np.int64) for _ in Cursors._fields))


@functools.cache
def next_prime(n: int) -> int:
    """Return the least prime that is at least n, and at least 2."""
    candidate = max(n, 2)
    while any(candidate % d == 0 for d in range(2, int(candidate**0.5) + 1)):
        candidate += 1
    return candidate


@inlined
def first_choice(h, n):
    return np.int64(((h >> U32) * np.uint64(n)) >> U32)


@inlined
def step_of(h, prime):
    return np.int64(((h & LOW_32) * np.uint64(prime - 1)) >> U32) + 1


@inlined
def next_choice(worker, step, n, prime):
    worker += step
    worker = worker - prime if worker >= prime else worker
    while worker >= n:
        worker += step
        worker = worker - prime if worker >= prime else worker
    return worker


@inlined
def least_of(h, d, loads, prime):
    """Return the least loaded of the first d candidates."""
    n = len(loads)
    worker = first_choice(h, n)
    best = worker
    if d > 1:
        step = step_of(h, prime)
        for _ in range(d - 1):
            worker = next_choice(worker, step, n, prime)
            if loads[worker] < loads[best]:
                best = worker
    return best


@inlined
def add_load(loads, worker):
    """Add a record to a worker's load; O(1) amortised, as n records raise the lowest load by 1."""
    loads.of[worker] += 1
    if loads.of[worker] == loads.low[LOWEST] + 1:
        loads.low[HOW_MANY] -= 1
        if loads.low[HOW_MANY] == 0:
            lowest = loads.of[worker]
            for load in loads.of:
                lowest = min(lowest, load)
            for load in loads.of:
                loads.low[HOW_MANY] += load == lowest
            loads.low[LOWEST] = lowest


@inlined
def least_loaded(owner, cursors, h, d, loads, prime):
    """Return what `least_of` returns, without looking at all d candidates.

    The search goes on where the owner's last one stopped, as long as its level is not used up,
    and a new search ends at the first candidate that has the lowest load of all.
    """
    n = len(loads.of)
    step = step_of(h, prime)
    lowest = loads.low[LOWEST]
    level = cursors.levels[owner]
    if cursors.widths[owner] == d and level >= lowest:
        worker = cursors.workers[owner]
        for rank in range(cursors.ranks[owner], d):
            if loads.of[worker] <= level:
                cursors.ranks[owner] = rank
                cursors.workers[owner] = worker
                return worker
            worker = next_choice(worker, step, n, prime)
    worker = first_choice(h, n)
    best, best_rank = worker, 0
    for rank in range(1, d):
        if loads.of[best] == lowest:
            break
        worker = next_choice(worker, step, n, prime)
        if loads.of[worker] < loads.of[best]:
            best, best_rank = worker, rank
    cursors.widths[owner] = d
    cursors.levels[owner] = loads.of[best]
    cursors.ranks[owner] = best_rank
    cursors.workers[owner] = best
    return best


@kernel
def candidates(key, seed, n, prime, out):
    """Write the first ``len(out)`` candidates of a key."""
    h = mix(key, seed)
    worker = first_choice(h, n)
    step = step_of(h, prime)
    for i in range(len(out)):
        out[i] = worker
        if i + 1 < len(out):
            worker = next_choice(worker, step, n, prime)


@kernel
def route_first(keys, seed, n, out):
    """Route by key grouping."""
    for i in range(len(keys)):
        out[i] = first_choice(mix(keys[i], seed), n)


@kernel
def route_least(keys, seed, d, loads, prime, out):
    """Route to the least loaded of d candidates."""
    for i in range(len(keys)):
        worker = least_of(mix(keys[i], seed), d, loads, prime)
        loads[worker] += 1.0
        out[i] = worker
