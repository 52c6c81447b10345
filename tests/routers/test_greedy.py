"""Greedy-d and PKG."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from routers.streams import imbalance, loads_of, spread, uniform, zipf
from unskew.routers import GreedyD, KeyGrouping, PartialKey


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"d": 0}, "d must be at least 1, got 0"),
        ({"probe_records": 0}, "probe_records must be at least 1, got 0"),
        ({"load": "loc"}, "load must be one of local, global, probing, got 'loc'"),
    ],
)
def test_refuses(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        GreedyD(4, **given)


def test_one_key_goes_evenly_to_its_candidates() -> None:
    for d in (1, 2, 3, 7, 9):
        router = GreedyD(7, d=d)
        workers = router.route([5] * 70)
        assert workers[: min(d, 7)].tolist() == router.candidates(5).tolist()
        assert set(loads_of(workers, 7).tolist()) - {0} <= {70 // min(d, 7), -(-70 // min(d, 7))}


def test_the_first_candidate_is_the_place_by_key_grouping() -> None:
    places = KeyGrouping(9).route(np.arange(100))
    assert all(GreedyD(9, d=4).candidates(key)[0] == places[key] for key in range(100))


def test_greedy_1_is_key_grouping_and_greedy_2_is_pkg() -> None:
    keys = zipf(1.2, 300, 2000)
    assert np.array_equal(GreedyD(9, d=1).route(keys), KeyGrouping(9).route(keys))
    assert np.array_equal(GreedyD(9, d=2).route(keys), PartialKey(9).route(keys))


def test_greedy_n_is_even_to_one_record() -> None:
    assert imbalance(GreedyD(9, d=9).route(zipf(2.0, 300, 2000)), 9) < 1


def test_ties_go_to_the_first_candidate() -> None:
    router = GreedyD(5, d=3)
    assert all(GreedyD(5, d=3).route([key])[0] == router.candidates(key)[0] for key in range(50))


def test_a_key_is_on_at_most_d_workers() -> None:
    keys = zipf(1.0, 50, 2000)
    assert max(spread(keys, GreedyD(10, d=3).route(keys)).values()) == 3
    assert max(spread(keys, PartialKey(10).route(keys)).values()) == 2


def test_probing_sets_the_part_of_this_source() -> None:
    router = GreedyD(3, d=3, load="probing")
    router.route([1] * 30)
    router.probe([40, 10, 20], 4)
    assert router.loads.tolist() == [10.0, 2.5, 5.0]
    assert router.route([1])[0] == 1


@pytest.mark.parametrize("seed", range(5))
def test_p8_the_hottest_key_overloads_its_two_workers(seed: int) -> None:
    n, m = 20, 3000
    keys = zipf(1.5, 200, m, seed)
    p1 = (keys == 1).mean()
    assert p1 > 2 / n
    assert imbalance(PartialKey(n, seed=seed).route(keys), n) >= (p1 / 2 - 1 / n) * m - 1e-6


def test_p8_uniform_keys_leave_workers_unused() -> None:
    n, unused = 200, []
    for seed in range(30):
        router = PartialKey(n, seed=seed)
        keys = np.random.default_rng(seed).integers(2**63, size=n).tolist()
        used = {int(worker) for key in keys for worker in router.candidates(key)}
        unused.append(1 - len(used) / n)
    # Candidates are distinct: a worker is missed by one key with probability 1 - 2/n.
    assert np.mean(unused) == pytest.approx((1 - 2 / n) ** n, abs=0.01)
    assert np.mean(unused) == pytest.approx(np.exp(-2), abs=0.012)


@pytest.mark.jit
@pytest.mark.parametrize("n", [5, 20, 50])
def test_theorem_4_1_balance_while_the_hottest_key_is_below_its_bound(n: int) -> None:
    m = 200_000
    keys = uniform(6 * n + 20, m)
    assert np.bincount(keys.astype(np.int64)).max() / m < 1 / (5 * n)
    balanced = imbalance(PartialKey(n).route(keys), n)
    assert balanced <= m / n
    assert balanced < 0.05 * imbalance(KeyGrouping(n).route(keys), n)


@pytest.mark.jit
def test_local_loads_are_nearly_as_good_as_global_ones() -> None:
    n, sources = 10, 5
    keys = zipf(0.8, 10_000, 200_000)
    routers = [PartialKey(n, source=source) for source in range(sources)]
    workers = np.empty(len(keys), np.int32)
    for source, router in enumerate(routers):
        workers[source::sources] = router.route(keys[source::sources])
    hashed = imbalance(KeyGrouping(n).route(keys), n)
    assert imbalance(workers, n) < 0.01 * hashed
    assert imbalance(PartialKey(n, load="global").route(keys), n) < 0.01 * hashed
