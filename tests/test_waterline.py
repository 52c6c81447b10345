"""Waterline plans: the guarantee, and what they leave alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.waterline import Demand, Pairs, plan, water_level

Floats = NDArray[np.float64]
NONE = np.empty(0, np.int64)

law = settings(max_examples=300, deadline=None)
loads = st.floats(0, 1000) | st.integers(0, 10).map(float)
tolerances = st.sampled_from([0.001, 0.02, 0.2])


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    n_workers, n_keys = draw(st.integers(1, 12)), draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    z = draw(st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0]))
    amounts = 1000 * np.arange(1, n_keys + 1) ** -z
    rest = draw(st.lists(loads, min_size=n_workers, max_size=n_workers))
    speeds = draw(st.sampled_from([np.ones(n_workers), rng.uniform(0.3, 3.0, n_workers)]))
    return Demand(
        rng.permutation(amounts),
        rng.integers(0, n_workers, n_keys),
        np.array(rest, np.float64) * draw(st.sampled_from([0.0, 0.1, 1.0])),
        speeds,
        draw(st.sampled_from([0.0, 0.0, 0.5, 5.0])),
    )


@st.composite
def in_force(draw: st.DrawFn, demand: Demand) -> Pairs:
    """Draw pairs, of none of the keys up to several times as many as are needed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(0, 60))
    keys = rng.integers(0, len(demand.amounts), n)
    workers = rng.integers(0, demand.n_workers, n)
    return Pairs.of(demand, keys, workers, rng.integers(1, 9, n).astype(np.float64))


def at_home(demand: Demand) -> Pairs:
    return Pairs.of(demand, NONE, NONE, np.empty(0))


def level_by_search(demand: Demand) -> float:
    """Return the level of free pairs, found by halving intervals."""
    low, high = 0.0, 1e9
    for _ in range(200):
        middle = (low + high) / 2
        room = sum(
            max(0.0, middle * q - r) for q, r in zip(demand.capacities, demand.rest, strict=True)
        )
        low, high = (low, middle) if room >= sum(demand.amounts) else (middle, high)
    return float(max(high, *(demand.rest / demand.capacities)))


@law
@given(demands())
def test_the_level_is_where_all_is_poured(demand: Demand) -> None:
    free = Demand(demand.amounts, demand.homes, demand.rest, demand.capacities)
    assert free.level() == pytest.approx(level_by_search(demand), rel=1e-9)
    assert free.level() <= demand.level() * (1 + 1e-12)


@law
@given(st.data(), demands(), tolerances)
def test_no_worker_is_above_the_tolerance(
    data: st.DataObject, demand: Demand, tolerance: float
) -> None:
    pairs = plan(demand, data.draw(in_force(demand)), tolerance=tolerance)
    assert pairs.height(demand) <= (1 + tolerance) * demand.level() * (1 + 1e-9)


@law
@given(st.data(), demands(), tolerances)
def test_at_most_w_minus_1_extra_pairs(
    data: st.DataObject, demand: Demand, tolerance: float
) -> None:
    current = data.draw(in_force(demand))
    pairs = plan(demand, current, tolerance=tolerance)
    assert pairs is current or pairs.extra() <= demand.n_workers - 1
    assert plan(demand, at_home(demand), tolerance=tolerance).extra() <= demand.n_workers - 1


@law
@given(st.data(), demands(), tolerances)
def test_no_load_is_lost_or_doubled(data: st.DataObject, demand: Demand, tolerance: float) -> None:
    pairs = plan(demand, data.draw(in_force(demand)), tolerance=tolerance)
    sums = np.bincount(pairs.keys, pairs.amounts, minlength=len(demand.amounts))
    assert sums == pytest.approx(demand.amounts, rel=1e-6, abs=1e-6)
    assert (pairs.amounts >= 0).all()
    assert np.array_equal(np.unique(pairs.keys), np.arange(len(demand.amounts)))
    rows = [*zip(pairs.keys.tolist(), pairs.workers.tolist(), strict=True)]
    assert rows == sorted(set(rows))


