from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.kernels.jit import kernel
from unskew.kernels.table import Table, find, insert, new_table, remove

MISS, PUT = -1, -2
EDGES = [0, 1, 2, 3, 2**63, 2**64 - 2, 2**64 - 1]
# Multiples of the inverse of the golden multiplier crowd around slot 0: runs that wrap around.
INVERSE = pow(0x9E3779B97F4A7C15, -1, 2**64)
CROWD = [(INVERSE * offset) % 2**64 for offset in range(-8, 24)]

operations = st.lists(
    st.tuples(
        st.sampled_from(["put", "drop", "look"]),
        st.sampled_from(EDGES) | st.sampled_from(CROWD) | st.integers(0, 2**64 - 1),
    ),
    max_size=120,
)


@kernel
def drive(table: Any, acts: Any, keys: Any, out: Any) -> None:
    for i in range(len(keys)):
        position, key_id = find(table, keys[i])
        out[i] = key_id
        if acts[i] == 1 and key_id < 0:
            insert(table, position, keys[i], i)
            out[i] = -2
        if acts[i] == 2 and key_id >= 0:
            remove(table, position)


def by_dict(acts: list[int], keys: list[int]) -> tuple[dict[int, int], list[int]]:
    held: dict[int, int] = {}
    out = []
    for i, (act, key) in enumerate(zip(acts, keys, strict=True)):
        found = held.get(key, MISS)
        if act == 1 and found == MISS:
            held[key] = i
            found = PUT
        elif act == 2:
            held.pop(key, None)
        out.append(found)
    return held, out


def driven(table: Table, acts: list[int], keys: Sequence[int] | NDArray[np.uint64]) -> list[int]:
    out = np.empty(len(keys), np.int64)
    drive(table, np.array(acts, np.int64), np.array(keys, np.uint64), out)
    return [int(key_id) for key_id in out]


@settings(deadline=None)
@given(operations)
def test_behaves_as_a_dict(script: list[tuple[str, int]]) -> None:
    acts = [["look", "put", "drop"].index(act) for act, _ in script]
    keys = [key for _, key in script]
    table = new_table(len(set(keys)))

    out = driven(table, acts, keys)

    held, expected = by_dict(acts, keys)
    assert out == expected
    full = table.ids >= 0
    assert dict(zip(table.keys[full].tolist(), table.ids[full].tolist(), strict=True)) == held
    assert driven(table, [0] * len(held), list(held)) == list(held.values())


def test_every_key_survives_the_removal_of_the_others() -> None:
    generator = np.random.default_rng(5)
    keys = generator.integers(0, 2**64, 400, np.uint64)
    table = new_table(keys.size)
    driven(table, [1] * 400, keys)
    order = generator.permutation(400)
    for done, at in enumerate(order, 1):
        driven(table, [2], [keys[at]])
        if done % 40 == 0:
            left = order[done:]
            assert driven(table, [0] * left.size, keys[left]) == left.tolist()
    assert (table.ids == -1).all()


@pytest.mark.parametrize(
    ("capacity", "size"), [(0, 2), (1, 2), (2, 4), (3, 8), (4, 8), (5, 16), (1000, 2048)]
)
def test_at_most_half_full(capacity: int, size: int) -> None:
    table = new_table(capacity)
    assert table.keys.size == table.ids.size == size
    assert (table.ids == -1).all()


@pytest.mark.parametrize("capacity", [-1, 2**30 + 1])
def test_refuses_a_capacity_out_of_range(capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity must be between 0 and"):
        new_table(capacity)
