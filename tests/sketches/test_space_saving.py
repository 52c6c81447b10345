from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketches.cases import streams
from unskew.kernels.counters import LIMIT
from unskew.sketches import DecayedSpaceSaving, SpaceSaving
from unskew.workloads import open_stream


def zipf(z: float, n_keys: int, n_records: int) -> Any:
    spec = f"zipf:z={z},keys={n_keys},records={n_records},seed=3"
    return np.concatenate([chunk.keys for chunk in open_stream(spec).chunks()])


def fed(stream: Any, **parameters: Any) -> SpaceSaving:
    sketch = SpaceSaving(**parameters)
    sketch.update(stream)
    return sketch


class TestRefused:
    @pytest.mark.parametrize("capacity", [0, -1])
    def test_capacity(self, capacity: int) -> None:
        for kind in (SpaceSaving, DecayedSpaceSaving):
            with pytest.raises(ValueError, match=f"^capacity must be at least 1, got {capacity}$"):
                kind(capacity=capacity)

    def test_epoch(self) -> None:
        with pytest.raises(ValueError, match=r"^epoch must be at least 1, got 0$"):
            DecayedSpaceSaving(epoch=0)

    @pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
    def test_alpha(self, alpha: float) -> None:
        with pytest.raises(ValueError, match=rf"^alpha must be between 0.0 and 1.0, got {alpha}$"):
            DecayedSpaceSaving(alpha=alpha)


def test_empty() -> None:
    sketch = SpaceSaving(capacity=3)
    assert sketch.total == 0.0
    assert sketch.hot()[0].tolist() == []
    assert sketch.estimate([1]).tolist() == [0.0]


def test_one_key() -> None:
    sketch = fed([0] * 9, capacity=1)
    assert [bound.tolist() for bound in sketch.bounds([0, 1])] == [[9.0, 0.0], [9.0, 9.0]]


@given(streams)
@settings(deadline=None, max_examples=50)
def test_exact_while_there_are_counters_for_all(stream: list[int]) -> None:
    counts = Counter(stream)
    sketch = fed(np.array(stream, np.uint64), capacity=len(counts) + 1)
    keys = np.array(list(counts), np.uint64)
    assert sketch.bounds(keys)[0].tolist() == sketch.bounds(keys)[1].tolist() == [*counts.values()]
    assert sketch.estimate([777]).tolist() == [0.0]


@given(streams, st.integers(1, 8))
@settings(deadline=None, max_examples=50)
def test_guarantees_in_numbers(stream: list[int], capacity: int) -> None:
    sketch = fed(np.array(stream, np.uint64), capacity=capacity)
    keys, counts = sketch.hot()
    lower, upper = sketch.bounds(keys)
    assert (upper - lower <= sketch.total / capacity).all()
    assert counts.sum() == sketch.total == len(stream)
    frequent = {key for key, count in Counter(stream).items() if count > sketch.total / capacity}
    assert frequent <= set(keys.tolist())


@pytest.mark.jit
@pytest.mark.parametrize("z", [0.8, 1.2, 2.0])
def test_skewed(z: float) -> None:
    stream = zipf(z, 10_000, 200_000)
    sketch = fed(stream, capacity=200)
    keys, counts = np.unique(stream, return_counts=True)
    lower, upper = sketch.bounds(keys)
    assert (lower <= counts).all()
    assert (counts <= upper).all()
    assert sketch.counters.errors.max() <= len(stream) / 200
    assert sketch.counters.counts.sum() == len(stream)
    assert (upper[counts > len(stream) / 200] - lower[counts > len(stream) / 200] <= 1000).all()
    assert set(keys[counts > len(stream) / 200]) <= set(sketch.hot()[0])
    hottest = keys[np.argsort(-counts)][:3].tolist()
    assert sketch.hot(share=0.005)[0][:3].tolist() == hottest


