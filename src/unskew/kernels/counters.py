"""SpaceSaving counters: O(1) amortised an update.

A record raises one counter by 1. To take in a new key the least counter is given away, so the
least counter must be found fast. Every counter in ``[least, least + 1)`` stands in a line, ordered
by count and then by slot. A counter that grows leaves that range, and one that is given away does
too; so the line is exactly the order in which counters are given away, until it is used up and
drawn again. Each drawing raises the least count by at least 1: its cost, a few passes, is paid by
the ``capacity`` records that this took. Whole counts in the line are all equal, so it is ready as
it is drawn; decayed counts, which differ by powers of alpha, are put into buckets by their
logarithm, and a bucket is sorted when its turn comes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.jit import inlined, kernel
from unskew.kernels.table import Table, find, insert, new_table, remove

SIZE, HEAD, TAIL, READY, SEEN = 0, 1, 2, 3, 4
TOTAL, TOP, LIMIT = 0, 1, 2
BUCKETS = 256


class Counters(NamedTuple):
    """The state of a SpaceSaving sketch; slot i holds one key's counter.

    ``ends`` are the ends of the line's buckets. ``sizes``: slots in use, head and tail of the line,
    how far it is sorted, records since the last decay. ``sums``: the weight of all records, the
    largest count, the upper end of the line's range.
    """

    table: Table
    keys: NDArray[np.uint64]
    counts: NDArray[np.float64]
    errors: NDArray[np.float64]
    line: NDArray[np.int32]
    ends: NDArray[np.int64]
    sizes: NDArray[np.int64]
    sums: NDArray[np.float64]


def new_counters(capacity: int) -> Counters:
    """Return counters that have seen nothing."""
    return Counters(
        # A quarter full: two of three look-ups then end where they begin.
        new_table(2 * capacity),
        np.zeros(capacity, np.uint64),
        np.zeros(capacity),
        np.zeros(capacity),
        np.zeros(capacity, np.int32),
        np.zeros(BUCKETS + 1, np.int64),
        np.zeros(5, np.int64),
        np.zeros(3),
    )


@inlined
def bits_of(count):
    """Return a whole number that grows with a positive float, and evenly with its logarithm."""
    return np.float64(count).view(np.int64)


@inlined
def precedes(counts, a, b):
    return counts[a] < counts[b] or (counts[a] == counts[b] and a < b)


@inlined
def sort_part(counts, line, start, stop):
    """Sort a part of the line by count and slot (Shell's method); a sorted one costs one pass."""
    at = start + 1
    while at < stop and precedes(counts, line[at - 1], line[at]):
        at += 1
    if at >= stop:
        return
    gap = stop - start
    while gap > 1:
        gap = max(1, gap * 5 // 11)
        for i in range(start + gap, stop):
            slot = line[i]
            at = i
            while at >= start + gap and precedes(counts, slot, line[at - gap]):
                line[at] = line[at - gap]
                at -= gap
            line[at] = slot


@inlined
def draw_line(c):
    counts, ends = c.counts, c.ends
    low = bits_of(counts[0])
    for slot in range(1, len(counts)):
        low = min(low, bits_of(counts[slot]))
    limit = np.int64(low).view(np.float64) + 1.0
    shift = 0
    while (bits_of(limit) - low) >> shift >= BUCKETS:
        shift += 1
    ends[:] = 0
    for slot in range(len(counts)):
        if counts[slot] < limit:
            ends[((bits_of(counts[slot]) - low) >> shift) + 1] += 1
    for bucket in range(BUCKETS):
        ends[bucket + 1] += ends[bucket]
    tail = ends[BUCKETS]
    for slot in range(len(counts)):
        if counts[slot] < limit:
            bucket = (bits_of(counts[slot]) - low) >> shift
            c.line[ends[bucket]] = slot
            ends[bucket] += 1
    c.sizes[HEAD] = 0
    c.sizes[READY] = 0
    c.sizes[TAIL] = tail
    c.sums[LIMIT] = limit


@inlined
def make_ready(c):
    """Sort the bucket that is next in line."""
    ready = c.sizes[READY]
    bucket = 0
    while c.ends[bucket] <= ready:
        bucket += 1
    sort_part(c.counts, c.line, ready, c.ends[bucket])
    c.sizes[READY] = c.ends[bucket]


@inlined
def least_slot(c):
    """Return the slot with the least count, the lowest of equals; every slot is in use."""
    while True:
        while c.sizes[HEAD] < c.sizes[TAIL]:
            if c.sizes[HEAD] == c.sizes[READY]:
                make_ready(c)
            slot = c.line[c.sizes[HEAD]]
            if c.counts[slot] < c.sums[LIMIT]:
                return slot
            c.sizes[HEAD] += 1
        draw_line(c)


@inlined
def count_record(c, key):
    """Count a record; return its slot s, or ``~s`` if the key has just come in."""
    c.sums[TOTAL] += 1.0
    position, slot = find(c.table, key)
    fresh = slot < 0
    if fresh:
        full = c.sizes[SIZE] == len(c.keys)
        if full:
            slot = least_slot(c)
            c.errors[slot] = c.counts[slot]
        else:
            slot = np.int32(c.sizes[SIZE])
            c.sizes[SIZE] += 1
        # In before out: taking a key out may move the place that was found for this one.
        insert(c.table, position, key, slot)
        if full:
            remove(c.table, find(c.table, c.keys[slot])[0])
        c.keys[slot] = key
    count = c.counts[slot] + 1.0
    c.counts[slot] = count
    if count > c.sums[TOP]:
        c.sums[TOP] = count
    return ~slot if fresh else slot


@inlined
def decay(c, alpha):
    """Multiply every count by alpha."""
    for slot in range(c.sizes[SIZE]):
        c.counts[slot] *= alpha
        c.errors[slot] *= alpha
    c.sums[TOTAL] *= alpha
    c.sums[TOP] *= alpha
    c.sizes[TAIL] = 0


@inlined
def begin_record(c, epoch, alpha):
    """Decay when an epoch is over."""
    if c.sizes[SEEN] == epoch:
        decay(c, alpha)
        c.sizes[SEEN] = 0
    c.sizes[SEEN] += 1


@kernel
def count_records(c, keys):
    for i in range(len(keys)):
        count_record(c, keys[i])


@kernel
def count_decaying(c, keys, epoch, alpha):
    for i in range(len(keys)):
        begin_record(c, epoch, alpha)
        count_record(c, keys[i])


@kernel
def look_up(c, keys, out):
    """Write the slot of each key, -1 where it has none."""
    for i in range(len(keys)):
        out[i] = find(c.table, keys[i])[1]


@kernel
def load_counters(c, keys, counts, errors):
    """Fill empty counters with the given ones; the caller sets the total."""
    for slot in range(len(keys)):
        insert(c.table, find(c.table, keys[slot])[0], keys[slot], np.int32(slot))
        c.keys[slot] = keys[slot]
        c.counts[slot] = counts[slot]
        c.errors[slot] = errors[slot]
        c.sums[TOP] = max(c.sums[TOP], counts[slot])
    c.sizes[SIZE] = len(keys)
