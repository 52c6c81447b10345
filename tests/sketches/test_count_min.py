from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.sketches import AdaptiveCountMin, CountMin
from unskew.workloads import open_stream


def zipf(z: float, n_keys: int, n_records: int) -> NDArray[np.uint64]:
    spec = f"zipf:z={z},keys={n_keys},records={n_records},seed=3"
    return np.concatenate([chunk.keys for chunk in open_stream(spec).chunks()])


class TestRefused:
    @pytest.mark.parametrize("name", ["width", "depth", "epoch", "window"])
    def test_sizes(self, name: str) -> None:
        parameters: dict[str, Any] = {name: 0}
        kinds = (CountMin, AdaptiveCountMin) if name in ("width", "depth") else (AdaptiveCountMin,)
        for kind in kinds:
            with pytest.raises(ValueError, match=f"^{name} must be at least 1, got 0$"):
                kind(**parameters)

    @pytest.mark.parametrize("growth", [1.0, 0.5, float("nan")])
    def test_growth(self, growth: float) -> None:
        with pytest.raises(
            ValueError, match=rf"^growth must be above 1 .* got growth={growth} and"
        ):
            AdaptiveCountMin(growth=growth)


def test_empty() -> None:
    assert CountMin().estimate([1]).tolist() == [0.0]
    assert AdaptiveCountMin().estimate([1]).tolist() == [0.0]


@pytest.mark.parametrize("width", [1, 2, 100])
def test_one_key(width: int) -> None:
    sketch = CountMin(width=width, depth=2)
    sketch.update([2**63] * 7)
    assert sketch.estimate([2**63]).tolist() == [7.0]
    assert sketch.cells.sum() == 14.0


def test_one_cell_counts_everything() -> None:
    sketch = CountMin(width=1, depth=1)
    sketch.update(range(50))
    assert sketch.estimate([1, 999]).tolist() == [50.0, 50.0]


def test_exact_for_few_keys() -> None:
    stream = np.random.default_rng(1).integers(0, 12, 600)
    counts = Counter(stream.tolist())
    sketch = CountMin(width=2048, depth=4)
    sketch.update(stream)
    assert sketch.estimate(list(counts)).tolist() == list(counts.values())


def test_every_record_adds_one_to_each_row() -> None:
    sketch = CountMin(width=7, depth=5)
    sketch.update(range(100))
    assert sketch.cells.sum(axis=1).tolist() == [100.0] * 5


@pytest.mark.parametrize("kind", [CountMin, AdaptiveCountMin])
def test_seeds_are_64_bits(kind: type[CountMin | AdaptiveCountMin]) -> None:
    with pytest.raises(ValueError, match=r"^seed must be between 0 and"):
        kind(seed=-1)


@pytest.mark.jit
@pytest.mark.parametrize("z", [0.0, 1.0, 1.8])
@pytest.mark.parametrize(("width", "depth"), [(50, 2), (200, 4), (1000, 6)])
def test_error_bound_of_skewed_streams(z: float, width: int, depth: int) -> None:
    stream = zipf(z, 20_000, 100_000)
    keys, counts = np.unique(stream, return_counts=True)
    within = []
    for seed in range(5):
        sketch = CountMin(width=width, depth=depth, seed=seed)
        sketch.update(stream)
        excess = sketch.estimate(keys) - counts
        assert (excess >= 0).all()
        within.append(np.mean(excess <= math.e / width * len(stream)))
    assert np.mean(within) >= 1 - math.exp(-depth)


@pytest.mark.jit
@pytest.mark.parametrize(
    ("width", "depth"),
    [
        (64, 4),
        (2048, 4),
        (64, 12),
    ],
)
def test_error_bound_at_its_hardest(width: int, depth: int) -> None:
    """As many equal keys as can each alone break the bound by being met in every row."""
    n_heavy = int(width / math.e * 0.95)
    rng = np.random.default_rng(6)
    above = []
    for seed in range(20):
        sketch = CountMin(width=width, depth=depth, seed=seed)
        sketch.update(np.repeat(rng.integers(0, 2**63, n_heavy), 10))
        asked = rng.integers(2**63, 2**64, 100_000, np.uint64)
        above.append(np.mean(sketch.estimate(asked) > math.e / width * sketch.total))
    assert np.mean(above) <= math.exp(-depth)