def test_hot_by_share() -> None:
    sketch = fed([1] * 5 + [2] * 3 + [3] * 2, capacity=5)
    assert sketch.hot(share=0.3)[0].tolist() == [1, 2]
    assert sketch.hot(share=0.2)[1].tolist() == [5.0, 3.0, 2.0]
    assert sketch.hot(share=0.6)[0].tolist() == []


def test_the_least_count_of_the_lowest_slot_is_given_away() -> None:
    sketch = fed([1, 2, 3, 3], capacity=3)
    sketch.update([4])
    assert sketch.counters.keys.tolist() == [4, 2, 3]
    assert sketch.counters.errors.tolist() == [1.0, 0.0, 0.0]
    # Key 2 grows out of the line; slots 0, 1 and 2 then have 2 each.
    sketch.update([2, 5])
    assert sketch.counters.keys.tolist() == [5, 2, 3]
    sketch.update([6, 7])
    assert sketch.counters.keys.tolist() == [5, 6, 7]
    assert sketch.counters.counts.tolist() == [3.0, 3.0, 3.0]


def test_merged_errors_add_up() -> None:
    one, other = fed([1, 1, 1, 2, 3], capacity=2), fed([1, 1, 4, 4, 4, 5], capacity=2)
    # One tracks 1 (3) and 3 (2, error 1); the other 5 (3, error 2) and 4 (3). So 1 gets 6, the
    # others 5 each, and of these the smallest key stays.
    one.merge(other)
    assert one.total == 11.0
    assert [bound.tolist() for bound in one.bounds([1, 4, 5, 3])] == [
        [3.0, 0.0, 0.0, 1.0],
        [6.0, 5.0, 5.0, 5.0],
    ]
    assert one.hot()[0].tolist() == [1, 3]


@given(st.lists(streams, min_size=2, max_size=4), st.integers(1, 8))
@settings(deadline=None, max_examples=40)
def test_every_frequent_key_of_the_union_is_tracked(parts: list[list[int]], capacity: int) -> None:
    sketch = SpaceSaving(capacity)
    for part in parts:
        sketch.merge(fed(np.array(part, np.uint64), capacity=capacity))
    counts = Counter(key for part in parts for key in part)
    # No untracked key can have come more often than the least counts together.
    room = sum(len(part) / capacity for part in parts)
    frequent = {key for key, count in counts.items() if count > room}
    assert frequent <= set(sketch.hot()[0].tolist())


@pytest.mark.parametrize("capacity", [1, 2, 16])
@pytest.mark.parametrize("n_keys", [3, 20, 10**6])
def test_amortised_cost(capacity: int, n_keys: int) -> None:
    """The line is drawn at most once for each step of the least count: total / capacity times."""
    sketch = SpaceSaving(capacity)
    limits: list[float] = []
    for key in np.random.default_rng(5).integers(0, n_keys, 1500).tolist():
        sketch.update([key])
        limit = float(sketch.counters.sums[LIMIT])
        if limit and (not limits or limits[-1] != limit):
            limits.append(limit)
    # A limit is the least count of its drawing plus 1, and they only rise, by 1 at least.
    assert all(b - a >= 1.0 for a, b in pairwise(limits))
    assert len(limits) <= 1500 / capacity + 1


