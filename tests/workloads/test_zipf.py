import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.workloads import Uniform, Zipf
from unskew.workloads.ranks import ZipfRanks


def recipe(z: float, keys: int, records: int, seed: int) -> NDArray[np.int64]:
    """Return the keys as PAPERS.md has them, by NumPy alone."""
    cdf = np.cumsum(np.arange(1, keys + 1) ** -z)
    cdf /= cdf[-1]
    random = np.random.Generator(np.random.PCG64(seed)).random(records)
    return np.searchsorted(cdf, random, side="right") + 1


def ids(stream: Zipf | Uniform) -> NDArray[np.int64]:
    return np.concatenate(list(stream.ids(1_000)))


@settings(deadline=None, max_examples=40)
@given(
    z=st.floats(0, 3),
    keys=st.integers(1, 3_000),
    records=st.integers(1, 3_000),
    seed=st.integers(0, 9),
)
def test_equals_the_numpy_recipe(z: float, keys: int, records: int, seed: int) -> None:
    stream = Zipf(z=z, keys=keys, records=records, seed=seed)
    np.testing.assert_array_equal(ids(stream), recipe(z, keys, records, seed))


@pytest.mark.parametrize("z", [0.0, 0.85, 1.0, 1.4, 2.0, 30.0, 100.0])
def test_equals_the_numpy_recipe_where_one_slice_holds_many_keys(z: float) -> None:
    stream = Zipf(z=z, keys=1_000_000, records=20_000, seed=1)
    np.testing.assert_array_equal(ids(stream), recipe(z, 1_000_000, 20_000, 1))


@pytest.mark.jit
@pytest.mark.parametrize("z", [1.0, 1.4])
def test_equals_the_reference_stream(z: float) -> None:
    seed = 1000 + round(100 * z)
    stream = Zipf(z=z, keys=10_000, records=1_000_000, seed=seed)
    np.testing.assert_array_equal(ids(stream), recipe(z, 10_000, 1_000_000, seed))


def test_ranks_at_the_edges_of_the_slices() -> None:
    class Fixed:
        def __init__(self, numbers: NDArray[np.float64]) -> None:
            self.numbers = numbers

        def random(self, n: int) -> NDArray[np.float64]:
            return self.numbers[:n]

    for z, keys in [(0.0, 64), (1.0, 1), (1.2, 500)]:
        ranks = ZipfRanks.of(z, keys)
        edges = np.concatenate([ranks.cdf, np.arange(1_024) / 1_024])
        numbers = np.concatenate([edges, np.nextafter(edges, 0), np.nextafter(edges, 2)])
        numbers = numbers[(numbers >= 0) & (numbers < 1)]
        drawn = ranks.draw(Fixed(numbers), len(numbers))  # type: ignore[arg-type]
        np.testing.assert_array_equal(drawn, np.searchsorted(ranks.cdf, numbers, side="right") + 1)


def test_shares_are_the_law() -> None:
    weights = np.arange(1, 101) ** -1.3
    np.testing.assert_allclose(ZipfRanks.of(1.3, 100).shares(), weights / weights.sum(), atol=1e-15)


def test_one_key() -> None:
    assert set(ids(Zipf(keys=1, records=50)).tolist()) == {1}
    assert set(ids(Uniform(keys=1, records=50)).tolist()) == {1}


def test_uniform_is_even() -> None:
    counts = np.bincount(ids(Uniform(keys=10, records=10_000, seed=2)), minlength=11)
    assert counts[0] == 0
    # Five standard deviations of a binomial count.
    assert np.abs(counts[1:] - 1_000).max() < 5 * 30


def test_uniform_takes_every_64_bit_id() -> None:
    drawn = ids(Uniform(keys=2**63 - 1, records=100, seed=1))
    assert drawn.min() >= 1
    assert drawn.max() > 2**60


@pytest.mark.parametrize("keys", [0, -1])
def test_refuses_keys(keys: int) -> None:
    for stream in (Zipf, Uniform):
        with pytest.raises(ValueError, match=f"keys must be at least 1, got {keys}"):
            stream(keys=keys)


def test_refuses_laws_that_cannot_be_tabulated() -> None:
    with pytest.raises(ValueError, match="z must be between 0 and 100, got -1"):
        Zipf(z=-1)
    with pytest.raises(ValueError, match="z must be between 0 and 100, got nan"):
        Zipf(z=float("nan"))
    with pytest.raises(ValueError, match="keys must be between 1 and 2147483647"):
        Zipf(keys=2**31)
    with pytest.raises(ValueError, match="keys must be between"):
        Uniform(keys=2**63)
