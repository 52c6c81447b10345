from __future__ import annotations

import numpy as np
import pytest

from unskew.sketches import Exact, KeyIndex


def test_empty() -> None:
    keys, counts = Exact().hot()
    assert keys.dtype == np.uint64
    assert len(keys) == len(counts) == 0


def test_one_key() -> None:
    sketch = Exact()
    sketch.update([2**64 - 1] * 3)
    assert sketch.total == 3.0
    assert [bound.tolist() for bound in sketch.bounds(np.array([2**64 - 1, 0], np.uint64))] == [
        [3.0, 0.0],
        [3.0, 0.0],
    ]


def test_hot_keys_come_in_order_of_count_and_then_of_key() -> None:
    sketch = Exact()
    sketch.update([9, 9, 9, 4, 4, 5, 5, 1])
    keys, counts = sketch.hot()
    assert keys.tolist() == [9, 4, 5, 1]
    assert counts.tolist() == [3.0, 2.0, 2.0, 1.0]
    assert sketch.hot(share=0.25)[0].tolist() == [9, 4, 5]
    assert sketch.hot(share=0.26)[0].tolist() == [9]
    assert sketch.hot(share=1.0)[0].tolist() == []


def test_growing_loses_nothing() -> None:
    sketch = Exact()
    # 1,024 keys fill the first table and the first counters.
    for start in range(0, 2500, 125):
        sketch.update(np.arange(start, start + 125))
        sketch.update(np.arange(start, start + 125, 5))
    counts = sketch.estimate(range(2500))
    assert counts.tolist() == [2.0 if key % 5 == 0 else 1.0 for key in range(2500)]
    assert sketch.total == 3000.0


def test_merging_adds_keys_of_both() -> None:
    one, other = Exact(), Exact()
    one.update([1, 2])
    other.update(range(2, 1500))
    one.merge(other)
    assert one.estimate([0, 1, 2, 3, 1499]).tolist() == [0.0, 1.0, 2.0, 1.0, 1.0]
    assert one.total == 1500.0


class TestKeyIndex:
    def test_numbers_keys_as_they_come(self) -> None:
        index = KeyIndex()
        assert len(index) == 0
        assert index.number(np.array([5, 0, 5, 2**64 - 1], np.uint64)).tolist() == [0, 1, 0, 2]
        assert index.keys().tolist() == [5, 0, 2**64 - 1]
        assert index.find(np.array([0, 1], np.uint64)).tolist() == [1, -1]
        assert len(index) == 3

    @pytest.mark.parametrize("n_keys", [1023, 1024, 1025, 2048, 2500])
    def test_grows_by_doubling(self, n_keys: int) -> None:
        index = KeyIndex()
        keys = np.random.default_rng(1).permutation(np.arange(n_keys, dtype=np.uint64)) * 7
        assert index.number(keys).tolist() == list(range(n_keys))
        assert index.number(keys[::-1]).tolist() == list(range(n_keys))[::-1]
        assert index.keys().tolist() == keys.tolist()
        slots = len(index.table.ids)
        assert 2 * n_keys <= slots <= max(2048, 4 * n_keys)

    def test_restorable_after_growth(self) -> None:
        index, other = KeyIndex(), KeyIndex()
        index.number(np.arange(1500, dtype=np.uint64))
        other.restore(index.snapshot())
        assert other == index
        assert other.number(np.array([9999, 3], np.uint64)).tolist() == [1500, 3]
        assert len(index) == 1500
