"""What planners are told: statistics, and the window that collects them."""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.planners import Statistics, Window

keys = st.integers(0, 12) | st.sampled_from([2**63, 2**64 - 1])
intervals = st.lists(st.lists(st.lists(keys, max_size=12), max_size=3), min_size=1, max_size=8)


class Naive:
    """The window by the book: for each key how often it came in each of the last intervals."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.counts: dict[int, deque[int]] = {}

    def close(self, records: list[int]) -> dict[int, tuple[int, int]]:
        """Return the records of each key in the interval, and in the window."""
        for key in records:
            self.counts.setdefault(key, deque(maxlen=self.length))
        for key, counts in self.counts.items():
            counts.append(records.count(key))
        # A key that did not come in the whole window is not known any more.
        self.counts = {key: counts for key, counts in self.counts.items() if any(counts)}
        return {key: (counts[-1], sum(counts)) for key, counts in self.counts.items()}


def by_key(statistics: Statistics) -> dict[int, tuple[float, float]]:
    columns = statistics.keys, statistics.costs, statistics.state_bytes
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert len({key for key, _, _ in rows}) == len(rows)
    return {key: (cost, state) for key, cost, state in rows}


@settings(deadline=None)
@given(
    stream=intervals,
    length=st.integers(1, 4),
    record_cost=st.sampled_from([1.0, 0.0, 2.5]),
    key_cost=st.sampled_from([0.0, 1.0, 7.5]),
    record_bytes=st.sampled_from([1.0, 0.0, 16.0]),
)
def test_window_against_naive(
    stream: list[list[list[int]]],
    length: int,
    record_cost: float,
    key_cost: float,
    record_bytes: float,
) -> None:
    window = Window(length, record_cost, key_cost, record_bytes)
    naive = Naive(length)
    for interval in stream:
        for chunk in interval:
            window.update(chunk)
        statistics = window.close([1.0, 2.0])
        assert statistics.capacities.tolist() == [1.0, 2.0]
        assert by_key(statistics) == {
            key: (record_cost * came + key_cost * (came > 0), record_bytes * held)
            for key, (came, held) in naive.close(list(chain(*interval))).items()
        }


def test_a_window_with_many_keys() -> None:
    window, rng = Window(2), np.random.default_rng(1)
    chunks = [rng.integers(5000, size=4000).astype(np.uint64) for _ in range(3)]
    for chunk in chunks:
        window.update(chunk)
        found = window.close([1.0])
    order = np.argsort(found.keys)
    held, states = np.unique(np.concatenate(chunks[1:]), return_counts=True)
    assert np.array_equal(found.keys[order], held)
    assert np.array_equal(found.state_bytes[order], states)
    assert np.array_equal(found.costs[order], np.bincount(chunks[2], minlength=5000)[held])


def test_a_key_is_forgotten_with_its_state_and_may_come_again() -> None:
    window = Window(intervals=2)
    seen = []
    for chunk in ([7, 8], [8], [8], [], [], [7]):
        window.update(chunk)
        seen.append(by_key(window.close([1.0])))
    assert seen == [
        {7: (1.0, 1.0), 8: (1.0, 1.0)},
        {7: (0.0, 1.0), 8: (1.0, 2.0)},
        {8: (1.0, 2.0)},
        {8: (0.0, 1.0)},
        {},
        {7: (1.0, 1.0)},
    ]


def test_statistics_do_not_change_when_the_window_goes_on() -> None:
    window = Window(intervals=2)
    window.update([7, 7])
    statistics = window.close([1.0])
    window.update([7, 9])
    window.close([1.0])
    assert by_key(statistics) == {7: (2.0, 2.0)}


def test_a_refused_close_loses_nothing() -> None:
    window = Window(intervals=2)
    window.update([7, 7])
    with pytest.raises(ValueError, match="at least one worker"):
        window.close([0.0])
    assert by_key(window.close([1.0])) == {7: (2.0, 2.0)}


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"costs": [1.0, -1.0]}, "costs must be finite and not negative"),
        ({"costs": [1.0, np.nan]}, "costs must be finite and not negative"),
        ({"costs": [1.0, np.inf]}, "costs must be finite and not negative"),
        ({"state_bytes": [-0.5, 1.0]}, "state_bytes must be finite and not negative"),
        ({"state_bytes": [np.nan, 1.0]}, "state_bytes must be finite and not negative"),
        ({"capacities": [1.0, -1.0, 1.0]}, "capacities must be finite and not negative"),
        ({"capacities": [1.0, np.nan]}, "capacities must be finite and not negative"),
        ({"capacities": [np.inf]}, "capacities must be finite and not negative"),
        ({"capacities": [0.0, 0.0]}, "at least one worker must have a capacity above 0"),
        ({"capacities": []}, "at least one worker must have a capacity above 0"),
        ({"costs": [1.0]}, "costs must have one entry for each of 2 keys"),
        ({"costs": [1.0, 2.0, 3.0]}, "costs must have one entry for each of 2 keys"),
        ({"costs": 1.0}, "costs must have one entry for each of 2 keys"),
        ({"state_bytes": []}, "state_bytes must have one entry for each of 2 keys"),
        ({"keys": []}, "costs must have one entry for each of 0 keys"),
    ],
)
def test_statistics_refuse(given_: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"keys": [1, 2], "costs": [1, 1], "state_bytes": [1, 1]}
    with pytest.raises(ValueError, match=f"^{message}$"):
        Statistics(**{**good, "capacities": [1, 1], **given_})


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"intervals": 0}, "intervals must be at least 1, got 0"),
        ({"intervals": 1.5}, "intervals must be a whole number, got 1.5"),
        ({"record_cost": -1.0}, "record_cost must be at least 0.0, got -1.0"),
        ({"key_cost": -1.0}, "key_cost must be at least 0.0, got -1.0"),
        ({"record_bytes": np.nan}, "record_bytes must be at least 0.0, got nan"),
    ],
)
def test_windows_refuse(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Window(**given_)


def test_statistics_take_lists_and_keys_of_either_sign() -> None:
    statistics = Statistics([-1, 5], [1, 2], [3, 4], [1, 0])  # type: ignore[arg-type]
    assert statistics.keys.tolist() == [2**64 - 1, 5]
    for array in (statistics.costs, statistics.state_bytes, statistics.capacities):
        assert array.dtype == np.float64
    with pytest.raises(TypeError, match="keys must be a 1-d array of integers"):
        Statistics([1.5], [1], [1], [1])  # type: ignore[arg-type]
