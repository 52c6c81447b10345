"""Placing rows: a ``slot`` column, so that Spark's own hash sends a row to the chosen worker.

A stateful operator shuffles by the Murmur3 hash of its grouping columns. With ``slot`` as the last
of them, and the right value in it, any stock operator runs where we want; see
`unskew.kernels.placement`. A worker is a shuffle partition.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F

from unskew.kernels.placement import (
    INVERSE_C1,
    INVERSE_C2,
    write_anchors,
    write_partitions,
    write_slots,
)

SLOT = "slot"
MASK = 0xFFFFFFFF

Ints = NDArray[np.int32]


def anchors(n_workers: int) -> Ints:
    """Return the part of the inverse that depends on the worker only, for each worker."""
    out = np.empty(n_workers, np.uint32)
    write_anchors(out)
    return out.view(np.int32)


def slots_for(hashes: Ints, workers: Ints, anchors: Ints) -> Ints:
    """Return the slots that send rows, by the hash of their other columns, to workers."""
    out = np.empty(len(hashes), np.uint32)
    write_slots(hashes.view(np.uint32), workers, anchors.view(np.uint32), out)
    return out.view(np.int32)


def partitions_of(hashes: Ints, slots: Ints, n_workers: int) -> Ints:
    """Return where Spark puts rows with these hashes and slots."""
    out = np.empty(len(hashes), np.int32)
    write_partitions(hashes.view(np.uint32), slots.view(np.uint32), n_workers, out)
    return out


def slot_column(hashed: Column, anchor: Column) -> Column:
    """Return the slot as an expression of the JVM: the same as `slots_for`."""
    mixed = _times(_unsigned(anchor.bitwiseXOR(hashed)), int(INVERSE_C2))
    turned = F.shiftrightunsigned(mixed, 15).bitwiseOR(F.shiftleft(mixed, 17)).bitwiseAND(MASK)
    slot = _times(turned, int(INVERSE_C1))
    return ((slot + 2**31).bitwiseAND(F.lit(MASK)) - 2**31).cast("int")


def _unsigned(value: Column) -> Column:
    return value.cast("long").bitwiseAND(F.lit(MASK))


def _times(value: Column, factor: int) -> Column:
    """Return an unsigned 32-bit product modulo 2^32, without leaving 64 bits on the way."""
    low, high = value.bitwiseAND(F.lit(0xFFFF)), F.shiftrightunsigned(value, 16)
    carried = F.shiftleft((high * F.lit(factor)).bitwiseAND(F.lit(0xFFFF)), 16)
    return (low * F.lit(factor) + carried).bitwiseAND(F.lit(MASK))
