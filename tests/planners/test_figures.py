"""The worked examples of the mixed-routing paper, step by step, and its default setting."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.bench.planning import planning_speed
from unskew.kernels.compact import Scale, discretise, represent
from unskew.planners import PLANNERS, Plan, Proposal, Statistics, make_planner
from unskew.planners.items import Keys, Vectors
from unskew.planners.problem import Problem
from unskew.planners.rebalance import Trial, Workflow, migration_priority

COSTS = {"k1": 7, "k2": 4, "k3": 2, "k4": 1, "k5": 5, "k6": 1}
"""Fig. 4: the keys by number, their costs, and what the hash says of them."""
HASHED = [0, 0, 0, 1, 1, 1]
TABLE = {"k3": 1, "k5": 0}


def figure_4() -> Problem:
    """Return the problem of Fig. 4; d1 and d2 of the paper are workers 0 and 1 here."""
    costs = np.array(list(COSTS.values()), float)
    hashed = np.array(HASHED, np.int32)
    homes = hashed.copy()
    for key, worker in TABLE.items():
        homes[list(COSTS).index(key)] = worker
    keys = np.arange(1, 7, dtype=np.uint64)
    plan = Plan.empty(2)
    return Problem(keys, costs, costs, homes, hashed, homes, np.ones(2), np.zeros(2), plan, plan)


def steps(items: Keys, trial: Trial) -> list[tuple[str, str]]:
    """Return what was placed where, in order."""
    names = [list(COSTS)[i] for i in items.chosen]
    rows = range(int(trial.placed.size[0]))
    return [(names[trial.placed.item[i]], f"d{trial.placed.worker[i] + 1}") for i in rows]


def entries(problem: Problem, homes: np.ndarray) -> dict[str, str]:
    return {
        name: f"d{home + 1}"
        for name, home, hashed in zip(COSTS, homes, problem.hashed, strict=True)
        if home != hashed
    }


def test_figure_4_llfd() -> None:
    problem = figure_4()
    assert problem.loads(problem.starts).tolist() == [16, 4]
    items = Keys(problem)
    trial = Workflow(items).run(0, theta=0.0)
    # k1 makes k3 leave d2; k3 is refused by d1 and makes k4 leave d2; k4 goes to d1.
    assert steps(items, trial) == [("k1", "d2"), ("k3", "d2"), ("k4", "d1")]
    homes = items.homes(trial.starts, trial.placed)
    assert problem.loads(homes).tolist() == [10, 10]
    assert entries(problem, homes) == {"k1": "d2", "k3": "d2", "k4": "d1", "k5": "d1"}
    assert trial.entries == 4
    assert trial.fits


def test_figure_4_min_table() -> None:
    problem = figure_4()
    items = Keys(problem)
    workflow = Workflow(items)
    trial = workflow.run(workflow.table_keys, theta=0.0)
    # With k3 and k5 moved back, k1 stays on d1, k2 leaves it for d2, and k4 d2 for d1.
    assert steps(items, trial) == [("k1", "d1"), ("k2", "d2"), ("k4", "d1")]
    homes = items.homes(trial.starts, trial.placed)
    assert problem.loads(homes).tolist() == [10, 10]
    assert entries(problem, homes) == {"k2": "d2", "k4": "d1"}
    assert trial.entries == 2


def test_migration_priority_of_figure_4() -> None:
    costs = np.array([7.0, 4.0])
    assert migration_priority(costs, costs, 1.0).tolist() == [1, 1]
    first, second = migration_priority(costs, costs, 0.5)
    assert second > first


def discretised(costs: list[float], resolution: int) -> list[float]:
    values = np.array(costs)
    r = resolution.bit_length() - 1
    scale = Scale(1.0, r, r + (int(values.max()) >> r))
    levels, order = np.empty((2, len(costs)), np.int32)
    workers = np.zeros(len(costs), np.int32)
    discretise(values, scale, workers, np.empty(1), np.empty(r + 3, np.int64), order, levels)
    out = np.empty(len(costs))
    represent(levels, scale, out)
    return out.tolist()


def test_figure_6() -> None:
    costs = [8.0, 6, 3, 2, 2, 1, 1, 1, 1, 1]
    found = discretised(costs, resolution=4)
    assert found[:3] == [8, 4, 4]
    assert set(found) <= {8.0, 4.0, 2.0, 1.0}
    deviations = np.cumsum(np.array(costs) - found)
    assert deviations[[1, 2]].tolist() == [2, 1]
    assert deviations[-1] == 0
    piecewise = [8, 5, 2, 2, 2, 2, 2, 2, 2, 2]
    assert abs(sum(costs) - sum(piecewise)) == 3


def test_example_vector_of_section_4() -> None:
    """Two keys with the values 4 and 4 on d2 whose hash says d1 are one vector."""
    costs = np.array([4.0, 4.0, 8.0])
    hashed, homes = np.array([0, 0, 1], np.int32), np.array([1, 1, 1], np.int32)
    keys, plan = np.arange(3, dtype=np.uint64), Plan.empty(2)
    problem = Problem(keys, costs, costs, homes, hashed, homes, np.ones(2), np.zeros(2), plan, plan)
    vectors = Vectors(problem, resolution=1)
    rows = zip(
        vectors.starts, vectors.hashed, vectors.costs, vectors.states, vectors.counts, strict=True
    )
    assert list(rows) == [(1, 1, 8, 8, 1), (1, 0, 4, 4, 2)]
    back = Workflow(vectors).run(1, theta=1.0)
    assert vectors.homes(back.starts, back.placed).tolist() == [0, 0, 1]


@pytest.mark.jit
def test_the_default_setting() -> None:
    """K = 10^6, N_D = 15, z = 0.85, theta_max = 0.08, N_A = 3000: what Mixed is for."""
    results = planning_speed("mixed,min-table", [1_000_000], [15], resolutions=[0, 8], intervals=5)
    by_name = {(row["planner"], row["resolution"]): row for row in results}
    for resolution in (0, 8):
        mixed, table = by_name["mixed", resolution], by_name["min-table", resolution]
        assert mixed["falls_short"] == table["falls_short"] == 0
        assert mixed["max_over_mean"] <= 1.08
        assert 0 < mixed["table_entries"] <= 3000
        assert mixed["moved_fraction"] < 0.6 * table["moved_fraction"]


@pytest.mark.jit
@pytest.mark.parametrize("resolution", [1, 8, 64, 256])
def test_error_of_the_compact_form(resolution: int) -> None:
    """The loads by the vectors are exact before a plan, and within 1 % after it."""
    rng = np.random.default_rng(1)
    frequencies = rng.permutation(np.arange(1.0, 1_000_001) ** -0.85)
    costs = rng.poisson(1e7 * frequencies / frequencies.sum()).astype(float)
    states = costs + rng.poisson(4e7 * frequencies / frequencies.sum())
    keys = rng.integers(0, 2**63, len(costs)).astype(np.uint64)
    statistics = Statistics(keys, costs, states, np.ones(15))
    problem = Problem.of(statistics, Plan.empty(15))
    vectors = Vectors(problem, resolution)
    assert len(vectors.counts) < len(keys) / 4
    trial = Workflow(vectors, beta=1.5).run(0, theta=0.02)
    planned = vectors.homes(trial.starts, trial.placed)
    assert (planned != problem.starts).any()
    for homes, error in ((problem.starts, 1e-9), (planned, 0.01 if resolution > 8 else 1e-4)):
        estimated = np.bincount(homes, vectors.costs[vectors.vectors], minlength=15)
        true = problem.loads(homes)
        assert (abs(estimated - true) / true).max() <= error


def test_the_compact_form_plans_like_the_original() -> None:
    rng = np.random.default_rng(2)
    costs = np.ceil(1e4 * np.arange(1, 2001) ** -0.85)
    keys = rng.integers(0, 2**63, len(costs)).astype(np.uint64)
    statistics = Statistics(keys, costs, 5 * costs, np.ones(10))
    for name in PLANNERS.keys() - {"simple", "readj"}:
        plans: list[Proposal] = [
            make_planner(name, resolution=resolution).plan(statistics, Plan.empty(10))
            for resolution in (0, 1, 8)
        ]
        assert not any(proposal.falls_short for proposal in plans)
        moved = [proposal.moved_fraction for proposal in plans]
        assert max(moved) <= 1.25 * min(moved) + 0.01
