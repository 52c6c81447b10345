"""FISH: recent hot keys, as many candidates as they are hot, the worker that waits least."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.choices import HOW_MANY, LOWEST
from unskew.kernels.counters import SEEN, SIZE, TOP, TOTAL, Counters, begin_record, count_record
from unskew.kernels.hashing import mix
from unskew.kernels.jit import inlined, kernel
from unskew.kernels.ring import Ring, collect_workers, point_of

ARRIVED, DRAINS, MINIMUM, ACTIVE = 0, 1, 2, 3


class Spread(NamedTuple):
    """How each slot's key is spread: M_k, its candidates, and where the search among them stands.

    None of the first ``widths[slot]`` candidates waits less than ``levels[slot]``, and none before
    ``ranks[slot]`` as little, as long as no queue was drained since (``drains[slot]``).
    """

    most: NDArray[np.int64]
    made: NDArray[np.int64]
    workers: NDArray[np.int32]
    widths: NDArray[np.int64]
    levels: NDArray[np.float64]
    ranks: NDArray[np.int64]
    drains: NDArray[np.int64]


class Queues(NamedTuple):
    """The queues as a source infers them: how long each worker waits, C_w P_w.

    The unit of time is what the fastest worker takes for a record, so that waits of equally fast
    workers are whole numbers. ``costs``: what a record adds to a wait; ``rates``: the records that
    a worker processes in T; ``credits``: the part of a record that it has processed beyond whole
    ones. ``low``: the shortest wait of all and how many workers have it, or -1 where that is not
    kept up, because unequal workers seldom wait equally long.
    """

    waits: NDArray[np.float64]
    costs: NDArray[np.float64]
    rates: NDArray[np.float64]
    credits: NDArray[np.float64]
    low: NDArray[np.float64]


def new_queues(
    waits: NDArray[np.float64], service_s: NDArray[np.float64], interval_s: float
) -> Queues:
    """Return queues with the given waits, infinite for a worker that is away."""
    active = np.isfinite(waits)
    costs = service_s / service_s[active].min()
    even = bool((costs[active] == 1.0).all())
    shortest = waits.min()
    low = [shortest, (waits == shortest).sum()] if even else [-1.0, 0.0]
    rates = interval_s / service_s
    return Queues(waits, costs, rates, np.zeros(len(waits)), np.array(low, np.float64))


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
    """Parameters: theta, N_epoch, alpha, and T in records."""

    theta: float
    epoch: int
    alpha: float
    interval_records: int


@inlined
def hot_floor(c, rule):
    return rule.theta * max(c.sums[TOTAL], np.float64(rule.epoch))


@inlined
def even_share(state, rule):
    """Return d_min: the workers that the hot keys need on average, W * F_hot / |H|, at least 2."""
    c = state.counters
    floor = hot_floor(c, rule)
    hot, weight = 0.0, 0.0
    for slot in range(c.sizes[SIZE]):
        is_hot = np.float64(c.counts[slot] > floor)
        hot += is_hot
        weight += is_hot * c.counts[slot]
    n = state.numbers[ACTIVE]
    share = weight / max(c.sums[TOTAL], 1.0)
    return max(2, np.int64(np.ceil(n * share / max(hot, 1.0))))


@inlined
def classify(state, slot, n):
    """Return d of a hot key (Algorithm 2): W halved for each halving of f_top; never falls."""
    c = state.counters
    # The exponent of a float is the whole part of its logarithm.
    index = (np.float64(c.sums[TOP] / c.counts[slot]).view(np.int64) >> 52) - 1023
    d = min(max(n >> min(index, 62), state.numbers[MINIMUM], state.spread.most[slot]), n)
    state.spread.most[slot] = d
    return d


@inlined
def find_shortest(q):
    """Find the shortest wait anew."""
    shortest = q.waits[0]
    for wait in q.waits:
        shortest = min(shortest, wait)
    many = 0
    for wait in q.waits:
        many += wait == shortest
    q.low[LOWEST] = shortest
    q.low[HOW_MANY] = many


@inlined
def drain(state):
    """Let every worker process for T seconds (equation 1), in whole records."""
    q = state.queues
    for worker in range(len(q.waits)):
        credit = q.credits[worker] + q.rates[worker]
        done = np.floor(credit)
        left = q.waits[worker] - done * q.costs[worker]
        q.waits[worker] = max(0.0, left)
        q.credits[worker] = credit - done if left > 0.0 else 0.0
    if q.low[LOWEST] >= 0.0:
        find_shortest(q)
    state.numbers[DRAINS] += 1
    state.numbers[ARRIVED] = 0


@inlined
def enqueue(q, worker):
    """Add a record to a worker's queue."""
    before = q.waits[worker]
    q.waits[worker] = before + q.costs[worker]
    if before == q.low[LOWEST]:
        q.low[HOW_MANY] -= 1.0
        if q.low[HOW_MANY] == 0.0:
            find_shortest(q)


