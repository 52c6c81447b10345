import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.hashing import hash_longs
from unskew.kernels.choices import route_first
from unskew.kernels.hashing import hash_seed
from unskew.workloads import FluctuatingZipf, Zipf
from unskew.workloads.fluctuating_zipf import _Places


def ids(stream: FluctuatingZipf | Zipf) -> NDArray[np.int64]:
    return np.concatenate(list(stream.ids(77)))


def loads(places: _Places, keys: int, workers: int) -> NDArray[np.float64]:
    """Return the loads from scratch: hash, route, add up."""
    weights = np.arange(1, keys + 1) ** -0.85
    routed = np.empty(keys, np.int64)
    route_first(hash_longs(places.keys_by_rank + 1), hash_seed(0), workers, routed)
    return np.bincount(routed, weights / weights.sum(), minlength=workers).astype(np.float64)


@pytest.mark.parametrize("f", [0.1, 0.5, 1.0, 2.0])
def test_every_interval_changes_the_load_by_f(f: float) -> None:
    places = _Places(FluctuatingZipf(keys=2_000, f=f, seed=3))
    before = loads(places, 2_000, 15)
    for _ in range(5):
        places.fluctuate()
        after = loads(places, 2_000, 15)
        change = (np.abs(after - before) / after).max()
        # The last swap may overshoot, by one key's share.
        assert f - 1e-9 <= change <= 3 * f + 1
        assert sorted(places.keys_by_rank.tolist()) == list(range(2_000))
        before = after


def test_first_interval_is_plain_zipf_and_others_are_relabelled() -> None:
    stream = FluctuatingZipf(z=1.2, keys=300, records=600, interval=200, workers=3, seed=1)
    plain, got = ids(Zipf(z=1.2, keys=300, records=600, seed=1)), ids(stream)
    np.testing.assert_array_equal(got[:200], plain[:200])
    for start in (200, 400):
        old, new = plain[start : start + 200], got[start : start + 200]
        pairs = set(zip(old.tolist(), new.tolist(), strict=True))
        assert len(pairs) == len(set(old.tolist())) == len(set(new.tolist()))
        assert (old != new).any()


def test_no_fluctuation_is_plain_zipf() -> None:
    stream = FluctuatingZipf(keys=300, records=600, interval=100, f=0, seed=1)
    np.testing.assert_array_equal(ids(stream), ids(Zipf(z=0.85, keys=300, records=600, seed=1)))


@pytest.mark.parametrize(("keys", "workers"), [(1, 15), (100, 1), (2, 2), (5, 100)])
def test_ends_where_f_is_out_of_reach(keys: int, workers: int) -> None:
    stream = FluctuatingZipf(keys=keys, workers=workers, records=300, interval=100, f=100)
    assert set(ids(stream).tolist()) <= set(range(1, keys + 1))


def test_uniform_keys_swap_in_vain() -> None:
    stream = FluctuatingZipf(z=0, keys=100, workers=4, records=300, interval=100)
    assert len(ids(stream)) == 300


def test_refuses() -> None:
    with pytest.raises(ValueError, match="interval must be at least 1, got 0"):
        FluctuatingZipf(interval=0)
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        FluctuatingZipf(workers=0)
    with pytest.raises(ValueError, match=r"f must be between 0 and 100, got -0\.1"):
        FluctuatingZipf(f=-0.1)
