"""Candidates, and the least loaded of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routers.primitives import choices as choose_plainly
from unskew.kernels.choices import (
    add_load,
    candidates,
    first_choice,
    least_loaded,
    least_of,
    new_cursors,
    new_loads,
    next_prime,
)
from unskew.kernels.hashing import mix
from unskew.kernels.jit import kernel

keys_64 = st.integers(0, 2**64 - 1)


def candidates_of(key: int, seed: int, n: int) -> list[int]:
    out = np.empty(n, np.int32)
    candidates(np.uint64(key), np.uint64(seed), n, next_prime(n), out)
    return out.tolist()


@kernel
def drive(hashes: Any, owners: Any, d: int, loads: Any, cursors: Any, prime: int, out: Any) -> None:
    """Write the choice with a cursor and the choice by a scan."""
    for i in range(len(hashes)):
        out[0, i] = least_of(hashes[i], d, loads.of, prime)
        if owners[i] < 0:
            out[1, i] = out[0, i]
        else:
            out[1, i] = least_loaded(owners[i], cursors, hashes[i], d, loads, prime)
        add_load(loads, out[1, i])


@pytest.mark.parametrize(
    ("n", "prime"), [(0, 2), (1, 2), (2, 2), (3, 3), (4, 5), (90, 97), (1000, 1009), (7920, 7927)]
)
def test_next_prime(n: int, prime: int) -> None:
    assert next_prime(n) == prime


@given(st.integers(0, 5000))
def test_next_prime_is_the_least(n: int) -> None:
    prime = next_prime(n)
    assert all(prime % q for q in range(2, prime))
    assert not any(all(p % q for q in range(2, p)) for p in range(max(n, 2), prime))


@settings(deadline=None)
@given(keys_64, keys_64, st.integers(1, 40))
def test_candidates_meet_every_worker_once(key: int, seed: int, n: int) -> None:
    workers = candidates_of(key, seed, n)
    assert sorted(workers) == list(range(n))
    assert workers == choose_plainly(key, seed, n, n)


def test_fewer_candidates_are_the_first_ones() -> None:
    out = np.empty(3, np.int32)
    candidates(np.uint64(5), np.uint64(1), 10, 11, out)
    assert out.tolist() == candidates_of(5, 1, 10)[:3]


@pytest.mark.parametrize("n", [2, 6, 7, 24])
def test_first_and_second_candidates_are_even(n: int) -> None:
    rng = np.random.default_rng(n)
    both = [candidates_of(int(key), 3, n)[:2] for key in rng.integers(2**63, size=3000)]
    for which in (0, 1):
        loads = np.bincount([pair[which] for pair in both], minlength=n)
        expected = 3000 / n
        assert ((loads - expected) ** 2 / expected).sum() < n - 1 + 5 * (2 * n) ** 0.5


def test_the_first_choice_is_in_range_at_the_ends() -> None:
    for n in (1, 2, 3, 1000, 2**20):
        assert first_choice(np.uint64(0), n) == 0
        assert first_choice(np.uint64(2**64 - 1), n) == n - 1


@settings(deadline=None, max_examples=100)
@given(
    st.integers(1, 15),
    st.integers(1, 15),
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.3, 0.9]),
)
def test_the_cursor_finds_what_a_scan_finds(n: int, d: int, seed: int, others: float) -> None:
    rng = np.random.default_rng(seed)
    owners = np.where(rng.random(300) < others, -1, rng.zipf(1.5, 300) % 5)
    names = np.where(owners < 0, rng.integers(100, 200, 300), owners).astype(np.uint64)
    hashes = np.array([mix(name, np.uint64(7)) for name in names], np.uint64)
    loads, out = new_loads(n), np.empty((2, 300), np.int64)
    drive(hashes, owners, min(d, n), loads, new_cursors(5), next_prime(n), out)
    assert np.array_equal(out[0], out[1])
    assert np.array_equal(loads.of, np.bincount(out[1], minlength=n))
    assert loads.low.tolist() == [loads.of.min(), (loads.of == loads.of.min()).sum()]
