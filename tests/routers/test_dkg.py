"""DKG: learn, then place once."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from routers.streams import imbalance, spread, uniform, zipf
from unskew.routers import DistributionKey, KeyGrouping


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning": 0}, "learning must be at least 1, got 0"),
        ({"theta": 0.0}, "theta must be between 1e-09 and 1.0, got 0.0"),
        ({"theta": 2.0}, "theta must be between 1e-09 and 1.0, got 2.0"),
        ({"buckets": 0}, "buckets must be at least 1, got 0"),
    ],
)
def test_refuses(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        DistributionKey(4, **given)


def test_goes_by_hash_while_it_learns() -> None:
    keys = zipf(1.0, 300, 1000)
    router = DistributionKey(8, learning=1000)
    assert np.array_equal(router.route(keys), KeyGrouping(8).route(keys))


def test_keys_are_whole_once_it_has_learnt() -> None:
    keys = zipf(1.0, 300, 3000)
    router = DistributionKey(8, learning=1000)
    workers = router.route(keys)
    assert set(spread(keys[1000:], workers[1000:]).values()) == {1}
    assert max(spread(keys, workers).values()) == 2


def test_heavy_keys_are_kept_apart() -> None:
    n = 5
    keys = np.repeat(np.arange(10), [100, 90, 80, 70, 60, 5, 5, 5, 5, 5])
    router = DistributionKey(n, learning=len(keys), theta=0.1)
    router.route(keys)
    assert len(set(router.route(np.arange(5)).tolist())) == n


def test_one_key() -> None:
    router = DistributionKey(4, learning=10)
    router.route([7] * 10)
    assert len(set(router.route([7] * 10).tolist())) == 1
    assert router.candidates(7).tolist() == [0]


def test_a_uniform_stream_is_placed_by_buckets() -> None:
    n = 4
    keys = uniform(1000, 3000)
    router = DistributionKey(n, learning=2000, buckets=64)
    router.route(keys)
    assert len(router.heavy) == 0
    assert imbalance(router.route(keys), n) < 0.1 * 3000 / n


@pytest.mark.jit
def test_beats_the_hash_until_the_stream_drifts() -> None:
    n = 10
    keys = zipf(1.0, 10_000, 200_000)
    router = DistributionKey(n, learning=50_000, buckets=200)
    router.route(keys[:50_000])
    before = imbalance(router.route(keys[50_000:]), n)
    assert before < 0.2 * imbalance(KeyGrouping(n).route(keys[50_000:]), n)
    # All ranks move to other keys, and DKG does not notice.
    assert imbalance(router.route(keys[50_000:] + np.uint64(1_000_000)), n) > 5 * before
