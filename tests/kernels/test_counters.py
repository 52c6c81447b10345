from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.kernels.counters import (
    SEEN,
    SIZE,
    TOP,
    TOTAL,
    Counters,
    begin_record,
    count_decaying,
    count_record,
    count_records,
    decay,
    least_slot,
    load_counters,
    look_up,
    new_counters,
)

streams = st.lists(st.integers(0, 12), max_size=120)
capacities = st.integers(1, 6)
law = settings(deadline=None, max_examples=60)


def assert_sound(c: Counters) -> None:
    """Every slot in use is found by its key and no other is; the sums are those of the slots."""
    size = int(c.sizes[SIZE])
    keys = c.keys[:size]
    assert len(set(keys.tolist())) == size
    slots = np.empty(size, np.int64)
    look_up(c, keys, slots)
    assert slots.tolist() == list(range(size))
    assert np.count_nonzero(c.table.ids >= 0) == size
    assert c.sums[TOP] == max(c.counts[:size], default=0.0)
    assert (c.errors <= c.counts).all()
    assert not c.counts[size:].any()


def counted(capacity: int, stream: list[int]) -> Counters:
    c = new_counters(capacity)
    count_records(c, np.array(stream, np.uint64))
    return c


@given(capacities, streams)
@law
def test_sound_after_every_record(capacity: int, stream: list[int]) -> None:
    c = new_counters(capacity)
    for key in stream:
        count_records(c, np.array([key], np.uint64))
        assert_sound(c)
    assert c.counts.sum() == c.sums[TOTAL] == len(stream)
    assert c.sizes[SIZE] == min(capacity, len(set(stream)))


@given(capacities, streams, st.integers(1, 20), st.sampled_from([0.0, 0.3, 0.5, 1.0]))
@law
def test_sound_with_decay(capacity: int, stream: list[int], epoch: int, alpha: float) -> None:
    c = new_counters(capacity)
    for key in stream:
        count_decaying(c, np.array([key], np.uint64), epoch, alpha)
        assert_sound(c)
        assert 1 <= c.sizes[SEEN] <= epoch
    assert c.counts.sum() == pytest.approx(c.sums[TOTAL])


@given(capacities, streams, st.sampled_from([0.3, 0.5, 0.9]))
@law
def test_least_slot(capacity: int, stream: list[int], alpha: float) -> None:
    c = counted(capacity, [*stream, *range(100, 100 + capacity)])
    assert int(least_slot(c)) == int(np.argmin(c.counts))
    decay(c, alpha)
    for key in stream:
        assert int(least_slot(c)) == int(np.argmin(c.counts))
        count_record(c, np.uint64(key))


def test_a_record_returns_its_slot_inverted_if_the_key_is_new() -> None:
    c = new_counters(2)
    records = [(5, ~0), (5, 0), (6, ~1), (6, 1), (6, 1), (7, ~0), (5, ~0), (6, 1)]
    for key, expected in records:
        assert int(count_record(c, np.uint64(key))) == expected
    assert c.counts.tolist() == [4.0, 4.0]
    assert c.errors.tolist() == [3.0, 0.0]


def test_an_epoch_is_over_when_the_next_record_begins() -> None:
    c = new_counters(2)
    c.sums[TOTAL] = 8.0
    totals = []
    for _ in range(8):
        begin_record(c, 3, 0.5)
        totals.append(float(c.sums[TOTAL]))
    assert totals == [8, 8, 8, 4, 4, 4, 2, 2]
    assert c.sizes[SEEN] == 2


def test_decay_scales_counts_errors_and_sums() -> None:
    c = counted(2, [1, 1, 2, 3])
    decay(c, 0.25)
    assert c.counts.tolist() == [0.5, 0.5]
    assert c.errors.tolist() == [0.0, 0.25]
    assert c.sums[TOTAL] == 1.0
    assert c.sums[TOP] == 0.5


@pytest.mark.parametrize("n_loaded", [0, 2, 4])
def test_loaded_counters_go_on(n_loaded: int) -> None:
    c = new_counters(4)
    keys = np.array([9, 2**64 - 1, 0, 4], np.uint64)[:n_loaded]
    counts, errors = np.array([8.0, 5.5, 5.0, 3.0])[:n_loaded], np.arange(4.0)[:n_loaded]
    load_counters(c, keys, counts, errors)
    assert_sound(c)
    assert c.counts[:n_loaded].tolist() == counts.tolist()
    assert c.errors[:n_loaded].tolist() == errors.tolist()
    count_records(c, np.array([50, 51, 52], np.uint64))
    assert_sound(c)
    if n_loaded == 4:
        # The last one goes twice, then stands level with the one before it.
        assert c.keys.tolist() == [9, 2**64 - 1, 52, 51]
        assert c.counts.tolist() == [8.0, 5.5, 6.0, 5.0]


def test_unknown_keys_have_no_slot() -> None:
    c = counted(2, [1, 2, 3])
    slots = np.empty(4, np.int64)
    look_up(c, np.array([0, 1, 2, 3], np.uint64), slots)
    assert slots.tolist() == [-1, -1, 1, 0]
