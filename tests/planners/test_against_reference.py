"""Every planner equals its slow reference, home by home, where the reference does what it must."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planners.cases import Case, Parameters, cases, proposed, routes, takes
from planners.reference import REFERENCES, Problem, discretise, three_phases, unchanged
from unskew.planners import PLANNERS, Plan, Statistics
from unskew.planners.items import Keys, Vectors
from unskew.planners.problem import Problem as PlanningProblem
from unskew.planners.rebalance import Workflow

parameters = st.fixed_dictionaries(
    {
        "theta_max": st.sampled_from([0.0, 0.02, 0.1, 0.3, 0.6]),
        "max_entries": st.sampled_from([3, 6, 10, 20, 1000]),
        "beta": st.sampled_from([0.5, 1.0, 1.5, 2.0]),
    }
)
busy = cases(least_keys=15, most_keys=40, kinds=["any", "skewed"])
# The reference knows an entry by its place: one that says what the hash says is none.
problems = st.one_of(busy, cases(), busy).map(Case.tidy)


def as_problem(case: Case, given_: Parameters) -> Problem:
    """Return the problem in positions: the keys of the statistics, then those of the table only."""
    known, unseen = case.known, [0] * (len(case.known) - len(case.keys))
    return Problem(
        case.costs + unseen,
        case.states + unseen,
        routes(case.empty_plan(), known).tolist(),
        routes(case.plan(), known).tolist(),
        case.capacities,
        given_["theta_max"],
        given_["beta"],
    )


def test_every_planner_but_readj_has_a_reference() -> None:
    assert REFERENCES.keys() == PLANNERS.keys() - {"readj"}


@pytest.mark.parametrize("name", REFERENCES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(case=problems, given_=parameters)
def test_equals_the_reference(name: str, case: Case, given_: Parameters) -> None:
    problem = as_problem(case, given_)
    budget = given_["max_entries"] if takes(name, "max_entries") else len(case.known)
    before = unchanged(problem)
    assume(not (before.meets and len(case.table) <= budget))
    trial = REFERENCES[name](problem, given_["max_entries"])
    assume(trial.meets and len(trial.entries) <= budget)
    assume(trial.worst <= before.worst)
    proposal = proposed(name, given_, case)
    assert routes(proposal.plan, case.known).tolist() == trial.homes
    assert proposal.falls_short == ""
    if takes(name, "max_entries"):
        assert len(proposal.plan.keys) == len(trial.entries)


@pytest.mark.parametrize("psi", ["cost", "gamma"])
@settings(max_examples=100, deadline=None)
@given(
    case=problems, given_=parameters, part=st.sampled_from([0.0, 0.3, 1.0]), sticky=st.booleans()
)
def test_a_run_equals_the_reference_also_where_it_falls_short(
    psi: str, case: Case, given_: Parameters, part: float, sticky: bool
) -> None:
    problem = as_problem(case, given_)
    items = Keys(PlanningProblem.of(case.statistics(), case.plan()))
    workflow = Workflow(items, None if psi == "cost" else given_["beta"], sticky)
    clean = round(part * len(problem.table))
    run = workflow.run(clean, given_["theta_max"])
    trial = three_phases(problem, clean, psi, sticky)
    assert items.homes(run.starts, run.placed).tolist() == trial.homes
    assert run.fits == (not trial.forced)
    assert run.entries == len(trial.entries)
    assert run.moved == trial.moved_state


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 300), max_size=60), st.sampled_from([1, 2, 4, 8, 64]))
def test_discretisation_equals_the_reference(values: list[int], resolution: int) -> None:
    # With one worker and descending values, in units of 1, they are taken in this order.
    costs = sorted([*values, 1], reverse=True)
    statistics = Statistics(*map(np.array, (range(len(costs)), costs, costs, [1.0])))
    vectors = Vectors(PlanningProblem.of(statistics, Plan.empty(1)), resolution)
    assert vectors.costs[vectors.vectors].tolist() == discretise(costs, resolution)
