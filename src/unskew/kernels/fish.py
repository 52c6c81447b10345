"""FISH: recent hot keys, as many candidates as they are hot, the worker that waits least."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.counters import SIZE, TOP, TOTAL, Counters, begin_record, count_record
from unskew.kernels.hashing import mix
from unskew.kernels.jit import inlined, kernel
from unskew.kernels.ring import Ring, collect_workers, point_of

ARRIVED, DRAINS, MINIMUM, ACTIVE = 0, 1, 2, 3


class Spread(NamedTuple):
    """How each slot's key is spread: M_k, its candidates, and where the search among them stands.

    No candidate before ``ranks[slot]`` waits ``levels[slot]`` or less, as long as no queue was
    drained since (``drains[slot]``).
    """

    most: NDArray[np.int64]
    made: NDArray[np.int64]
    workers: NDArray[np.int32]
    levels: NDArray[np.float64]
    ranks: NDArray[np.int64]
    drains: NDArray[np.int64]


class Queues(NamedTuple):
    """The queues as a source infers them: C_w, P_w and C_w * P_w."""

    unprocessed: NDArray[np.int64]
    service_s: NDArray[np.float64]
    wait_s: NDArray[np.float64]


class FishState(NamedTuple):
    """All that a source knows.

    ``numbers``: records since the last drain, drains, d_min, active workers.
    """

    counters: Counters
    spread: Spread
    queues: Queues
    ring: Ring
    numbers: NDArray[np.int64]
    marks: NDArray[np.int64]


class FishRule(NamedTuple):
    """Parameters: theta, N_epoch, alpha, and T in records and in seconds."""

    theta: float
    epoch: int
    alpha: float
    interval_records: int
    interval_s: float


@inlined
def hot_floor(c, rule):
    return rule.theta * max(c.sums[TOTAL], np.float64(rule.epoch))


@inlined
def even_share(state, rule):
    """Return d_min: the workers that the hot keys need on average, W * F_hot / |H|, at least 2."""
    c = state.counters
    floor = hot_floor(c, rule)
    hot, weight = 0, 0.0
    for slot in range(c.sizes[SIZE]):
        if c.counts[slot] > floor:
            hot += 1
            weight += c.counts[slot]
    n = state.numbers[ACTIVE]
    share = weight / max(c.sums[TOTAL], 1.0)
    return max(2, np.int64(np.ceil(n * share / max(hot, 1))))


@inlined
def classify(state, slot, n):
    """Return d of a hot key (Algorithm 2): W halved for every halving of f_top, never less again."""
    c = state.counters
    d = n
    count = 2.0 * c.counts[slot]
    while count <= c.sums[TOP] and d > 0:
        d //= 2
        count *= 2.0
    d = min(max(d, state.numbers[MINIMUM], state.spread.most[slot]), n)
    state.spread.most[slot] = d
    return d


@inlined
def drain(state, rule):
    """Let every worker process for T seconds (equation 1), in whole records."""
    q = state.queues
    for worker in range(len(q.unprocessed)):
        done = np.int64(rule.interval_s / q.service_s[worker])
        q.unprocessed[worker] = max(0, q.unprocessed[worker] - done)
        q.wait_s[worker] = q.unprocessed[worker] * q.service_s[worker]
    state.numbers[DRAINS] += 1
    state.numbers[ARRIVED] = 0


@inlined
def least_waiting(state, slot, h, d):
    """Return the candidate that waits least, the first of equals (Algorithm 3)."""
    spread, wait_s = state.spread, state.queues.wait_s
    workers = spread.workers[slot]
    if spread.made[slot] < d:
        collect_workers(state.ring, h, workers, spread.made[slot], d, state.marks)
        spread.made[slot] = d
    if spread.drains[slot] == state.numbers[DRAINS]:
        for rank in range(spread.ranks[slot], d):
            if wait_s[workers[rank]] <= spread.levels[slot]:
                spread.ranks[slot] = rank
                return workers[rank]
    best = 0
    for rank in range(1, d):
        if wait_s[workers[rank]] < wait_s[workers[best]]:
            best = rank
    spread.ranks[slot] = best
    spread.levels[slot] = wait_s[workers[best]]
    spread.drains[slot] = state.numbers[DRAINS]
    return workers[best]


@inlined
def least_of_two(state, h):
    ring, wait_s = state.ring, state.queues.wait_s
    at = point_of(ring, h)
    worker = ring.workers[at]
    other = ring.workers[ring.following[at]]
    return other if wait_s[other] < wait_s[worker] else worker


@inlined
def forget(spread, slot):
    spread.most[slot] = 0
    spread.made[slot] = 0
    spread.drains[slot] = -1


@kernel
def route_fish(keys, seed, state, rule, out):
    c, q = state.counters, state.queues
    n = state.numbers[ACTIVE]
    for i in range(len(keys)):
        if begin_record(c, rule.epoch, rule.alpha):
            state.numbers[MINIMUM] = even_share(state, rule)
        if state.numbers[ARRIVED] == rule.interval_records:
            drain(state, rule)
        state.numbers[ARRIVED] += 1
        h = mix(keys[i], seed)
        slot = count_record(c, keys[i])
        if slot < 0:
            slot = ~slot
            forget(state.spread, slot)
        if c.counts[slot] > hot_floor(c, rule):
            worker = least_waiting(state, slot, h, classify(state, slot, n))
        else:
            worker = least_of_two(state, h)
        q.unprocessed[worker] += 1
        q.wait_s[worker] = q.unprocessed[worker] * q.service_s[worker]
        out[i] = worker
