"""Histograms count exactly, merge like the slow reference, and sum with a small error."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.apps.histogram import CombineHistograms, Histogram, shrunk

VALUES = st.lists(
    st.one_of(st.integers(-50, 50).map(float), st.floats(-1e6, 1e6)), min_size=1, max_size=80
)


def slowly(centers: list[float], counts: list[int], bins: int) -> list[tuple[float, int]]:
    """Return bins of which the closest two, except at the ends, were merged pair by pair."""
    found = list(zip(centers, counts, strict=True))
    while len(found) > bins:
        gaps = [after[0] - before[0] for before, after in pairwise(found[1:-1])]
        i = gaps.index(min(gaps)) + 1
        (p, m), (q, n) = found[i : i + 2]
        found[i : i + 2] = [(min(p + (q - p) * (n / (m + n)), q), m + n)]
    return found


@settings(deadline=None, max_examples=300)
@given(VALUES, st.integers(3, 20))
def test_merges_as_one_by_one(values: list[float], bins: int) -> None:
    centers, counts = np.unique(np.array(values), return_counts=True)
    expected = slowly(centers.tolist(), counts.tolist(), bins)
    found = shrunk(centers, counts, bins)
    assert list(zip(*(part.tolist() for part in found), strict=True)) == expected


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=5), st.integers(3, 20))
def test_counts_all_records_in_few_bins(parts: list[list[float]], bins: int) -> None:
    combined = CombineHistograms(bins)
    made = [combined.add_inputs(combined.create_accumulator(), part) for part in parts]
    merged = combined.merge_accumulators(made)
    values = np.concatenate([np.array(part) for part in parts])
    assert merged.total == len(values)
    assert len(merged.centers) <= bins
    assert (np.diff(merged.centers) > 0).all()
    assert (merged.centers[0], merged.centers[-1]) == (values.min(), values.max())
    scale = np.abs(values).max() * len(values)
    assert merged.centers @ merged.counts == pytest.approx(values.sum(), abs=1e-9 * scale + 1e-9)


def test_few_values_are_exact_in_whatever_parts() -> None:
    values = np.random.default_rng(1).integers(0, 30, 500)
    at_once = Histogram.of(values, 30)
    centers, counts = np.unique(values, return_counts=True)
    assert at_once.centers.tolist() == centers.tolist()
    assert at_once.counts.tolist() == counts.tolist()
    parts = [Histogram.of(part, 30) for part in np.split(values, [7, 100, 350])]
    merged = parts[0].merge(*parts[1:], bins=30)
    assert merged.centers.tolist() == centers.tolist()
    assert merged.counts.tolist() == counts.tolist()


@pytest.mark.parametrize(
    ("law", "error"), [("normal", 0.005), ("uniform", 0.005), ("lognormal", 0.02), ("heaps", 0.02)]
)
def test_sums_are_close(law: str, error: float) -> None:
    rng = np.random.default_rng(2)
    values = {
        "normal": rng.normal(size=20_000),
        "lognormal": rng.lognormal(size=20_000),
        "uniform": rng.random(20_000),
        "heaps": np.concatenate([rng.normal(-5, 1, 5000), rng.normal(5, 0.1, 15_000)]),
    }[law]
    points = np.quantile(values, np.linspace(0.01, 0.99, 99))
    exact = np.searchsorted(np.sort(values), points, "right")

    # Built at once, bins are runs of values: the error of a sum is at most its two next bins.
    at_once = Histogram.of(values, 64)
    i = np.clip(np.searchsorted(at_once.centers, points, "right") - 1, 0, 62)
    assert (np.abs(at_once.sum(points) - exact) <= at_once.counts[i] + at_once.counts[i + 1]).all()

    rng.shuffle(values)
    combined = CombineHistograms(64)
    workers = [combined.create_accumulator() for _ in range(8)]
    for n, chunk in enumerate(np.split(values, 40)):
        workers[n % 8] = combined.add_inputs(workers[n % 8], chunk.tolist())
    merged = combined.merge_accumulators(workers)
    assert merged.total == len(values)
    assert np.abs(merged.sum(points) - exact).max() < error * len(values)


def test_uniform_is_the_inverse_of_sum() -> None:
    histogram = Histogram.of(np.random.default_rng(3).normal(size=5000), 40)
    points = histogram.uniform(10)
    np.testing.assert_allclose(histogram.sum(points), 500 * np.arange(1, 10), rtol=1e-9)


def test_ends() -> None:
    nothing = Histogram.of([], 4)
    assert nothing.total == 0
    assert Histogram.of_bins([], []).merge(nothing, nothing, bins=4).total == 0
    assert nothing.sum([1.0, 2.0]).tolist() == [0.0, 0.0]
    assert nothing.uniform(3).tolist() == []
    one = Histogram.of([2.0, 2.0], 4)
    assert one.sum([1.0, 2.0, 3.0]).tolist() == [0.0, 2.0, 2.0]
    assert one.uniform(3).tolist() == [2.0, 2.0]
    two = Histogram.of([1.0, 3.0], 4)
    assert two.sum([0.9, 1.0, 2.0, 3.0]).tolist() == [0.0, 0.5, 1.0, 2.0]
    few = Histogram.of([1.0] * 9 + [3.0], 4)
    assert few.uniform(10).tolist()[:4] == [1.0] * 4
    assert few.uniform(20)[-1] == 3.0


def test_passes_over_what_is_no_number() -> None:
    combined = CombineHistograms(4)
    found = combined.add_inputs(
        combined.create_accumulator(), [1.0, None, float("nan"), float("inf"), -float("inf")]
    )
    assert combined.extract_output(combined.add_input(found, None)) == ([1.0], [1])


def test_refuses_too_few_bins() -> None:
    with pytest.raises(ValueError, match="bins must be at least 3, got 2"):
        CombineHistograms(2)
