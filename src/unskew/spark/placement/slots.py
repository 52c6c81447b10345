"""The ``slot`` column, with which Spark's own hash sends a row to the chosen worker.

A stateful operator shuffles by the Murmur3 hash of its grouping columns. With ``slot`` as the last
of them, and the right value in it, any stock operator runs on the chosen worker; see
`unskew.kernels.placement`. A worker is a shuffle partition.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as F

from unskew.murmur import INVERSE_C1, INVERSE_C2, MASK

SLOT = "slot"

Ints = NDArray[np.int32]


def slots_for(hashes: Ints, workers: Ints, anchors: NDArray[np.uint32]) -> Ints:
    """Return the slots that send rows to workers, given the hashes of their other columns."""
    from unskew.kernels.placement import write_slots  # imports numba, which few tasks need

    out = np.empty(len(hashes), np.uint32)
    write_slots(hashes.view(np.uint32), workers, anchors, out)
    return out.view(np.int32)


def partitions_of(hashes: Ints, slots: Ints, n_workers: int) -> Ints:
    """Return the partitions to which Spark sends rows with these hashes and slots."""
    from unskew.kernels.placement import write_partitions

    out = np.empty(len(hashes), np.int32)
    write_partitions(hashes.view(np.uint32), slots.view(np.uint32), n_workers, out)
    return out


def worker_column(grouping: Sequence[Column], slot: Column, n_workers: int) -> Column:
    """Return the worker of a row with this slot."""
    return F.pmod(F.hash(*grouping, slot), F.lit(n_workers))


def slot_column(grouping: Sequence[Column], target: Column, n_workers: int) -> Column:
    """Return the slot of `slots_for` as an expression for the JVM; 0 if there is no target."""
    hashed = F.hash(*grouping).cast("long")
    mixed = _times(target.bitwiseXOR(hashed).bitwiseAND(F.lit(MASK)), INVERSE_C2)
    rotated = F.shiftrightunsigned(mixed, 15).bitwiseOR(F.shiftleft(mixed, 17)).bitwiseAND(MASK)
    slot = _times(rotated, INVERSE_C1)
    signed = ((slot + 2**31).bitwiseAND(F.lit(MASK)) - 2**31).cast("int")
    at_home = worker_column(grouping, F.lit(0), n_workers) == F.shiftright(target, 32)
    return F.when(target.isNull() | at_home, F.lit(0)).otherwise(signed)


def _times(value: Column, factor: int) -> Column:
    """Return an unsigned 32-bit product modulo 2^32, with intermediate values within 64 bits."""
    low, high = value.bitwiseAND(F.lit(0xFFFF)), F.shiftrightunsigned(value, 16)
    carried = F.shiftleft((high * F.lit(factor)).bitwiseAND(F.lit(0xFFFF)), 16)
    return (low * F.lit(factor) + carried).bitwiseAND(F.lit(MASK))
