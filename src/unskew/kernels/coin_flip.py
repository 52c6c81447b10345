"""The coin-flip synopsis of DStream: who is hot now, from a geometric draw a record."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.hashing import GOLDEN, mix
from unskew.kernels.jit import inlined, kernel
from unskew.kernels.table import Table, find, insert, new_table, remove

SIZE, RECORDS, DRAWS, SIGNALS, DROPPED = 0, 1, 2, 3, 4
APPEND, DELETE = 1, -1
U1, U11 = np.uint64(1), np.uint64(11)
DECLINE_SALT = np.uint64(0xD1B54A32D192ED03)


class Synopsis(NamedTuple):
    """A bit vector for each key that may be hot, and the signals of the last update.

    ``numbers``: vectors in use, records seen, random numbers used for the decline, signals,
    keys that found no room.
    """

    table: Table
    keys: NDArray[np.uint64]
    vectors: NDArray[np.uint64]
    hot: NDArray[np.bool_]
    numbers: NDArray[np.int64]
    signal_keys: NDArray[np.uint64]
    signals: NDArray[np.int64]


class CoinRule(NamedTuple):
    """Parameters: threshold r, vector length l, ones that make hot (zeta), decline p."""

    threshold: int
    length: int
    ones: int
    decline: float
    seed: np.uint64


def new_synopsis(capacity: int) -> Synopsis:
    """Return an empty synopsis."""
    return Synopsis(
        new_table(capacity),
        np.zeros(capacity, np.uint64),
        np.zeros(capacity, np.uint64),
        np.zeros(capacity, np.bool_),
        np.zeros(5, np.int64),
        np.zeros(capacity + 1, np.uint64),
        np.zeros(capacity + 1, np.int64),
    )


@inlined
def ones_in(vector):
    ones = 0
    while vector != 0:
        vector &= vector - U1
        ones += 1
    return ones


@inlined
def signal(s, key, kind):
    at = s.numbers[SIGNALS]
    s.signal_keys[at] = key
    s.signals[at] = kind
    s.numbers[SIGNALS] = at + 1


@inlined
def gap(s, rule):
    """Draw how many vectors are passed over before the next one that declines."""
    s.numbers[DRAWS] += 1
    bits = mix(np.uint64(s.numbers[DRAWS]) * GOLDEN, rule.seed ^ DECLINE_SALT) >> U11
    uniform = (np.float64(bits) + 0.5) / 9007199254740992.0
    return np.int64(min(np.log(uniform) / np.log1p(-rule.decline), 4e18))


@inlined
def evict(s, slot):
    """Take a vector out; the last one takes its place."""
    remove(s.table, find(s.table, s.keys[slot])[0])
    last = s.numbers[SIZE] - 1
    if slot != last:
        s.keys[slot] = s.keys[last]
        s.vectors[slot] = s.vectors[last]
        s.hot[slot] = s.hot[last]
        s.table.ids[find(s.table, s.keys[slot])[0]] = np.int32(slot)
    s.numbers[SIZE] = last


@inlined
def decline(s, rule):
    """Shift each vector right with probability p; drop the empty, report who is hot no more."""
    # Downwards, so that the vector that takes an evicted one's place has had its turn.
    slot = s.numbers[SIZE] - 1 - gap(s, rule)
    while slot >= 0:
        s.vectors[slot] >>= U1
        if s.hot[slot] and ones_in(s.vectors[slot]) < rule.ones:
            s.hot[slot] = False
            signal(s, s.keys[slot], DELETE)
        if s.vectors[slot] == 0:
            evict(s, slot)
        slot -= 1 + gap(s, rule)


@inlined
def heads(s, rule):
    """Flip for one record: how many heads before the first tail, as far as it matters.

    The flips of record i are the low bits of the i-th random number; 0 unless more than r are
    heads, and at most r + l.
    """
    s.numbers[RECORDS] += 1
    bits = mix(np.uint64(s.numbers[RECORDS]) * GOLDEN, rule.seed)
    above = (U1 << np.uint64(rule.threshold + 1)) - U1
    if bits & above != above:
        return 0
    count = rule.threshold + 1
    while count < rule.threshold + rule.length and (bits >> np.uint64(count)) & U1 == U1:
        count += 1
    return count


@inlined
def observe(s, rule, key):
    """Take in a record; return whether the synopsis changed (its signals then wait in it)."""
    count = heads(s, rule)
    if count == 0:
        return False
    s.numbers[SIGNALS] = 0
    position, slot = find(s.table, key)
    if slot < 0:
        if s.numbers[SIZE] == len(s.keys):
            s.numbers[DROPPED] += 1
        else:
            slot = np.int32(s.numbers[SIZE])
            insert(s.table, position, key, slot)
            s.keys[slot] = key
            s.vectors[slot] = 0
            s.hot[slot] = False
            s.numbers[SIZE] += 1
    if slot >= 0:
        s.vectors[slot] |= U1 << np.uint64(count - rule.threshold - 1)
        if not s.hot[slot] and ones_in(s.vectors[slot]) >= rule.ones:
            s.hot[slot] = True
            signal(s, key, APPEND)
    if rule.decline > 0.0:
        decline(s, rule)
    return True


@kernel
def observe_all(s, rule, keys):
    for i in range(len(keys)):
        observe(s, rule, keys[i])


@kernel
def vectors_of(s, keys, out):
    """Write the bit vector of each key, 0 where it has none."""
    for i in range(len(keys)):
        slot = find(s.table, keys[i])[1]
        out[i] = s.vectors[slot] if slot >= 0 else np.uint64(0)


@kernel
def load_vectors(s, rule, keys, vectors):
    """Fill an empty synopsis."""
    for slot in range(len(keys)):
        insert(s.table, find(s.table, keys[slot])[0], keys[slot], np.int32(slot))
        s.keys[slot] = keys[slot]
        s.vectors[slot] = vectors[slot]
        s.hot[slot] = ones_in(vectors[slot]) >= rule.ones
    s.numbers[SIZE] = len(keys)
