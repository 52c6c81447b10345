"""The reference itself: the examples that the paper walks through, step by step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planners.reference import (
    REFERENCES,
    Problem,
    discretise,
    llfd,
    min_table,
    mixed,
    representatives,
    simple,
    three_phases,
    unchanged,
)

K1, K2, K3, K4, K5, K6 = range(6)
D1, D2 = 0, 1
FIGURE_4 = Problem(
    costs=[7, 4, 2, 1, 5, 1],
    states=[7, 4, 2, 1, 5, 1],
    hashed=[D1, D1, D1, D2, D2, D2],
    present=[D1, D1, D2, D2, D1, D2],
    capacities=[1, 1],
)
FIGURE_6 = [8, 6, 3, 2, 2, 1, 1, 1, 1, 1]


def test_figure_4_before() -> None:
    assert unchanged(FIGURE_4).loads == [16, 4]
    assert unchanged(FIGURE_4).entries == {K3: D2, K5: D1}
    assert not unchanged(FIGURE_4).meets


def test_figure_4_left() -> None:
    trial = llfd(FIGURE_4, 2)
    assert trial.trace == [
        ("place", K1, D2, (K3,)),
        ("refuse", K3, D1),
        ("place", K3, D2, (K4,)),
        ("place", K4, D1, ()),
    ]
    assert trial.loads == [10, 10]
    assert trial.entries == {K1: D2, K3: D2, K4: D1, K5: D1}
    assert trial.meets
    assert not trial.forced


def test_figure_4_right() -> None:
    trial = min_table(FIGURE_4, 2)
    assert trial.trace == [
        ("place", K1, D1, (K2,)),
        ("place", K2, D2, (K4,)),
        ("place", K4, D1, ()),
    ]
    assert trial.loads == [10, 10]
    assert trial.entries == {K2: D2, K4: D1}
    assert trial.meets


@pytest.mark.parametrize("beta", [0.5, 1.0, 1.5])
def test_gamma_weighs_cost_against_state(beta: float) -> None:
    problem = Problem([7, 4], [7, 4], [0, 0], [0, 0], [1], beta=beta)
    first = {0.5: K2, 1.0: K1, 1.5: K1}
    assert problem.order([K1, K2], "gamma")[0] == first[beta]


def test_gamma_of_nothing() -> None:
    problem = Problem([0, 0, 3, 9], [0, 5, 0, 1], [0] * 4, [0] * 4, [1])
    assert problem.order(range(4), "gamma") == [2, 3, 0, 1]


def test_the_smallest_state_is_cleaned_first() -> None:
    problem = Problem([0, 0, 0], [5, 2, 2], [0] * 3, [1] * 3, [1, 1])
    homes = [three_phases(problem, n, "gamma").homes for n in range(4)]
    assert homes == [[1, 1, 1], [1, 0, 1], [1, 0, 0], [0, 0, 0]]


def test_mixed_cleans_until_the_table_is_small_enough() -> None:
    assert len(mixed(FIGURE_4, 6).entries) == 4
    assert len(mixed(FIGURE_4, 2).entries) == 2


def test_a_key_that_fits_nowhere_is_put_where_it_does_least_harm() -> None:
    problem = Problem([10, 2], [1, 1], [0, 0], [0, 0], [1, 3, 0])
    trial = llfd(problem, 9)
    assert trial.trace == [("refuse", 0, 1), ("refuse", 0, 0), ("place", 0, 1, ())]
    assert trial.forced
    assert trial.loads == [2, 10, 0]


def test_simple_is_longest_first() -> None:
    problem = Problem([3, 3, 2, 2, 2, 0], [1] * 6, [0] * 6, [0] * 6, [1, 1])
    trial = simple(problem, 9)
    assert trial.homes == [0, 1, 0, 1, 0, 0]
    assert trial.loads == [7, 5]


@pytest.mark.parametrize("name", REFERENCES)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), theta_max=st.sampled_from([0.0, 0.1, 1.0]))
def test_every_key_ends_up_on_an_active_worker(
    name: str, data: st.DataObject, theta_max: float
) -> None:
    n_workers, n = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 12))
    amounts = st.lists(st.integers(0, 9), min_size=n, max_size=n)
    workers = st.lists(st.integers(0, n_workers - 1), min_size=n, max_size=n)
    problem = Problem(
        data.draw(amounts),
        data.draw(amounts),
        data.draw(workers),
        data.draw(workers),
        data.draw(st.lists(st.integers(1, 4), min_size=n_workers, max_size=n_workers)),
        theta_max,
    )
    trial = REFERENCES[name](problem, data.draw(st.integers(0, n)))
    assert set(trial.homes) <= set(problem.active)
    assert sum(trial.loads) == sum(problem.costs)
    placed = [step[1] for step in trial.trace if step[0] == "place"]
    assert len(placed) == len(set(placed))
    if not trial.meets and name in ("llfd", "min-table", "min-mig", "mixed"):
        assert trial.forced


def test_figure_6() -> None:
    assert representatives(8, 4) == [0, 1, 2, 4, 8]
    phi = discretise(FIGURE_6, 4)
    assert phi == [8, 4, 4, 2, 2, 2, 1, 1, 1, 1]
    assert sum(FIGURE_6[:2]) - sum(phi[:2]) == 2
    assert sum(FIGURE_6) - sum(phi) == 0


def test_figure_6_by_pieces() -> None:
    def xi(x: int) -> int:
        return 2 if 1 <= x <= 3 else 5 if 4 <= x <= 6 else 8 if 7 <= x <= 9 else 0

    assert abs(sum(x - xi(x) for x in FIGURE_6)) == 3


@pytest.mark.parametrize(
    ("largest", "resolution", "expected"),
    [
        (3, 1, [0, 1, 2, 3]),
        (3, 4, [0, 1, 2]),
        (9.5, 2, [0, 1, 2, 4, 6, 8]),
        (0, 8, [0, 1, 2, 4]),
    ],
)
def test_representatives(largest: float, resolution: int, expected: list[int]) -> None:
    assert representatives(largest, resolution) == expected


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 200), max_size=40), st.sampled_from([1, 2, 4, 8]))
def test_a_value_stays_near_its_own(values: list[int], resolution: int) -> None:
    phi = discretise(sorted(values, reverse=True), resolution)
    for value, stand_in in zip(sorted(values, reverse=True), phi, strict=True):
        assert abs(value - stand_in) <= min(resolution, value + 1)
    assert discretise(values, 1) == values