@law
@given(st.data(), demands(), tolerances)
def test_never_worse_and_quiet_when_balanced(
    data: st.DataObject, demand: Demand, tolerance: float
) -> None:
    current = data.draw(in_force(demand))
    kept = current.amounts.copy()
    pairs = plan(demand, current, tolerance=tolerance)
    assert pairs.height(demand) <= current.height(demand) * (1 + 1e-12)
    assert plan(demand, pairs, tolerance=2 * tolerance) is pairs
    assert np.array_equal(current.amounts, kept)


@law
@given(demands(), tolerances)
def test_keys_leave_only_workers_that_are_too_high(demand: Demand, tolerance: float) -> None:
    before, after = at_home(demand), plan(demand, at_home(demand), tolerance=tolerance)
    kept = {*zip(before.keys.tolist(), before.workers.tolist(), strict=True)}
    gone = kept - {*zip(after.keys.tolist(), after.workers.tolist(), strict=True)}
    bound = (1 + tolerance / 2) * demand.level()
    too_high = before.loads(demand) > bound * demand.capacities
    assert all(too_high[worker] for _, worker in gone)


@law
@given(st.data(), demands(), tolerances)
def test_pairs_are_kept(data: st.DataObject, demand: Demand, tolerance: float) -> None:
    current = data.draw(in_force(demand))
    pairs = plan(demand, current, tolerance=tolerance, keep_pairs=True)
    assert pairs is current or pairs.extra() <= 4 * demand.n_workers
    if demand.pair_cost == 0:
        assert pairs.height(demand) <= (1 + tolerance) * demand.level() * (1 + 1e-9)
    home = at_home(demand)
    sums = np.bincount(pairs.keys, pairs.amounts, minlength=len(demand.amounts))
    assert sums == pytest.approx(demand.amounts, rel=1e-6, abs=1e-6)
    assert plan(demand, home, keep_pairs=True).extra() <= demand.n_workers - 1


def test_a_hot_key_gets_as_few_workers_as_its_share_needs() -> None:
    demand = Demand(np.array([60.0] + [1.0] * 40), np.arange(41) % 10, np.zeros(10), np.ones(10))
    pairs = plan(demand, at_home(demand))
    assert 6 <= np.count_nonzero(pairs.keys == 0) <= 10
    assert pairs.extra() <= 9


def test_records_move_between_the_workers_of_a_key_first() -> None:
    demand = Demand(np.array([10.0, 4.0, 2.0]), np.array([0, 0, 1]), np.zeros(2), np.ones(2))
    current = Pairs.of(demand, np.array([0, 0]), np.array([0, 1]), np.array([5.0, 5.0]))
    pairs = plan(demand, current)
    assert np.array_equal(pairs.keys, current.keys)
    assert np.array_equal(pairs.workers, current.workers)
    assert pairs.amounts == pytest.approx([4, 6, 4, 2])


def test_a_rest_above_the_level_sets_it() -> None:
    demand = Demand(np.array([1.0, 1.0]), np.array([1, 1]), np.array([10.0, 0.0]), np.ones(2))
    assert demand.level() == 10
    current = at_home(demand)
    assert plan(demand, current) is current


def test_a_faster_worker_gets_more() -> None:
    demand = Demand(np.array([90.0]), np.array([0]), np.zeros(3), np.array([1.0, 2.0, 3.0]))
    pairs = plan(demand, at_home(demand))
    assert pairs.loads(demand) == pytest.approx([15, 30, 45])


def test_nothing_to_plan() -> None:
    demand = Demand(np.empty(0), NONE, np.array([3.0, 1.0]), np.ones(2))
    current = at_home(demand)
    assert plan(demand, current) is current
    assert water_level(0.0, [3.0, 1.0], [1.0, 1.0]) == 1.0


def test_it_needs_no_compiler() -> None:
    code = "import sys, unskew.waterline; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
