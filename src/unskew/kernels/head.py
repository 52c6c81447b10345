"""D-Choices, W-Choices and Round-Robin: the hot head of the stream gets more than two choices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.choices import (
    Cursors,
    Loads,
    add_load,
    least_loaded,
    least_of,
    new_cursors,
    new_loads,
)
from unskew.kernels.counters import SIZE, TOP, TOTAL, Counters, count_record, new_counters
from unskew.kernels.hashing import mix
from unskew.kernels.heap import sort_descending
from unskew.kernels.jit import inlined, kernel

D_CHOICES, W_CHOICES, ROUND_ROBIN = 0, 1, 2

CHOICES, TURN, BOOST = 0, 1, 2
NEXT_SOLUTION, LAST_IMBALANCE = 0, 1


class HeadState(NamedTuple):
    """What a source knows: who is hot, the loads it gave, where its searches stand.

    ``numbers``: the present d, the next turn of the round robin, what was added to d because it
    was not enough. ``due``: the records at which d is solved anew, and the imbalance when it was
    solved last. The rest is scratch space.
    """

    counters: Counters
    loads: Loads
    cursors: Cursors
    numbers: NDArray[np.int64]
    due: NDArray[np.float64]
    hot_counts: NDArray[np.float64]
    hot_slots: NDArray[np.int32]
    prefixes: NDArray[np.float64]


def new_head_state(n_workers: int, capacity: int) -> HeadState:
    """Return the state of a source that has seen nothing."""
    return HeadState(
        new_counters(capacity),
        new_loads(n_workers),
        new_cursors(capacity),
        np.array([n_workers, 0, 0]),
        np.zeros(2),
        np.zeros(capacity),
        np.zeros(capacity, np.int32),
        np.zeros(capacity + 1),
    )


class HeadRule(NamedTuple):
    """Parameters: theta and epsilon of the poster, and the records below which nothing is hot."""

    theta: float
    epsilon: float
    warm_up: float
    prime: int


@inlined
def violates(d, h, n, epsilon, prefixes):
    """Say whether the first h head keys overload the workers they can reach, with d choices.

    ``prefixes[h]`` is p_1 + ... + p_h; its last entry is the share of the whole head.
    """
    reach = 1.0 - ((n - 1.0) / n) ** (h * d)
    head = prefixes[-1]
    load = prefixes[h] + reach**d * (head - prefixes[h]) + reach**2 * (1.0 - head)
    return load > reach + epsilon


@kernel
def solve_choices(n, epsilon, prefixes):
    """Return the least d for which no prefix of the head violates the constraint; n at most."""
    head_size = len(prefixes) - 1
    if head_size == 0:
        return min(2, n)
    d = max(2, int(np.ceil(prefixes[1] * n - 1e-9)))
    worst = 1
    while d < n:
        if not violates(d, worst, n, epsilon, prefixes):
            broken = 0
            for h in range(1, head_size + 1):
                if violates(d, h, n, epsilon, prefixes):
                    broken = h
                    break
            if broken == 0:
                return d
            worst = broken
        d += 1
    return n


@inlined
def head_prefixes(state, floor):
    """Sum up the head's shares, largest first, into ``prefixes``; return the head's size."""
    c = state.counters
    size = 0
    for slot in range(c.sizes[SIZE]):
        if c.counts[slot] >= floor:
            state.hot_counts[size] = c.counts[slot]
            state.hot_slots[size] = slot
            size += 1
    sort_descending(state.hot_counts, state.hot_slots, size)
    state.prefixes[0] = 0.0
    for i in range(size):
        state.prefixes[i + 1] = state.prefixes[i] + state.hot_counts[i] / c.sums[TOTAL]
    return size


@inlined
def head_floor(c, rule):
    return rule.theta * max(c.sums[TOTAL], rule.warm_up)


@inlined
def raise_boost(state, rule):
    """Add to the boost while the imbalance is above epsilon and still growing.

    Not before ten times the warm-up: until then it may come from the time before the head was
    known, and pass.
    """
    total = state.counters.sums[TOTAL]
    top = 0
    for load in state.loads.of:
        top = max(top, load)
    imbalance = top - total / len(state.loads.of)
    growing = imbalance >= state.due[LAST_IMBALANCE]
    if growing and imbalance > rule.epsilon * total and total >= 10.0 * rule.warm_up:
        boost = state.numbers[BOOST]
        state.numbers[BOOST] = min(boost + 1 + boost // 4, len(state.loads.of))
    state.due[LAST_IMBALANCE] = imbalance


@inlined
def solve_again(state, rule, floor):
    """Solve d for the head as it is now; from half of the workers on, it is all of them."""
    n = len(state.loads.of)
    size = head_prefixes(state, floor)
    raise_boost(state, rule)
    d = solve_choices(n, rule.epsilon, state.prefixes[: size + 1]) + state.numbers[BOOST]
    state.numbers[CHOICES] = n if 2 * d >= n else d
    state.due[NEXT_SOLUTION] = np.ceil(1.05 * state.counters.sums[TOTAL])


@kernel
def route_head(keys, seed, state, rule, scheme, out):
    """Route each record: two choices for the tail, the scheme's for the head."""
    c = state.counters
    loads = state.loads
    n = len(loads.of)
    for i in range(len(keys)):
        h = mix(keys[i], seed)
        slot = count_record(c, keys[i])
        if slot < 0:
            slot = ~slot
            state.cursors.widths[slot] = 0
        floor = head_floor(c, rule)
        if (
            scheme == D_CHOICES
            and c.sums[TOTAL] >= state.due[NEXT_SOLUTION]
            and c.sums[TOP] >= floor
        ):
            solve_again(state, rule, floor)
        if c.counts[slot] < floor:
            worker = least_of(h, min(2, n), loads.of, rule.prime)
        elif scheme == ROUND_ROBIN:
            worker = state.numbers[TURN]
            state.numbers[TURN] = (worker + 1) % n
        else:
            d = state.numbers[CHOICES]
            worker = least_loaded(slot, state.cursors, h, d, loads, rule.prime)
        add_load(loads, worker)
        out[i] = worker
