from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.streams import Stream, feed, streams, zipf
from unskew.metrics import IntervalSpread


def naive(stream: Stream, interval: int) -> list[float]:
    """Recompute the deviation of every full interval."""
    full = stream.keys.size // interval
    pieces = stream.workers[: full * interval].reshape(full, interval)
    return [float(np.bincount(piece, minlength=stream.n_workers).std()) for piece in pieces]


@settings(deadline=None)
@given(streams(), st.integers(1, 40))
def test_against_naive(stream: Stream, interval: int) -> None:
    result = feed(IntervalSpread(stream.n_workers, interval), stream).result()

    expected = naive(stream, interval)
    assert result["records"] == stream.keys.size
    assert result["intervals"] == len(expected)
    assert result["series_records"] == [interval * (i + 1) for i in range(len(expected))]
    assert result["series_load_std"] == pytest.approx(expected)
    assert result["load_std_mean"] == pytest.approx(np.mean(expected) if expected else 0.0)
    assert result["load_std_max"] == pytest.approx(max(expected, default=0.0))


def test_list_stays_short_and_mean_covers_all() -> None:
    stream = zipf(30_000, 100, 5)
    result = feed(IntervalSpread(5, 8), stream, [12_345]).result()

    expected = naive(stream, 8)
    assert result["intervals"] == len(expected) == 3750
    assert result["load_std_mean"] == pytest.approx(np.mean(expected))
    assert result["series_records"] == list(range(32, 30_000, 32))
    assert result["series_load_std"] == pytest.approx(expected[3::4])


def test_one_worker_has_no_spread() -> None:
    measure = IntervalSpread(1, 3)
    measure.update([1] * 7, [0] * 7)
    assert measure.result()["series_load_std"] == [0.0, 0.0]


def test_a_change_of_workers_starts_a_new_interval() -> None:
    measure = IntervalSpread(3, 4)
    measure.update([0] * 6, [0, 1, 2, 0, 0, 0])
    measure.set_active([True, True, True])
    measure.set_active([True, False, True])
    measure.update([0] * 5, [0, 0, 0, 2, 2])
    result = measure.result()
    assert result["records"] == 11
    assert result["series_records"] == [4, 10]
    assert result["series_load_std"] == pytest.approx([np.std([2, 1, 1]), 1.0])


def test_records_of_inactive_workers_are_no_load() -> None:
    measure = IntervalSpread(3, 4)
    measure.set_active([True, False, True])
    measure.update([0] * 4, [1, 1, 0, 2])
    assert measure.result()["series_load_std"] == [0.0]


def test_refuses_an_empty_interval() -> None:
    with pytest.raises(ValueError, match="interval must be at least 1, got 0"):
        IntervalSpread(2, 0)
