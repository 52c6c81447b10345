"""Waterline: the ladder of the scheme."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from routers.streams import imbalance, loads_of, spread, uniform, zipf
from unskew.routers import DChoices, KeyGrouping, Waterline
from unskew.routers.base import SHARES


def pairs(keys: NDArray[np.uint64], workers: NDArray[Any]) -> int:
    return sum(spread(keys, workers).values())


def intervals(workers: NDArray[Any], n: int, length: int) -> NDArray[np.float64]:
    """Return the largest load over the mean, of each interval."""
    whole = workers[: len(workers) // length * length].reshape(-1, length)
    return np.array([loads_of(part, n).max() * n / length for part in whole])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"capacity": 0}, "capacity must be at least 1, got 0"),
        ({"epoch": 0}, "epoch must be at least 1, got 0"),
        ({"alarm": 0}, "alarm must be at least 1, got 0"),
        ({"alpha": 1.5}, "alpha must be between 0.0 and 1.0, got 1.5"),
        ({"tolerance": -0.1}, "tolerance must be at least 0.0, got -0.1"),
    ],
)
def test_refuses(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Waterline(4, **given)


def test_defaults() -> None:
    small, large = Waterline(4), Waterline(100)
    assert (small.capacity, small.epoch) == (1000, 20_000)
    assert (large.capacity, large.epoch) == (10_000, 100_000)
    assert Waterline(1000).capacity == 50_000
    assert Waterline.planned == SHARES


def test_before_the_first_plan_it_is_key_grouping() -> None:
    keys = zipf(1.4, 100, 500)
    assert np.array_equal(Waterline(10, alarm=10_000).route(keys), KeyGrouping(10).route(keys))


def test_what_is_balanced_stays_with_key_grouping() -> None:
    keys = uniform(100_000, 60_000)
    router = Waterline(4)
    assert np.array_equal(router.route(keys), KeyGrouping(4).route(keys))
    assert router.plans == 0


def test_one_key_goes_to_all() -> None:
    router = Waterline(9)
    workers = router.route([7] * 30_000)
    assert sorted(router.candidates(7).tolist()) == list(range(9))
    assert loads_of(workers[2000:], 9).max() - loads_of(workers[2000:], 9).min() < 300


def test_one_worker() -> None:
    router = Waterline(1, epoch=10)
    assert set(router.route(zipf(1.0, 30, 1000)).tolist()) == {0}
    assert router.plans == 0


def test_an_alarm_ends_an_epoch_early() -> None:
    slow, quick = Waterline(10, alarm=10**9), Waterline(10, alarm=50)
    for router in (slow, quick):
        router.route(np.arange(400))
        router.route([7] * 90)
    assert (slow.plans, quick.plans) == (0, 1)
    assert len(quick.candidates(7)) > 1


def test_a_key_that_leaves_the_counters_goes_home() -> None:
    router = Waterline(5, capacity=3, epoch=50)
    router.route([7] * 100)
    assert len(router.candidates(7)) > 1
    router.route(np.arange(100, 500))
    assert router.candidates(7).tolist() == KeyGrouping(5).route([7]).tolist()


@pytest.mark.jit
@pytest.mark.parametrize("z", [0.8, 1.2, 2.0])
@pytest.mark.parametrize("n", [5, 20])
def test_balance_at_the_price_of_key_grouping(n: int, z: float) -> None:
    keys = zipf(z, 2_000, 1_000_000)
    router, d_choices = Waterline(n), DChoices(n)
    workers = router.route(keys)
    n_keys = len(np.unique(keys))
    assert imbalance(workers, n) < 0.01 * len(keys) / n
    assert intervals(workers, n, 10_000 * n)[1:].max(initial=1) < 1.05
    assert pairs(keys, workers) <= 1.1 * n_keys + 2 * n
    assert pairs(keys, workers) < 0.8 * pairs(keys, d_choices.route(keys))


@pytest.mark.jit
def test_it_follows_keys_that_turn_over() -> None:
    n = 10
    keys = zipf(1.4, 2_000, 1_000_000)
    keys[500_000:] = 2_001 - keys[500_000:]
    workers = Waterline(n).route(keys)
    assert intervals(workers, n, 10_000 * n)[1:].max() < 1.05
    assert pairs(keys, workers) <= 1.5 * 2_000 + 4 * n


@pytest.mark.jit
def test_sources_that_decide_alone() -> None:
    n, sources = 10, 4
    keys = zipf(1.2, 2_000, 1_000_000)
    workers = np.empty(len(keys), np.int32)
    for source in range(sources):
        workers[source::sources] = Waterline(n, source=source).route(keys[source::sources])
    assert imbalance(workers, n) < 0.02 * len(keys) / n
    assert pairs(keys, workers) <= 1.1 * 2_000 + 2 * sources * n
