from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.streams import Stream, feed, streams, zipf
from unskew.metrics import Imbalance


def naive(workers: list[int], active: list[int]) -> list[Fraction]:
    """I(t) for each t of a phase, from scratch."""
    course = []
    for t in range(1, len(workers) + 1):
        loads = [workers[:t].count(worker) for worker in active]
        course.append(max(loads) - Fraction(sum(loads), len(loads)))
    return course


@settings(deadline=None)
@given(streams(max_size=60))
def test_against_naive(stream: Stream) -> None:
    result = feed(Imbalance(stream.n_workers), stream).result()

    m = stream.keys.size
    course = naive(stream.workers.tolist(), list(range(stream.n_workers)))
    last = course[-1] if course else Fraction(0)
    assert result["records"] == m
    assert result["loads"] == np.bincount(stream.workers, minlength=stream.n_workers).tolist()
    assert result["imbalance"] == float(last)
    assert result["imbalance_fraction"] == pytest.approx(float(last / max(m, 1)))
    assert result["imbalance_to_mean_load"] == pytest.approx(
        float(last / max(m, 1) * stream.n_workers)
    )
    mean = sum(course, Fraction(0)) / max(m, 1)
    assert result["mean_imbalance"] == pytest.approx(float(mean), rel=1e-15)
    assert result["mean_imbalance_fraction"] == pytest.approx(float(mean / max(m, 1)))
    assert result["series_records"] == list(range(1, m + 1))
    assert result["series_imbalance_fraction"] == pytest.approx(
        [float(value / t) for t, value in enumerate(course, 1)]
    )


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 4), min_size=1), st.lists(st.integers(0, 4), max_size=20)),
        min_size=1,
        max_size=4,
    )
)
def test_phases(script: list[tuple[set[int], list[int]]]) -> None:
    measure = Imbalance(5)
    phases: list[tuple[set[int], list[int]]] = [(set(range(5)), [])]
    for active, workers in script:
        measure.set_active([worker in active for worker in range(5)])
        measure.update([0] * len(workers), workers)
        if active == phases[-1][0]:
            phases[-1][1].extend(workers)
        else:
            phases.append((active, list(workers)))
    result = measure.result()

    courses = [naive(workers, sorted(active)) for active, workers in phases]
    flat = [value for course in courses for value in course]
    active, workers = phases[-1]
    sent = sum(worker in active for worker in workers)
    last = courses[-1][-1] if workers else Fraction(0)
    everyone = [worker for _, phase in phases for worker in phase]
    assert result["loads"] == [everyone.count(worker) for worker in range(5)]
    assert result["imbalance"] == pytest.approx(float(last))
    assert result["imbalance_fraction"] == pytest.approx(float(last / max(sent, 1)))
    assert result["imbalance_to_mean_load"] == pytest.approx(
        float(last * len(active) / max(sent, 1))
    )
    assert result["mean_imbalance"] == pytest.approx(
        float(sum(flat, Fraction(0)) / max(len(flat), 1))
    )


def test_one_worker_is_balanced() -> None:
    measure = Imbalance(1)
    measure.update(np.arange(50), np.zeros(50, np.int32))
    result = measure.result()
    assert result["loads"] == [50]
    assert result["imbalance"] == result["mean_imbalance"] == 0.0


def test_one_key_on_one_of_many() -> None:
    measure = Imbalance(4)
    measure.update([9] * 100, [2] * 100)
    result = measure.result()
    assert result["imbalance"] == 75.0
    assert result["imbalance_fraction"] == 0.75
    assert result["imbalance_to_mean_load"] == 3.0
    assert result["loads"] == [0, 0, 100, 0]


@pytest.mark.parametrize("sample_every", [1, 10])
@pytest.mark.parametrize("size", [999, 1000, 1001, 25_000])
def test_series_stays_short_and_true(size: int, sample_every: int) -> None:
    stream = zipf(size, 100, 7)
    measure = feed(Imbalance(7, sample_every=sample_every), stream, list(range(0, size, 777)))
    result = measure.result()

    at = np.array(result["series_records"])
    step = at[0]
    assert at.size < 1000
    assert at.size >= min(500, size // sample_every)
    assert at.tolist() == list(range(step, size + 1, step))
    loads = np.cumsum(np.eye(7)[stream.workers], axis=0)
    expected = (loads.max(axis=1) - loads.mean(axis=1)) / np.arange(1, size + 1)
    np.testing.assert_allclose(result["series_imbalance_fraction"], expected[at - 1], atol=1e-12)


def test_same_mask_is_no_new_phase() -> None:
    measure = Imbalance(2)
    measure.update([0, 0], [0, 0])
    measure.set_active([True, True])
    assert measure.result()["imbalance"] == 1.0


@pytest.mark.parametrize(
    ("mask", "message"),
    [([True], "2 entries"), ([[True, True]], "2 entries"), ([False, False], "at least one")],
)
def test_refuses_a_mask(mask: list[bool], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Imbalance(2).set_active(mask)


def test_refuses_no_sampling_step() -> None:
    with pytest.raises(ValueError, match="sample_every must be at least 1, got 0"):
        Imbalance(2, sample_every=0)