class TestAdaptive:
    def test_counts_the_last_epochs(self) -> None:
        sketch = AdaptiveCountMin(width=256, epoch=4, window=2)
        sketch.update([1, 1, 1, 1])
        assert sketch.estimate([1]).tolist() == [4.0]
        sketch.update([2, 2, 2, 2])
        assert sketch.estimate([1, 2]).tolist() == [4.0, 4.0]
        assert sketch.total == 8.0
        sketch.update([3])
        assert sketch.estimate([1, 2, 3]).tolist() == [0.0, 4.0, 1.0]
        assert sketch.total == 5.0

    def test_many_epochs_rebase_the_weights(self) -> None:
        sketch = AdaptiveCountMin(width=512, depth=4, epoch=1, window=3, growth=10.0)
        for key in range(700):
            sketch.update([key])
            known = sketch.estimate(range(max(0, key - 2), key + 1))
            assert (known >= 1.0).all()
            assert np.isfinite(sketch.cells).all()
        assert sketch.clock[1] > 500

    @pytest.mark.jit
    def test_recent_counts_are_better_than_those_of_a_plain_sketch(self) -> None:
        stream = np.concatenate([zipf(1.0, 2_000, 5_000) + np.uint64(epoch) for epoch in range(20)])
        recent = stream[-10_000:]
        plain = CountMin(width=256, depth=4)
        adaptive = AdaptiveCountMin(width=256, depth=4, epoch=5_000, window=2)
        plain.update(stream)
        adaptive.update(stream)
        keys, counts = np.unique(recent, return_counts=True)
        errors = adaptive.estimate(keys) - counts
        assert (errors >= 0).all()
        assert errors.mean() < 0.4 * (plain.estimate(keys) - counts).mean()
        assert adaptive.total == len(recent)

    @pytest.mark.jit
    def test_recent_estimates_are_better_than_old_ones(self) -> None:
        stream = zipf(0.8, 3_000, 50_000)
        errors = []
        # The window grows backwards: each further epoch adds the error of its own estimate.
        for window in range(1, 6):
            sketch = AdaptiveCountMin(width=200, depth=4, epoch=5_000, window=window, growth=2.0)
            sketch.update(stream)
            keys, counts = np.unique(stream[-5_000 * window :], return_counts=True)
            excess = sketch.estimate(keys) - counts
            assert (excess >= 0).all()
            errors.append(float(excess.mean()))
        added = np.diff([0.0, *errors])
        assert (np.diff(added) > 0).all()
        assert added[4] > 5 * added[0]

    @pytest.mark.jit
    @pytest.mark.parametrize(
        ("growth", "back"),
        [
            (1.5, 0),
            (3.0, 0),
            (3.0, 1),
        ],
    )
    def test_error_bound_of_one_epoch(self, growth: float, back: int) -> None:
        width, depth, epoch = 64, 4, 1_000
        limit = growth**back * math.e / width * epoch * growth / (growth - 1)
        above = []
        for seed in range(5):
            rng = np.random.default_rng(seed)
            stream, asked = rng.integers(0, 2**62, 20 * epoch), rng.integers(2**62, 2**63, 20_000)
            windows = []
            for window in range(back, back + 2):
                sketch = AdaptiveCountMin(width, depth, seed, epoch, max(1, window), growth)
                sketch.update(stream)
                windows.append(sketch.estimate(asked) if window else np.zeros(len(asked)))
            above.append(np.mean(windows[1] - windows[0] > limit))
        assert np.mean(above) <= math.exp(-depth)

    def test_merges_epoch_by_epoch(self) -> None:
        one, other = (AdaptiveCountMin(width=512, epoch=4, window=2) for _ in range(2))
        one.update([1] * 4 + [2] * 4 + [3] * 2)
        other.update([1] * 4 + [2] * 3)
        other.merge(one)
        assert other.estimate([1, 2, 3]).tolist() == [0.0, 7.0, 2.0]
        assert other.total == 9.0
        one.merge(one)
        assert one.estimate([1, 2, 3]).tolist() == [0.0, 8.0, 4.0]

    def test_an_epoch_that_both_are_in_is_as_full_as_the_fuller_one(self) -> None:
        one, other = (AdaptiveCountMin(width=512, epoch=4, window=1) for _ in range(2))
        one.update([1])
        other.update([1] * 3)
        one.merge(other)
        assert one.total == 4.0
        one.update([2, 3])
        assert one.total == 1.0
        assert one.estimate([1, 2, 3]).tolist() == [0.0, 0.0, 1.0]

    def test_records_of_one_behind_leave_the_window_with_their_epoch(self) -> None:
        ahead, behind = (AdaptiveCountMin(width=512, epoch=4, window=3) for _ in range(2))
        ahead.update([1] * 4 + [2] * 4 + [3])
        behind.update([9] * 2)
        ahead.merge(behind)
        assert ahead.total == 11.0
        assert ahead.estimate([9]).tolist() == [2.0]
        ahead.update([4] * 4)
        assert ahead.total == 9.0
        assert ahead.estimate([9]).tolist() == [0.0]

    def test_merges_what_was_rebased_with_what_was_not(self) -> None:
        # Growth so fast that the fifth epoch becomes the one of weight 1.
        ahead, behind, other = (
            AdaptiveCountMin(width=512, epoch=1, window=3, growth=1e30) for _ in range(3)
        )
        ahead.update([8, 9, 1, 2, 3])
        assert ahead.clock.tolist() == [4, 4, 1]
        assert ahead.estimate([1, 2, 3]).tolist() == [1.0, 1.0, 1.0]
        behind.update([5, 6, 7])
        behind.merge(ahead)
        assert behind.estimate([7, 1, 3]).tolist() == [1.0, 1.0, 1.0]
        other.update([5, 6, 7])
        ahead.merge(other)
        assert ahead.estimate([7, 1, 3]).tolist() == [1.0, 1.0, 1.0]

    def test_one_far_behind_is_merged_into_one_far_ahead(self) -> None:
        ahead, behind = (AdaptiveCountMin(width=64, epoch=1, window=2) for _ in range(2))
        ahead.update(np.arange(1000) % 5)
        behind.update([1, 2, 3])
        bounds = ahead.bounds(range(5))
        ahead.merge(behind)
        assert ahead.total == 2.0
        np.testing.assert_array_equal(ahead.bounds(range(5)), bounds)

    def test_one_far_ahead_is_merged_into_one_far_behind(self) -> None:
        ahead, behind = (AdaptiveCountMin(width=64, epoch=1, window=2) for _ in range(2))
        ahead.update(np.arange(3000) % 5)
        behind.update([1, 2, 3])
        behind.merge(ahead)
        assert behind.estimate([4]).tolist() == [1.0]

    @pytest.mark.parametrize(("window", "growth"), [(3000, 1.5), (3, 1e200), (2, math.inf)])
    def test_weights_too_far_apart_are_refused(self, window: int, growth: float) -> None:
        def use() -> None:
            sketch = AdaptiveCountMin(width=8, epoch=1, window=window, growth=growth)
            sketch.update(range(3000))
            sketch.estimate([2999])

        with pytest.raises(ValueError, match="growth"):
            use()
