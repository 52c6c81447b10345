"""Consistent hashing, and what elastic routers refuse."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from routers.streams import loads_of, spread, zipf
from unskew.routers import ConsistentHash, ElasticRouter, Fish

KEYS = np.random.default_rng(1).integers(2**63, size=3000)


@pytest.mark.parametrize("scheme", [ConsistentHash, Fish])
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"nodes": 0}, "nodes must be at least 1, got 0"),
        (
            {"capacities": [1.0, 1.0]},
            "capacities must have one entry for each of 3 workers, got 2",
        ),
        ({"capacities": [1, 0, 1]}, "a capacity must be above 0 and finite, got 0"),
        ({"capacities": [1, -1, 1]}, "a capacity must be above 0 and finite, got -1"),
        ({"capacities": [1, 1, np.inf]}, "a capacity must be above 0 and finite, got inf"),
    ],
)
def test_refuses(scheme: type[ElasticRouter], given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        scheme(3, **given)


def test_keys_are_whole() -> None:
    keys = zipf(1.0, 300, 2000)
    router = ConsistentHash(7)
    workers = router.route(keys)
    assert set(spread(keys, workers).values()) == {1}
    assert all(router.candidates(int(key)) == [w] for key, w in zip(keys, workers, strict=True))


def test_shares_are_about_even() -> None:
    shares = loads_of(ConsistentHash(5, nodes=400).route(KEYS), 5) / 3000
    assert abs(shares - 1 / 5).max() < 0.05


def test_shares_follow_the_capacities() -> None:
    router = ConsistentHash(4, capacities=[1, 1, 2, 4], nodes=300)
    shares = loads_of(router.route(KEYS), 4) / 3000
    assert abs(shares - np.array([1, 1, 2, 4]) / 8).max() < 0.05


def test_a_small_worker_still_has_a_point() -> None:
    router = ConsistentHash(2, capacities=[1.0, 0.0001], nodes=100)
    assert np.bincount(router.ring.workers).tolist() == [100, 1]


@pytest.mark.parametrize("n", [2, 10, 30])
def test_one_key_in_n_moves(n: int) -> None:
    router = ConsistentHash(n, nodes=256)
    before = router.route(KEYS)
    router.add_worker()
    joined = router.route(KEYS)
    assert (before != joined).mean() == pytest.approx(1 / (n + 1), rel=0.35)
    router.remove_worker(n)
    assert np.array_equal(router.route(KEYS), before)


def test_a_number_is_not_given_again() -> None:
    router = ConsistentHash(3)
    router.remove_worker(2)
    assert router.add_worker() == 3
    router.remove_worker(3)
    assert router.add_worker(2.0) == 4
    assert router.workers.tolist() == [0, 1, 4]
    assert set(router.route(KEYS).tolist()) == {0, 1, 4}


def test_another_seed_is_another_ring() -> None:
    same = ConsistentHash(10, seed=1).route(KEYS) == ConsistentHash(10, seed=2).route(KEYS)
    assert same.mean() < 0.2
