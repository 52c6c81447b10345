"""FISH: hot keys of late, as many candidates as they are hot, the shortest wait."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from routers.streams import imbalance, loads_of, zipf
from unskew.hashing import hash_keys
from unskew.kernels.fish import MINIMUM
from unskew.routers import Fish, PartialKey
from unskew.workloads import open_stream


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"theta": 0.0}, "theta must be between 1e-09 and 1.0, got 0.0"),
        ({"alpha": -0.1}, "alpha must be between 0.0 and 1.0, got -0.1"),
        ({"alpha": 1.1}, "alpha must be between 0.0 and 1.0, got 1.1"),
        ({"counters": 0}, "counters must be at least 1, got 0"),
        ({"epoch": 0}, "epoch must be at least 1, got 0"),
        ({"rate": 0.0}, "rate must be above 0 and finite, got 0.0"),
        ({"interval_s": -1.0}, "interval_s must be above 0 and finite, got -1.0"),
        ({"service_s": float("inf")}, "service_s must be above 0 and finite, got inf"),
    ],
)
def test_refuses(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        Fish(4, **given)


@pytest.mark.parametrize("sampled", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, 1.0, 1.0]])
def test_refuses_bad_samples(sampled: list[float]) -> None:
    router = Fish(2)
    before = router.snapshot()
    with pytest.raises(ValueError, match=r"^service_s must be 2 times above 0$"):
        router.observe_service(sampled)
    assert all(np.array_equal(before[part], array) for part, array in router.snapshot().items())


def test_one_key_goes_evenly_to_all() -> None:
    assert imbalance(Fish(7, epoch=1).route([5] * 500), 7) < 1


def test_a_cool_key_has_two_candidates() -> None:
    router = Fish(7)
    workers = router.route(np.arange(200) % 100)
    for key in range(100):
        assert len(router.candidates(key)) == 2
        assert set(workers[key::100].tolist()) <= set(router.candidates(key).tolist())


def with_waits(router: Fish, waits: list[float]) -> Fish:
    router.state.queues.waits[:] = waits
    router.state.queues.low[:] = [min(waits), waits.count(min(waits))]
    return router


def test_figure_7_the_shortest_wait_wins_over_the_fewest_tuples() -> None:
    router = with_waits(Fish(4, epoch=1), [50, 40, 50, 30])
    router.observe_service([1.0, 1.0, 2.0, 2.0])
    assert router.state.queues.waits.tolist() == [50, 40, 100, 60]
    assert router.route([7]).tolist() == [1]
    assert sorted(router.candidates(7).tolist()) == [0, 1, 2, 3]


def test_equation_1_queues_are_drained_every_interval() -> None:
    router = with_waits(Fish(3, epoch=1, rate=10.0, interval_s=3.0), [100, 20, 7])
    router.observe_service([0.1, 0.15, 2.0])
    waits = router.state.queues.waits
    assert waits.tolist() == pytest.approx([100, 30, 140])
    router.route([7] * 30)
    before = waits.copy()
    assert before[0] == 100
    worker = int(router.route([7])[0])
    # In 3 seconds they process 30, 20 and 1 records; then the next one comes.
    after = np.maximum(0, before - [30, 30, 20])
    after[worker] += [1, 1.5, 20][worker]
    assert waits.tolist() == pytest.approx(after.tolist())


@pytest.mark.parametrize(
    ("count", "d"), [(40, 16), (21, 16), (20, 8), (11, 8), (10, 4), (6, 4), (5, 2), (2, 2)]
)
def test_chk_halves_the_candidates(count: int, d: int) -> None:
    router = Fish(16, epoch=100, theta=0.01)
    router.route([1] * 40)
    router.route([2] * count)
    assert len(router.candidates(1)) == 16
    assert len(router.candidates(2)) == d


def test_chk_never_takes_candidates_away() -> None:
    router = Fish(16, epoch=1000, theta=0.001)
    router.route([2] * 10)
    assert len(router.candidates(2)) == 16
    router.route([1] * 500)
    router.route([2])
    assert len(router.candidates(2)) == 16


def test_chk_forgets_a_key_that_left_the_sketch() -> None:
    router = Fish(8, counters=2, epoch=1000, theta=0.001)
    router.route([2] * 4 + [1] * 100)
    assert len(router.candidates(2)) == 8
    router.route([3])
    assert len(router.candidates(2)) == 2
    router.route([2])
    assert len(router.candidates(2)) == 2


def test_d_min_is_the_even_share() -> None:
    router = Fish(20, epoch=100, alpha=1.0, theta=0.05)
    router.route([1] * 64 + [2] * 8 + list(range(100, 128)))
    assert router.state.numbers[MINIMUM] == 2
    assert len(router.candidates(2)) == 2
    # Two hot keys have 72 % of the records: 14.4 workers together, 7.2 each.
    router.route([2])
    assert router.state.numbers[MINIMUM] == 8
    assert len(router.candidates(2)) == 8


def test_candidates_grow_clockwise() -> None:
    router = Fish(16, epoch=100, theta=0.01)
    cool = router.candidates(2).tolist()
    router.route([1] * 40 + [2] * 10)
    warm = router.candidates(2).tolist()
    router.route([2] * 25)
    hot = router.candidates(2).tolist()
    assert (warm[:2], hot[:4], len(hot)) == (cool, warm, 16)


@pytest.mark.parametrize("leaver", [0, 3, 9])
def test_most_candidates_are_kept_when_a_worker_leaves(leaver: int) -> None:
    router = Fish(10)
    before = {key: router.candidates(key).tolist() for key in range(300)}
    router.remove_worker(leaver)
    touched = 0
    for key, workers in before.items():
        after = router.candidates(key).tolist()
        stayed = [worker for worker in workers if worker != leaver]
        assert after[: len(stayed)] == stayed
        touched += after != workers
    assert touched / 300 == pytest.approx(2 / 10, abs=0.08)


def test_a_hot_key_keeps_its_candidates_when_a_worker_leaves() -> None:
    router = Fish(10, epoch=50)
    router.route([7] * 200)
    before = router.candidates(7).tolist()
    router.remove_worker(before[4])
    router.route([7])
    assert router.candidates(7).tolist() == before[:4] + before[5:]


def test_a_hot_key_has_candidates_right_after_a_worker_left() -> None:
    router = Fish(10, epoch=50)
    router.route([7] * 200)
    router.remove_worker(4)
    assert 2 <= len(router.candidates(7)) <= 9


def test_queues_are_kept_in_records_when_a_faster_worker_comes() -> None:
    router = Fish(2, epoch=1)
    router.route([7] * 20)
    assert router.state.queues.waits.tolist() == [10, 10]
    router.add_worker(2.0)
    # In units of the new worker's time each of the ten records takes two.
    assert router.state.queues.waits.tolist() == [20, 20, 0]


def test_a_new_candidate_that_waits_less_is_taken() -> None:
    router = Fish(4, epoch=100, theta=0.01)
    router.route([1] * 50)
    keys = [2] * 60
    few = len(set(router.route(keys[:6]).tolist()))
    assert few == 2
    waits = router.state.queues.waits
    for key in keys[6:]:
        worker = router.route([key])[0]
        candidates = router.candidates(key)
        before = waits.copy()
        before[worker] -= 1
        assert before[worker] == before[candidates].min()


def test_queues_are_kept_when_workers_come_and_go() -> None:
    router = Fish(3, epoch=1)
    router.route([7] * 30)
    router.remove_worker(1)
    assert router.add_worker() == 3
    assert set(router.route([7] * 9).tolist()) == {3}


@pytest.mark.jit
def test_new_hot_keys_are_spread_soon_after_a_drift() -> None:
    stream = open_stream("evolving-zipf:z=1.5,keys=10000,records=100000,shift=0.8,seed=1")
    router = Fish(32)
    early, *late = hash_keys([1, 10_000, 9_999, 9_998]).tolist()
    spreads = []
    for chunk in stream.chunks(1000):
        router.route(chunk.keys)
        spreads.append([len(router.candidates(key)) for key in late])
    assert max(spreads[79]) == 2
    assert min(spreads[82]) > 2
    assert spreads[-1][0] == 32
    assert len(router.candidates(early)) == 2


@pytest.mark.jit
@pytest.mark.parametrize("z", [1.0, 1.5])
def test_workers_twice_as_fast_get_twice_the_records(z: float) -> None:
    capacities = [1.0, 2.0] * 8
    router = Fish(16, capacities=capacities)
    loads = loads_of(router.route(zipf(z, 10_000, 200_000)), 16)
    assert loads[1::2].sum() / loads[::2].sum() == pytest.approx(2.0, rel=0.1)


@pytest.mark.jit
def test_sampled_service_times_count_like_capacities() -> None:
    router = Fish(16)
    router.observe_service([0.016, 0.008] * 8)
    loads = loads_of(router.route(zipf(1.2, 10_000, 9_000)), 16)
    assert loads[1::2].sum() / loads[::2].sum() == pytest.approx(2.0, rel=0.1)


@pytest.mark.jit
@pytest.mark.parametrize("z", [1.0, 1.4, 2.0])
def test_is_near_shuffle_where_pkg_fails(z: float) -> None:
    n, m = 50, 200_000
    keys = zipf(z, 10_000, m)
    balanced = imbalance(Fish(n).route(keys), n)
    assert balanced / m < 5e-3
    assert balanced < 0.2 * imbalance(PartialKey(n).route(keys), n)
