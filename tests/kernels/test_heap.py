from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.kernels.heap import heapify, sift_down, sort_descending

values = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]) | st.floats(-1e9, 1e9), max_size=40)


def arrays(drawn: list[float], spare: int = 3) -> tuple[Any, Any]:
    """Return values and distinct items, with room that the heap must leave alone."""
    items = np.random.default_rng(len(drawn)).permutation(len(drawn) + spare).astype(np.int32)
    return np.array(drawn + [-1e300] * spare), items


def pairs(heap: tuple[Any, Any], size: int) -> list[tuple[float, int]]:
    return list(zip(heap[0][:size].tolist(), heap[1][:size].tolist(), strict=True))


@given(values)
@settings(deadline=None)
def test_heapify(drawn: list[float]) -> None:
    heap = arrays(drawn)
    before, size = pairs(heap, len(drawn) + 3), len(drawn)
    heapify(*heap, size)
    after = pairs(heap, size + 3)
    assert sorted(after[:size]) == sorted(before[:size])
    assert after[size:] == before[size:]
    for child in range(1, size):
        assert after[(child - 1) // 2] < after[child]


@given(values)
@settings(deadline=None)
def test_taking_the_first_out_again_and_again_sorts(drawn: list[float]) -> None:
    heap, size = arrays(drawn), len(drawn)
    expected, out = sorted(pairs(heap, size)), []
    heapify(*heap, size)
    for last in range(size - 1, -1, -1):
        out.append((float(heap[0][0]), int(heap[1][0])))
        heap[0][0], heap[1][0] = heap[0][last], heap[1][last]
        sift_down(*heap, 0, last)
    assert out == expected


@given(values)
@settings(deadline=None)
def test_sort_descending(drawn: list[float]) -> None:
    heap, size = arrays(drawn), len(drawn)
    before = pairs(heap, size + 3)
    sort_descending(*heap, size)
    assert pairs(heap, size) == sorted(before[:size], reverse=True)
    assert pairs(heap, size + 3)[size:] == before[size:]
