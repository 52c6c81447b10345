"""D-Choices, W-Choices and Round-Robin."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from routers.streams import imbalance, loads_of, spread, uniform, zipf
from unskew.routers import DChoices, PartialKey, RoundRobinHead, Shuffle, WChoices
from unskew.routers.head_choices import HeadRouter

HEAD: list[type[HeadRouter]] = [DChoices, WChoices, RoundRobinHead]
over_head = pytest.mark.parametrize("scheme", HEAD)


@over_head
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"theta": 0.0}, "theta must be between 1e-09 and 1.0, got 0.0"),
        ({"theta": 1.5}, "theta must be between 1e-09 and 1.0, got 1.5"),
        ({"theta": float("nan")}, "theta must be between 1e-09 and 1.0, got nan"),
        ({"capacity": 0}, "capacity must be at least 1, got 0"),
        ({"warm_up": -1}, "warm_up must be at least 0, got -1"),
    ],
)
def test_refuses(scheme: type[HeadRouter], given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        scheme(4, **given)


def test_refuses_a_negative_tolerance() -> None:
    with pytest.raises(ValueError, match=r"^epsilon must be at least 0.0, got -1$"):
        DChoices(4, epsilon=-1)


@over_head
def test_defaults(scheme: type[HeadRouter]) -> None:
    small, large = scheme(4), scheme(100)
    assert (small.theta, small.capacity, small.warm_up) == (1 / 20, 1000, 200)
    assert (large.theta, large.capacity, large.warm_up) == (1 / 500, 2000, 5000)


@over_head
def test_no_key_is_hot_before_it_came_ten_times(scheme: type[HeadRouter]) -> None:
    router = scheme(10)
    pkg = PartialKey(10)
    keys = [7] * 9
    assert np.array_equal(router.route(keys), pkg.route(keys))
    assert router.head().tolist() == []
    assert len(router.candidates(7)) == 2
    router.route([7])
    assert router.head().tolist() == [7]
    assert len(router.candidates(7)) == 10


@over_head
def test_a_new_router_has_no_head(scheme: type[HeadRouter]) -> None:
    assert scheme(4, warm_up=0).head().tolist() == []


@over_head
def test_a_tail_alone_is_routed_as_by_pkg(scheme: type[HeadRouter]) -> None:
    keys = uniform(1000, 3000)
    assert np.array_equal(scheme(10).route(keys), PartialKey(10).route(keys))


@over_head
def test_one_key_goes_evenly_to_all(scheme: type[HeadRouter]) -> None:
    assert imbalance(scheme(9, warm_up=0).route([7] * 500), 9) < 1


@over_head
def test_the_head_is_ordered_by_frequency(scheme: type[HeadRouter]) -> None:
    router = scheme(5, theta=0.2, warm_up=0)
    router.route([3] * 20 + [9] * 40 + [1] * 39 + [5])
    assert router.head().tolist() == [9, 1, 3]


def test_w_choices_is_even_to_a_record_or_two_when_the_head_dominates() -> None:
    n = 10
    keys = zipf(1.6, 300, 3000)
    router = WChoices(n)
    workers = router.route(keys)
    assert imbalance(workers, n) <= 2
    assert imbalance(PartialKey(n).route(keys), n) > 100


def test_round_robin_takes_turns_with_the_head() -> None:
    router = RoundRobinHead(6, warm_up=0, theta=0.5)
    workers = router.route([7] * 50)
    assert set((np.diff(workers) % 6).tolist()) == {1}
    starts = {int(RoundRobinHead(50, warm_up=0, source=s).route([7])[0]) for s in range(10)}
    assert len(starts) > 4


def test_d_choices_with_all_workers_is_w_choices() -> None:
    keys = zipf(2.5, 300, 3000)
    many, all_ = DChoices(10, epsilon=0.0), WChoices(10)
    assert np.array_equal(many.route(keys), all_.route(keys))
    assert many.choices == 10


@pytest.mark.parametrize("n", [1, 2])
def test_few_workers(n: int) -> None:
    keys = zipf(1.0, 30, 1000)
    for scheme in HEAD:
        loads = loads_of(scheme(n, warm_up=0).route(keys), n)
        assert loads.sum() == 1000
        assert loads.max() - loads.min() < 20


@pytest.mark.jit
@pytest.mark.parametrize("z", [0.5, 1.0, 1.4, 2.0])
@pytest.mark.parametrize("n", [50, 100])
def test_d1_balance_near_shuffle_where_pkg_fails(n: int, z: float) -> None:
    m = 150_000
    keys = zipf(z, 10_000, m)
    d_choices, w_choices = DChoices(n), WChoices(n)
    d_workers, w_workers = d_choices.route(keys), w_choices.route(keys)
    assert imbalance(w_workers, n) / m < 1e-4
    assert imbalance(d_workers, n) / m < 5e-3
    if z >= 1.0:
        assert imbalance(PartialKey(n).route(keys), n) / m > 1e-2
    pairs = [sum(spread(keys, w).values()) for w in (d_workers, w_workers, Shuffle(n).route(keys))]
    assert pairs[0] <= pairs[1] < pairs[2]


@pytest.mark.jit
def test_a_key_outside_the_head_is_on_two_workers() -> None:
    keys = zipf(1.4, 10_000, 100_000)
    router = DChoices(50)
    on = spread(keys, router.route(keys))
    ever_hot = {key for key, workers in on.items() if workers > 2}
    frequent = np.unique(keys, return_counts=True)
    counts = dict(zip(frequent[0].tolist(), frequent[1].tolist(), strict=True))
    # No key with fewer than ten records was ever a head key.
    assert min(counts[key] for key in ever_hot) >= 10
    assert set(router.head()[:10].tolist()) <= ever_hot