class TestDecayed:
    def test_alpha_1_is_plain(self) -> None:
        stream = np.random.default_rng(2).integers(0, 30, 400)
        plain, decayed = SpaceSaving(5), DecayedSpaceSaving(5, epoch=7, alpha=1.0)
        plain.update(stream)
        decayed.update(stream)
        for name, array in plain.snapshot().items():
            if name not in ("parameters", "counters.sizes", "counters.line", "counters.ends"):
                np.testing.assert_array_equal(array, decayed.snapshot()[name], err_msg=name)

    def test_alpha_0_forgets_all(self) -> None:
        sketch = DecayedSpaceSaving(3, epoch=4, alpha=0.0)
        sketch.update([1, 1, 1, 1, 2])
        assert sketch.total == 1.0
        assert sketch.estimate([1, 2]).tolist() == [0.0, 1.0]

    def test_decays_only_when_the_next_epoch_begins(self) -> None:
        sketch = DecayedSpaceSaving(3, epoch=4, alpha=0.5)
        sketch.update([1] * 4)
        assert sketch.estimate([1]).tolist() == [4.0]
        sketch.update([2])
        assert sketch.estimate([1, 2]).tolist() == [2.0, 1.0]
        assert sketch.total == 3.0

    @pytest.mark.parametrize("alpha", [0.2, 0.5, 0.9])
    def test_total_tends_to_epoch_over_1_minus_alpha(self, alpha: float) -> None:
        sketch = DecayedSpaceSaving(4, epoch=20, alpha=alpha)
        limit = 20 / (1 - alpha)
        totals = []
        for part in np.split(np.random.default_rng(3).integers(0, 50, 2800), 140):
            sketch.update(part)
            totals.append(sketch.total)
        assert totals == sorted(totals)
        assert totals[-1] <= limit * (1 + 1e-12)
        assert totals[-1] == pytest.approx(limit, rel=1e-6)
        assert sketch.counters.counts.sum() == pytest.approx(sketch.total)
        assert sketch.counters.errors.max() <= sketch.total / 4

    def test_the_recently_frequent_win(self) -> None:
        old, new = [1] * 300, [2] * 100
        plain, decayed = SpaceSaving(10), DecayedSpaceSaving(10, epoch=50, alpha=0.2)
        for sketch in (plain, decayed):
            sketch.update(old + new)
        assert plain.hot()[0][0] == 1
        assert decayed.hot()[0][0] == 2

    def test_uneven_counts_are_given_away_in_order(self) -> None:
        sketch = DecayedSpaceSaving(4, epoch=10, alpha=0.5)
        sketch.update([1] * 4 + [2] * 3 + [3] * 2 + [4])
        # 2.0, 1.5, 1.0 and 0.5: the line holds slots 3 and 2; the next one slots 1, 3, 0 and 2.
        sketch.update([5])
        assert sketch.counters.keys.tolist() == [1, 2, 3, 5]
        sketch.update([6])
        assert sketch.counters.keys.tolist() == [1, 2, 6, 5]
        sketch.update([7])
        assert sketch.counters.keys.tolist() == [1, 7, 6, 5]
        sketch.update([8])
        assert sketch.counters.keys.tolist() == [1, 7, 6, 8]
        assert sketch.counters.counts.tolist() == [2.0, 2.5, 2.0, 2.5]

    @pytest.mark.jit
    def test_skewed(self) -> None:
        stream = zipf(1.4, 5_000, 100_000)
        sketch = DecayedSpaceSaving(100, epoch=1000, alpha=0.2)
        sketch.update(stream)
        ages = (len(stream) - 1) // 1000 - np.arange(len(stream)) // 1000
        keys, places = np.unique(stream, return_inverse=True)
        true = np.bincount(places, 0.2**ages)
        lower, upper = sketch.bounds(keys)
        assert (lower <= true + 1e-6).all()
        assert (true <= upper + 1e-6).all()
        assert sketch.total == pytest.approx(true.sum())
        frequent = keys[true > sketch.total / 100 + 1e-6]
        assert set(frequent) <= set(sketch.hot()[0])

    def test_merges_weights_as_they_are(self) -> None:
        one, other = (DecayedSpaceSaving(4, epoch=4, alpha=0.5) for _ in range(2))
        one.update([1] * 5)
        other.update([2] * 3)
        one.merge(other)
        assert one.estimate([1, 2]).tolist() == [3.0, 3.0]
        assert one.total == 6.0
        # One is at the first record of its epoch, and stays there.
        one.update([3] * 3)
        assert one.total == 9.0
        one.update([3])
        assert one.total == 5.5
