"""A hash table from 64-bit keys to dense ids, as two arrays that the caller owns.

Open addressing with linear probing and Fibonacci hashing; deletion shifts the run back, so there
are no tombstones and a table never has to be rebuilt because of what was removed. The caller keeps
the table at most half full (``new_table`` sizes it so) and numbers the keys.

>>> import numpy as np
>>> table = new_table(100)
>>> table.keys.size
256
>>> position, key_id = find(table, np.uint64(7))
>>> int(key_id)
-1
>>> insert(table, position, np.uint64(7), 0)
>>> position, key_id = find(table, np.uint64(7))
>>> int(key_id)
0
>>> remove(table, position)
>>> int(find(table, np.uint64(7))[1])
-1
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.hashing import GOLDEN, U32
from unskew.kernels.jit import inlined, kernel
from unskew.state import within

U1 = np.uint64(1)


class Table(NamedTuple):
    """The slots of a table: a power of two; id -1 is an empty slot, whatever its key."""

    keys: NDArray[np.uint64]
    ids: NDArray[np.int32]


def new_table(capacity: int) -> Table:
    """Return an empty table that is at most half full with ``capacity`` keys."""
    within("capacity", capacity, 0, 2**30)
    size = 1 << max(1, (2 * int(capacity) - 1).bit_length())
    return Table(np.zeros(size, np.uint64), np.full(size, -1, np.int32))


@inlined
def home(key, size):
    """Return the slot where the search for a key starts."""
    # For a size of 2^b this is (key * GOLDEN) >> (64 - b), without having to know b.
    return (((key * GOLDEN) >> U32) * size) >> U32


@inlined
def find(table, key):
    """Return the slot of a key (or the one to insert it at) and its id (or -1)."""
    size = np.uint64(table.ids.size)
    position = home(key, size)
    while table.ids[position] >= 0 and table.keys[position] != key:
        position = (position + U1) & (size - U1)
    return position, table.ids[position]


@inlined
def insert(table, position, key, key_id):
    """Put a key that ``find`` did not find at the slot that it returned."""
    table.keys[position] = key
    table.ids[position] = key_id


@inlined
def remove(table, position):
    """Empty a slot, and move back the later keys of its run that would no longer be found."""
    size = np.uint64(table.ids.size)
    mask = size - U1
    hole = position
    at = (position + U1) & mask
    while table.ids[at] >= 0:
        # A key may move to the hole unless its home lies behind it, in (hole, at].
        if (at + size - home(table.keys[at], size)) & mask >= (at + size - hole) & mask:
            table.keys[hole] = table.keys[at]
            table.ids[hole] = table.ids[at]
            hole = at
        at = (at + U1) & mask
    table.ids[hole] = -1


@kernel
def refill(old, new):
    """Put every key of one table into another."""
    for i in range(len(old.ids)):
        if old.ids[i] >= 0:
            insert(new, find(new, old.keys[i])[0], old.keys[i], old.ids[i])


@kernel
def index_keys(table, keys, start, size, out):
    """Give keys numbers from record ``start`` on; return where the table got half full."""
    for i in range(start, len(keys)):
        position, key_id = find(table, keys[i])
        if key_id < 0:
            if 2 * size[0] >= len(table.ids):
                return i
            key_id = np.int32(size[0])
            insert(table, position, keys[i], key_id)
            size[0] += 1
        out[i] = key_id
    return len(keys)


@kernel
def find_ids(table, keys, out):
    """Write the id of each key, -1 where it has none."""
    for i in range(len(keys)):
        out[i] = find(table, keys[i])[1]