@inlined
def collect_more(state, slot, h, d):
    """Collect more candidates of a key, at most d in all; return how many there are now."""
    spread = state.spread
    made = spread.made[slot]
    if made < d:
        wanted = min(d, 2 * made + 4)
        collect_workers(state.ring, h, spread.workers[slot], made, wanted, state.marks)
        spread.made[slot] = wanted
    return spread.made[slot]


@inlined
def resume_search(state, slot, h, d):
    """Return the rank of the next candidate at or below the key's level, -1 if there is none."""
    spread, waits = state.spread, state.queues.waits
    workers, level = spread.workers[slot], spread.levels[slot]
    rank = spread.ranks[slot]
    made = min(d, spread.made[slot])
    while True:
        while rank < made and waits[workers[rank]] > level:
            rank += 1
        if rank < made:
            return rank
        if made == d:
            return -1
        made = collect_more(state, slot, h, d)


@inlined
def begin_search(state, slot, h, d):
    """Return the rank of the candidate that waits least, the first of equals."""
    spread, waits = state.spread, state.queues.waits
    workers, lowest = spread.workers[slot], state.queues.low[LOWEST]
    made = min(d, collect_more(state, slot, h, d) if spread.made[slot] == 0 else spread.made[slot])
    best, rank = 0, 0
    while True:
        while rank < made:
            if waits[workers[rank]] < waits[workers[best]]:
                best = rank
            if waits[workers[best]] == lowest:
                return best
            rank += 1
        if made == d:
            return best
        made = collect_more(state, slot, h, d)


@inlined
def least_waiting(state, slot, h, d):
    """Return the candidate that waits least, the first of equals (Algorithm 3).

    The search goes on where the key's last one stopped, as long as somebody waits as little as
    then, and a new search ends at the first who waits least of all.
    """
    spread = state.spread
    rank = -1
    known = spread.drains[slot] == state.numbers[DRAINS] and spread.widths[slot] == d
    if known and spread.levels[slot] >= state.queues.low[LOWEST]:
        rank = resume_search(state, slot, h, d)
    if rank < 0:
        rank = begin_search(state, slot, h, d)
        spread.widths[slot] = d
        spread.levels[slot] = state.queues.waits[spread.workers[slot, rank]]
        spread.drains[slot] = state.numbers[DRAINS]
    spread.ranks[slot] = rank
    return np.int64(spread.workers[slot, rank])


@inlined
def least_of_two(state, h):
    ring, waits = state.ring, state.queues.waits
    at = point_of(ring, h)
    worker = np.int64(ring.workers[at])
    other = np.int64(ring.workers[ring.following[at]])
    return other if waits[other] < waits[worker] else worker


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
        if c.sizes[SEEN] == rule.epoch:
            state.numbers[MINIMUM] = even_share(state, rule)
        begin_record(c, rule.epoch, rule.alpha)
        if state.numbers[ARRIVED] == rule.interval_records:
            drain(state)
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
        enqueue(q, worker)
        out[i] = worker
