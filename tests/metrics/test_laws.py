from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.streams import Stream, feed, streams
from unskew.metrics import Imbalance, IntervalSpread, Measure, Queueing, Replication

MEASURES: dict[str, Callable[[int], Measure]] = {
    "imbalance": Imbalance,
    "imbalance, coarse": lambda n_workers: Imbalance(n_workers, sample_every=7),
    "spread": lambda n_workers: IntervalSpread(n_workers, interval=9),
    "replication": Replication,
    "queueing": lambda n_workers: Queueing(n_workers, arrival_rate=30.0, service_s=0.1),
    "queueing, all at once": lambda n_workers: Queueing(n_workers, math.inf, 0.1),
}

every_measure = pytest.mark.parametrize("new", MEASURES.values(), ids=MEASURES.keys())


@every_measure
@settings(deadline=None)
@given(stream=streams(), cuts=st.lists(st.integers(0, 200), max_size=6))
def test_chunk_free(new: Callable[[int], Measure], stream: Stream, cuts: list[int]) -> None:
    whole = feed(new(stream.n_workers), stream)
    pieces = feed(new(stream.n_workers), stream, cuts)
    assert pieces.result() == whole.result()


@every_measure
def test_total(new: Callable[[int], Measure]) -> None:
    untouched, fed = new(3), new(3)
    fed.update([], [])
    result = fed.result()
    assert result == untouched.result()
    for value in result.values():
        assert not np.any(value)


@every_measure
@settings(deadline=None)
@given(stream=streams())
def test_json_able(new: Callable[[int], Measure], stream: Stream) -> None:
    result = feed(new(stream.n_workers), stream).result()
    assert json.loads(json.dumps(result, allow_nan=False)) == result


@every_measure
@pytest.mark.parametrize(
    ("keys", "workers", "message"),
    [
        ([1, 2], [0, 3], "workers must be between 0 and 2, got 0 to 3"),
        ([1, 2], [-1, 0], "workers must be between 0 and 2, got -1 to 0"),
        ([1], np.array([2**32]), "workers must be between 0 and 2"),
        ([1], [0.0], "workers must be integers, got float64"),
        ([1, 2], [0], "one length"),
        ([[1]], [[0]], "1-d"),
    ],
)
def test_closed(new: Callable[[int], Measure], keys: Any, workers: Any, message: str) -> None:
    measure = new(3)
    measure.update([5, 6, 5], [0, 1, 2])
    before = measure.result()
    with pytest.raises(ValueError, match=message):
        measure.update(keys, workers)
    assert measure.result() == before


@every_measure
def test_refuses_no_workers(new: Callable[[int], Measure]) -> None:
    with pytest.raises(ValueError, match="n_workers must be at least 1, got 0"):
        new(0)


@every_measure
def test_takes_any_integers(new: Callable[[int], Measure]) -> None:
    as_lists, as_arrays = new(3), new(3)
    as_lists.update([5, 6, 5, 9], [0, 1, 2, 0])
    both = np.array([[5, 0], [6, 1], [5, 2], [9, 0]], np.int64)
    as_arrays.update(both[:, 0], both[:, 1])
    assert as_lists.result() == as_arrays.result()


def test_repr_shows_the_parameters() -> None:
    assert repr(IntervalSpread(3, interval=9)) == "IntervalSpread(n_workers=3, interval=9)"
