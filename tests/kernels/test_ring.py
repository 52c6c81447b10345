"""The ring, against a sorted list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routers.reference_ring import Consistent
from unskew.kernels.ring import Ring, new_ring, ring_candidates, route_ring

SEED = 5
HASH_SEED = np.uint64((SEED + 45) * 0x9E3779B97F4A7C15 % 2**64)
EDGES = np.array([0, 1, 2**63, 2**64 - 1], np.uint64)

nodes = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)


def plain_ring(counts: list[int]) -> Consistent:
    """Return the reference with these numbers of points."""
    ring = Consistent(len(counts), seed=SEED, nodes=1, capacities=[float(n) for n in counts])
    return ring


def clockwise(ring: Ring, key: int, n_workers: int, wanted: int) -> list[int]:
    out = np.empty(wanted, np.int32)
    ring_candidates(np.uint64(key), HASH_SEED, ring, np.zeros(n_workers + 1, np.int64), out)
    return out.tolist()


@settings(deadline=None)
@given(nodes)
def test_points_are_sorted_and_followed_by_another_worker(counts: list[int]) -> None:
    ring = new_ring(np.array(counts), SEED)
    assert (
        list(zip(ring.points.tolist(), ring.workers.tolist(), strict=True))
        == plain_ring(counts).ring
    )
    n = len(ring.points)
    assert n == sum(counts)
    for at in range(n):
        later = [(at + step) % n for step in range(1, n)]
        others = [to for to in later if ring.workers[to] != ring.workers[at]]
        assert ring.following[at] == (others[0] if others else at)


@settings(deadline=None)
@given(nodes, st.integers(0, 2**32))
def test_equals_the_sorted_list(counts: list[int], seed: int) -> None:
    ring, plain = new_ring(np.array(counts), SEED), plain_ring(counts)
    keys = np.concatenate([EDGES, np.random.default_rng(seed).integers(2**63, size=40, dtype="u8")])
    workers = np.empty(len(keys), np.int32)
    route_ring(keys, HASH_SEED, ring, workers)
    active = sum(count > 0 for count in counts)
    for key, worker in zip(keys.tolist(), workers, strict=True):
        met = clockwise(ring, key, len(counts), active)
        assert met == plain.clockwise(key, active)
        assert met[0] == worker


def test_a_key_on_a_point_belongs_to_it() -> None:
    ring = new_ring(np.array([5, 5, 5]), 0)
    # The hash of a key is a bijection; here the points themselves are looked up, by the guide.
    bits = len(ring.guide).bit_length() - 1
    for at, point in enumerate(ring.points.tolist()):
        first = int(ring.guide[point >> (64 - bits)])
        assert first <= at
        assert all(ring.points[between] < point for between in range(first, at))


@pytest.mark.parametrize("at", [0, 3, 14])
def test_a_worker_that_leaves_takes_only_its_points(at: int) -> None:
    before = new_ring(np.full(15, 20), SEED)
    counts = np.full(15, 20)
    counts[at] = 0
    after = new_ring(counts, SEED)
    kept = before.workers != at
    assert np.array_equal(before.points[kept], after.points)
    assert np.array_equal(before.workers[kept], after.workers)
