"""The laws of `unskew.planners.base`, over the table of planners, exact and discretised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from planners.cases import (
    Case,
    Parameters,
    cases,
    elastic_cases,
    new_planner,
    perfect_cases,
    proposed,
    routes,
    settings_of_planners,
    takes,
)
from unskew.planners import PLANNERS, Proposal

VARIANTS: list[tuple[str, Parameters]] = [
    *((name, {}) for name in PLANNERS),
    *((name, {"resolution": 4}) for name in PLANNERS if takes(name, "resolution")),
]
LARGE = {"theta_max": 0.0, "max_entries": 10**6}

law = settings(max_examples=25, deadline=None)
over_all = pytest.mark.parametrize(
    ("name", "own"), VARIANTS, ids=["-".join([name, *own]) for name, own in VARIANTS]
)
problems = st.one_of(cases(), elastic_cases())


def within_budget(name: str, given_: Parameters, entries: int) -> bool:
    return not takes(name, "max_entries") or entries <= int(given_["max_entries"])


@over_all
@law
@given(case=problems, given_=settings_of_planners)
def test_pure(name: str, own: Parameters, case: Case, given_: Parameters) -> None:
    planner = new_planner(name, given_ | own)
    statistics, plan = case.statistics(), case.plan()
    first, again = planner.plan(statistics, plan), planner.plan(statistics, plan)
    other = proposed(name, given_ | own, case)
    for proposal in (again, other):
        assert proposal.plan == first.plan
        assert proposal.falls_short == first.falls_short
        assert proposal.moves.keys.tolist() == first.moves.keys.tolist()
        assert proposal.moves.destinations.tolist() == first.moves.destinations.tolist()
    assert plan == case.plan()
    assert statistics.keys.tolist() == case.keys
    assert statistics.costs.tolist() == case.costs
    assert statistics.state_bytes.tolist() == case.states
    assert statistics.capacities.tolist() == case.capacities


@over_all
@law
@given(case=problems, given_=settings_of_planners)
def test_no_key_is_lost_or_doubled(
    name: str, own: Parameters, case: Case, given_: Parameters
) -> None:
    proposal = proposed(name, given_ | own, case)
    entries = proposal.plan.keys.tolist()
    assert entries == sorted(set(entries))
    known = case.known
    assert set(entries) <= set(known)
    before, after = routes(case.plan(), known), routes(proposal.plan, known)
    capacities = np.array(case.capacities)
    assert (capacities[after] > 0).all()
    assert (capacities[proposal.plan.workers] > 0).all()
    states = dict.fromkeys(known, 0) | dict(zip(case.keys, case.states, strict=True))
    assert moves_of(proposal) == {
        key: (old, new, states[key])
        for key, old, new in zip(known, before.tolist(), after.tolist(), strict=True)
        if old != new
    }


def moves_of(proposal: Proposal) -> dict[int, tuple[int, int, float]]:
    moves = proposal.moves
    columns = (moves.origins.tolist(), moves.destinations.tolist(), moves.state_bytes.tolist())
    rows = zip(*columns, strict=True)
    by_key = dict(zip(moves.keys.tolist(), rows, strict=True))
    assert len(by_key) == len(moves.keys)
    return by_key


@over_all
@law
@given(case=problems, given_=settings_of_planners)
def test_within_budgets(name: str, own: Parameters, case: Case, given_: Parameters) -> None:
    proposal = proposed(name, given_ | own, case)
    assert within_budget(name, given_, len(proposal.plan.keys))


@over_all
@law
@given(case=cases(), given_=settings_of_planners)
def test_never_worse_than_doing_nothing(
    name: str, own: Parameters, case: Case, given_: Parameters
) -> None:
    assume(within_budget(name, given_, len(case.table)))
    proposal = proposed(name, given_ | own, case)
    before, after = routes(case.plan(), case.keys), routes(proposal.plan, case.keys)
    assert case.worst(after) <= case.worst(before) * (1 + 1e-9)


@over_all
@law
@given(case=cases(), given_=settings_of_planners, more=st.sampled_from([0.0, 0.1]))
def test_quiet_when_balanced(
    name: str, own: Parameters, case: Case, given_: Parameters, more: float
) -> None:
    over = case.worst(routes(case.plan(), case.keys)) / case.mean - 1 if any(case.costs) else 0.0
    least = {"theta_max": over * (1 + 1e-12) + more, "max_entries": len(case.table)}
    proposal = proposed(name, given_ | least | own, case)
    assert proposal.plan == case.plan()
    assert len(proposal.moves.keys) == 0
    assert proposal.moved_fraction == 0.0
    assert proposal.falls_short == ""


@over_all
@law
@given(case=problems, given_=settings_of_planners)
def test_says_when_it_falls_short(
    name: str, own: Parameters, case: Case, given_: Parameters
) -> None:
    proposal = proposed(name, given_ | own, case)
    meets = case.meets(routes(proposal.plan, case.keys), given_["theta_max"])
    assert (proposal.falls_short == "") == meets


@over_all
@law
@given(case=problems, given_=settings_of_planners)
def test_measures_what_it_proposes(
    name: str, own: Parameters, case: Case, given_: Parameters
) -> None:
    proposal = proposed(name, given_ | own, case)
    homes = routes(proposal.plan, case.keys)
    assert proposal.loads.tolist() == pytest.approx(case.loads(homes))
    if any(case.costs):
        assert proposal.max_over_mean == pytest.approx(case.worst(homes) / case.mean)
    moved = sum(proposal.moves.state_bytes.tolist())
    assert proposal.moved_fraction == pytest.approx(moved / max(sum(case.states), 1))


@pytest.mark.parametrize("name", ["llfd", "simple", "min-mig", "min-table", "mixed"])
@settings(max_examples=100, deadline=None)
@given(case=perfect_cases())
def test_theorem_1(name: str, case: Case) -> None:
    proposal = proposed(name, LARGE, case)
    over = case.worst(routes(proposal.plan, case.keys)) / case.mean - 1
    assert over <= (1 - 1 / len(case.capacities)) / 3 + 1e-9
