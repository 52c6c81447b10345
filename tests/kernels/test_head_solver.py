"""The solver of D-Choices' d, against the plain definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routers.primitives import constraint_holds
from routers.primitives import solve_choices as solve_plainly
from unskew.kernels.head import solve_choices

heads = st.lists(st.floats(0.001, 1.0), max_size=30).map(lambda w: sorted(w, reverse=True))


def solve(n: int, epsilon: float, shares: list[float]) -> int:
    prefixes = np.zeros(len(shares) + 1)
    for i, share in enumerate(shares):
        prefixes[i + 1] = prefixes[i] + share
    return int(solve_choices(n, epsilon, prefixes))


def scaled(weights: list[float], head: float) -> list[float]:
    return [weight / sum(weights) * head for weight in weights]


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 60), heads, st.floats(0.01, 1.0), st.sampled_from([0.0, 1e-4, 0.01, 0.1]))
def test_equals_the_definition(n: int, weights: list[float], head: float, epsilon: float) -> None:
    shares = scaled(weights, head)
    d = solve(n, epsilon, shares)
    assert d == min(n, solve_plainly(n, epsilon, shares))


@settings(max_examples=100, deadline=None)
@given(st.integers(3, 60), heads.filter(bool), st.floats(0.01, 1.0))
def test_is_the_least_that_holds(n: int, weights: list[float], head: float) -> None:
    shares = scaled(weights, head)
    d = solve(n, 1e-4, shares)
    prefixes = range(1, len(shares) + 1)
    assert 2 <= d <= n
    assert d >= min(n, shares[0] * n - 1e-6)
    if d < n:
        assert all(constraint_holds(n, d, 1e-4, shares, h) for h in prefixes)
    if d - 1 >= max(2, shares[0] * n):
        assert not all(constraint_holds(n, d - 1, 1e-4, shares, h) for h in prefixes)


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 60), heads.filter(bool), st.floats(0.01, 1.0))
def test_more_tolerance_needs_no_more_choices(n: int, weights: list[float], head: float) -> None:
    shares = scaled(weights, head)
    solved = [solve(n, epsilon, shares) for epsilon in (0.0, 1e-4, 1e-2, 0.1, 1.0)]
    assert solved == sorted(solved, reverse=True)


@pytest.mark.parametrize(("n", "d"), [(1, 1), (2, 2), (3, 2), (100, 2)])
def test_an_empty_head_needs_two(n: int, d: int) -> None:
    assert solve(n, 1e-4, []) == d


@pytest.mark.parametrize("n", [1, 2, 5, 100])
def test_one_key_with_all_records_needs_all_workers(n: int) -> None:
    assert solve(n, 1e-4, [1.0]) == n


def test_a_hotter_key_needs_more_choices() -> None:
    solved = [solve(50, 1e-4, [share]) for share in np.arange(0.02, 1.0, 0.02)]
    assert solved == sorted(solved)
    assert solved[0] < 10 < 40 < solved[-1]


def test_rounding_does_not_cost_a_choice() -> None:
    # 0.07 * 100 is 7.000000000000001, and its ceiling would be 8.
    assert 0.07 * 100 > 7
    assert solve(100, 1.0, [0.07]) == 7
