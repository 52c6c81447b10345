from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from sketches.cases import streams
from unskew.sketches import CountingBloom
from unskew.workloads import open_stream


class TestRefused:
    def test_capacity(self) -> None:
        with pytest.raises(ValueError, match=r"^capacity must be at least 1, got 0$"):
            CountingBloom(capacity=0)

    @pytest.mark.parametrize("rate", [0.0, 1.0, -0.5, 2.0, float("nan")])
    def test_false_positives(self, rate: float) -> None:
        message = f"^false_positives must be between 0 and 1, got {rate}$"
        with pytest.raises(ValueError, match=message):
            CountingBloom(false_positives=rate)


def test_empty() -> None:
    bloom = CountingBloom()
    assert bloom.contains([1, 2]).tolist() == [False, False]
    assert bloom.contains([]).tolist() == []
    with pytest.raises(KeyError):
        bloom.remove([1])
    bloom.remove([])
    assert bloom == CountingBloom()


def test_one_key() -> None:
    bloom = CountingBloom(capacity=10)
    bloom.update([3] * 5)
    assert bloom.estimate([3]).tolist() == [5.0]
    bloom.remove([3] * 4)
    assert bloom.contains([3]).tolist() == [True]
    bloom.remove([3])
    assert bloom == CountingBloom(capacity=10)


@pytest.mark.parametrize(
    ("capacity", "rate", "cells", "probes"),
    [(1, 0.9, 16, 1), (1, 0.001, 16, 10), (100, 0.01, 1024, 7), (1000, 0.01, 16384, 7)],
)
def test_size(capacity: int, rate: float, cells: int, probes: int) -> None:
    bloom = CountingBloom(capacity, false_positives=rate)
    assert len(bloom.counts) == cells
    assert bloom.probes == probes


@settings(deadline=None, max_examples=50)
@given(streams, streams)
def test_no_false_negatives(kept: list[int], taken: list[int]) -> None:
    bloom = CountingBloom(capacity=3, false_positives=0.3)
    bloom.update(np.array(kept + taken, np.uint64))
    bloom.remove(np.array(taken, np.uint64))
    only_kept = CountingBloom(capacity=3, false_positives=0.3)
    only_kept.update(np.array(kept, np.uint64))
    assert bloom == only_kept
    assert bloom.contains(np.array(kept, np.uint64)).all()
    assert bloom.total == len(kept)


@pytest.mark.jit
@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("capacity", [100, 700, 20_000])
def test_false_positives_at_capacity(capacity: int, rate: float) -> None:
    rng = np.random.default_rng(capacity)
    rates = []
    for _ in range(10):
        bloom = CountingBloom(capacity, false_positives=rate)
        bloom.update(rng.integers(0, 2**63, capacity))
        rates.append(bloom.contains(rng.integers(2**63, 2**64, 20_000, np.uint64)).mean())
    assert np.mean(rates) <= 1.2 * rate


@pytest.mark.jit
def test_consecutive_keys_are_as_good_as_any() -> None:
    bloom = CountingBloom(1000, false_positives=0.01)
    bloom.update(range(1000))
    assert bloom.contains(range(1000)).all()
    assert bloom.contains(range(1000, 101_000)).mean() <= 0.012


@pytest.mark.jit
def test_skewed() -> None:
    keys = next(open_stream("zipf:z=1.5,keys=500,records=20000,seed=2").chunks()).keys
    bloom = CountingBloom(capacity=500)
    bloom.update(keys)
    known, counts = np.unique(keys, return_counts=True)
    estimates = bloom.estimate(known)
    assert (estimates >= counts).all()
    assert (estimates == counts).mean() > 0.95
    bloom.remove(keys[:19_999])
    assert bloom.total == 1.0
    assert bloom.contains(keys[-1:]).all()


def test_a_key_never_added_is_refused_and_changes_nothing() -> None:
    bloom, same = CountingBloom(capacity=50), CountingBloom(capacity=50)
    bloom.update([1, 2, 2])
    same.update([1, 2, 2])
    attempts: list[tuple[Any, str]] = [
        ([99], "1 of 1 keys"),
        ([1, 99, 98], "2 of 3 keys"),
        ([1, 1], "1 of 2 keys"),
        ([2, 2, 2], "1 of 3 keys"),
    ]
    for keys, message in attempts:
        with pytest.raises(KeyError, match=f"{message} are not in the filter"):
            bloom.remove(keys)
        assert bloom == same
    with pytest.raises(TypeError, match=r"unskew\.hash_keys"):
        bloom.remove(["a"])
    assert bloom == same


class TestSaturation:
    def saturated(self, short_of: int = 0) -> CountingBloom:
        bloom = CountingBloom(capacity=10)
        bloom.update([1])
        full = bloom.snapshot()
        full["counts"][full["counts"] > 0] = 65535 - short_of
        full["members"][:] = 65535 - short_of
        bloom.restore(full)
        return bloom

    def test_a_full_counter_stays(self) -> None:
        bloom = self.saturated()
        before = bloom.counts.copy()
        bloom.update([1, 1])
        np.testing.assert_array_equal(bloom.counts, before)
        bloom.remove([1] * 10)
        np.testing.assert_array_equal(bloom.counts, before)
        assert bloom.total == 65535.0 - 8.0

    def test_its_bound_is_infinite(self) -> None:
        bloom = self.saturated(short_of=1)
        assert bloom.bounds([1])[1].tolist() == [65534.0]
        bloom.update([1])
        assert bloom.bounds([1])[1].tolist() == [np.inf]
        assert bloom.contains([1]).tolist() == [True]

    def test_one_short_of_it_still_counts_down(self) -> None:
        bloom = self.saturated(short_of=1)
        bloom.remove([1])
        assert bloom.estimate([1]).tolist() == [65533.0]

    def test_merged_counters_do_not_wrap_around(self) -> None:
        bloom = self.saturated(short_of=30_000)
        bloom.merge(bloom)
        assert bloom.estimate([1]).tolist() == [np.inf]
        assert bloom.counts.dtype == np.uint16
        assert bloom.counts.max() == 65535
        assert bloom.total == 2 * 35_535

    @pytest.mark.jit
    def test_by_adding(self) -> None:
        bloom = CountingBloom(capacity=10)
        bloom.update(np.full(70_000, 5))
        assert bloom.counts.max() == 65535
        assert bloom.total == 70_000
        assert bloom.estimate([5]).tolist() == [np.inf]
