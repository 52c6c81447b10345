"""Waterline: hot keys to the least loaded of their planned workers, all others by hash."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.choices import first_choice
from unskew.kernels.counters import Counters, count_record, new_counters
from unskew.kernels.hashing import mix
from unskew.kernels.jit import inlined, kernel

SEEN, EPOCH, PLANS, ALARMED = 0, 1, 2, 3


class Places(NamedTuple):
    """The planned workers of each slot's key: ``widths`` of them, from ``firsts`` on; 0: by hash.

    ``sent`` are the records that each pair got, or should get. Workers take records as long as
    their load is at most ``levels``, in turn; it is that of the rank ``ranks``.
    """

    firsts: NDArray[np.int64]
    widths: NDArray[np.int64]
    workers: NDArray[np.int64]
    sent: NDArray[np.float64]
    levels: NDArray[np.int64]
    ranks: NDArray[np.int64]


class WaterlineState(NamedTuple):
    """All that a source knows.

    ``counts``: records of each slot's key, ``homes``: records of each worker by hash; the first row
    of this epoch, the second of those before, decayed. ``loads``: records that workers got,
    arrears of more than a little forgiven; ``starts``: the same when the epoch began. ``numbers``:
    records of this epoch, its length, plans so far, and whether the epoch ended by an alarm.
    """

    counters: Counters
    counts: NDArray[np.float64]
    homes: NDArray[np.float64]
    loads: NDArray[np.int64]
    starts: NDArray[np.int64]
    places: Places
    numbers: NDArray[np.int64]


def new_waterline_state(n_workers: int, capacity: int, pairs: int) -> WaterlineState:
    """Return the state of a source that has seen nothing, with room for so many pairs."""
    slots, workers = np.zeros((4, capacity), np.int64), np.zeros((2, n_workers), np.int64)
    places = Places(
        slots[0].copy(),
        slots[1].copy(),
        np.zeros(pairs, np.int64),
        np.zeros(pairs),
        slots[2].copy(),
        slots[3].copy(),
    )
    return WaterlineState(
        new_counters(capacity),
        np.zeros((2, capacity)),
        np.zeros((2, n_workers)),
        workers[0].copy(),
        workers[1].copy(),
        places,
        np.zeros(4, np.int64),
    )


@inlined
def least_of_places(p, slot, loads):
    """Return the place of the least loaded of a slot's workers, give or take a few records.

    Workers take records up to a level, in turn; when all are above it, the next one is an eighth
    of a record for each of them above the lowest load. So a search pays for as many records.
    """
    first, width = p.firsts[slot], p.widths[slot]
    level = p.levels[slot]
    for rank in range(p.ranks[slot], width):
        if loads[p.workers[first + rank]] <= level:
            p.ranks[slot] = rank
            return first + rank
    best = 0
    for rank in range(1, width):
        if loads[p.workers[first + rank]] < loads[p.workers[first + best]]:
            best = rank
    p.levels[slot] = loads[p.workers[first + best]] + width // 8
    p.ranks[slot] = 0
    return first + best


@kernel
def route_waterline(keys, start, seed, state, alarm, out):
    """Route records from ``start`` on, to the end of the epoch; return where that is.

    The epoch ends early when a worker has got so many records more than its share as ``alarm``.
    """
    c, p, loads = state.counters, state.places, state.loads
    n = len(loads)
    seen = state.numbers[SEEN]
    stop = min(len(keys), start + state.numbers[EPOCH] - seen)
    for i in range(start, stop):
        home = first_choice(mix(keys[i], seed), n)
        slot = count_record(c, keys[i])
        if slot < 0:
            slot = ~slot
            p.widths[slot] = 0
            state.counts[0, slot] = 0.0
            state.counts[1, slot] = 0.0
        state.counts[0, slot] += 1.0
        state.homes[0, home] += 1.0
        worker = home
        if p.widths[slot] > 0:
            place = p.firsts[slot]
            if p.widths[slot] > 1:
                place = least_of_places(p, slot, loads)
            p.sent[place] += 1.0
            worker = p.workers[place]
        loads[worker] += 1
        out[i] = worker
        seen += 1
        if (loads[worker] - state.starts[worker] - alarm) * n > seen:
            state.numbers[SEEN] = seen
            state.numbers[EPOCH] = seen
            state.numbers[ALARMED] = 1
            return i + 1
    state.numbers[SEEN] = seen
    return stop
