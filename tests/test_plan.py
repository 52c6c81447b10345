"""Plans: their entries, their workers, and what they refuse."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plan_cases import SMALL, capacities, entries, keys, plans
from unskew.plan import Plan, PlanError
from unskew.routers.planned import TableRouter

often = settings(max_examples=100, deadline=None)


def test_equality_sees_every_part() -> None:
    others = [
        Plan.empty(3),
        SMALL.with_entries([9, 2**64 - 1], [2, 0]),
        Plan(SMALL.capacities, SMALL.keys, SMALL.workers, 1, "mixed", seed=1),
        Plan(SMALL.capacities, SMALL.keys, SMALL.workers, 1, "mixed", nodes=127),
        Plan(SMALL.capacities, SMALL.keys, SMALL.workers, 1, "readj"),
        Plan((1.0, 0.0, 2.4), SMALL.keys, SMALL.workers, 1, "mixed"),
        Plan(SMALL.capacities, SMALL.keys, SMALL.workers[::-1].copy(), 1, "mixed"),
    ]
    assert Plan(SMALL.capacities, SMALL.keys, SMALL.workers, 1, "mixed") == SMALL
    assert all(other != SMALL for other in others)
    assert SMALL.to_bytes() != SMALL


@pytest.mark.parametrize("plan", [Plan.empty(2), SMALL, Plan.from_bytes(SMALL.to_bytes())])
def test_plans_cannot_be_changed(plan: Plan) -> None:
    assert not plan.keys.flags.writeable
    assert not plan.workers.flags.writeable
    with pytest.raises(FrozenInstanceError):
        plan.version = 7  # type: ignore[misc]


def test_a_plan_keeps_its_own_entries() -> None:
    names, homes = np.array([1, 5], np.uint64), np.array([0, 1], np.int32)
    plan = Plan.empty(2).with_entries(names, homes)
    names[0], homes[0] = 3, 1
    assert entries(plan) == {1: 0, 5: 1}


def test_versions_count_up() -> None:
    first = Plan.empty(2)
    second = first.with_entries([3], [1], scheme="mixed")
    third = second.with_workers([1.0, 1.0, 1.0])
    fourth = third.with_entries([], [])
    made = [(p.version, p.scheme, len(p.keys)) for p in (first, second, third, fourth)]
    assert made == [(0, "none", 0), (1, "mixed", 1), (2, "mixed", 1), (3, "mixed", 0)]


@often
@given(table=st.dictionaries(keys, st.integers(0, 3), max_size=20), data=st.data())
def test_entries_may_come_in_any_order(table: dict[int, int], data: st.DataObject) -> None:
    order = data.draw(st.permutations(list(table)))
    plan = SMALL.with_workers([1.0] * 4).with_entries(order, [table[key] for key in order])
    assert entries(plan) == table
    assert plan.keys.tolist() == sorted(table)


@often
@given(old=plans(), data=st.data())
def test_difference_is_that_of_dicts(old: Plan, data: st.DataObject) -> None:
    before = entries(old)
    homes = st.sampled_from(np.flatnonzero(old.active).tolist())
    table = {key: home for key, home in before.items() if data.draw(st.booleans())}
    table |= data.draw(st.dictionaries(keys, homes, max_size=8))
    new = old.with_entries(list(table), list(table.values()))
    found = old.difference(new)
    assert found.added.tolist() == sorted(table.keys() - before.keys())
    assert found.removed.tolist() == sorted(before.keys() - table.keys())
    both = table.keys() & before.keys()
    assert found.changed.tolist() == sorted(key for key in both if table[key] != before[key])
    assert len(found) == len(table.items() ^ before.items()) - len(found.changed)
    assert len(old.difference(old)) == 0


def routes(plan: Plan) -> dict[int, int]:
    """Return where a few hundred keys go, among them small ones that may have an entry."""
    names = np.unique(np.concatenate([np.arange(300, dtype=np.uint64), plan.keys]))
    routed = TableRouter.of(plan).route(names).tolist()
    return dict(zip(names.tolist(), routed, strict=True))


@often
@given(plan=plans("consistent").filter(lambda plan: plan.active.sum() > 1), data=st.data())
def test_only_the_keys_of_a_worker_that_leaves_move(plan: Plan, data: st.DataObject) -> None:
    leaver = data.draw(st.sampled_from(np.flatnonzero(plan.active).tolist()))
    speeds = [7.0 * (capacity > 0) for capacity in plan.capacities]
    speeds[leaver] = 0.0
    after = plan.with_workers(speeds)
    # One that stays keeps its capacity on the ring, else other keys would move as well.
    kept = [0.0 if w == leaver else capacity for w, capacity in enumerate(plan.capacities)]
    assert list(after.capacities) == kept
    assert entries(after) == {k: w for k, w in entries(plan).items() if w != leaver}
    old = routes(plan)
    new = {key: worker for key, worker in routes(after).items() if key in old}
    assert all((new[key] != old[key]) == (old[key] == leaver) for key in new)


@often
@given(plan=plans("consistent"), capacity=capacities)
def test_a_worker_that_comes_takes_keys_to_itself_only(plan: Plan, capacity: float) -> None:
    after = plan.with_workers([*plan.capacities, capacity])
    assert after.capacities == (*plan.capacities, capacity)
    assert entries(after) == entries(plan)
    old, new = routes(plan), routes(after)
    moved = {key for key in old if old[key] != new[key]}
    assert {new[key] for key in moved} <= {plan.n_workers}
    assert not moved & entries(plan).keys()


def test_a_worker_that_is_not_named_has_left_and_may_come_back() -> None:
    plan = Plan.empty(3).with_entries([1, 2], [0, 2])
    gone = plan.with_workers([1.0, 1.0])
    assert (gone.capacities, entries(gone)) == ((1.0, 1.0, 0.0), {1: 0})
    assert routes(gone.with_workers([1.0] * 3)) == routes(Plan.empty(3).with_entries([1], [0]))


def test_workers_of_key_grouping_cannot_change() -> None:
    plan = Plan.empty([1.0, 2.0], fallback="key").with_entries([3], [1])
    message = r"^with the fallback 'key' workers cannot change: use 'consistent'$"
    for speeds in ([1.0, 2.0, 1.0], [1.0, 0.0], [1.0]):
        with pytest.raises(PlanError, match=message):
            plan.with_workers(speeds)
    same = plan.with_workers([5.0, 5.0])
    assert (same.version, same.capacities, entries(same)) == (2, (1.0, 2.0), {3: 1})


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"capacities": ()}, r"capacities must be finite, some above 0, got \(\)"),
        ({"capacities": (0.0, 0.0)}, r"capacities must be finite, some above 0, got \(0.0, 0.0\)"),
        ({"capacities": (1.0, -1.0)}, "capacities must be finite, some above 0"),
        ({"capacities": (1.0, np.inf)}, "capacities must be finite, some above 0"),
        ({"capacities": (1.0, np.nan)}, "capacities must be finite, some above 0"),
        ({"fallback": "ring"}, "fallback must be one of consistent, key, spark, got ring"),
        ({"capacities": (1.0, 0.0), "fallback": "key"}, "with the fallback 'key' no worker can"),
        ({"version": -1}, "version must be at least 0, got -1"),
        ({"nodes": 0}, "nodes must be at least 1, got 0"),
        ({"seed": -1}, "seed must be between 0 and"),
        ({"seed": 2**64}, "seed must be between 0 and"),
    ],
)
def test_refuses(given_: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Plan(**{"capacities": (1.0, 1.0), **given_})


@pytest.mark.parametrize(
    ("names", "homes", "message"),
    [
        ([5, 3, 5], [0, 2, 0], "the keys of a plan must ascend, each once"),
        ([5], [3], "a plan must send keys to active workers of 3"),
        ([5], [-1], "a plan must send keys to active workers of 3"),
        ([5], [1], "a plan must send keys to active workers of 3"),
    ],
)
def test_refuses_entries(names: list[int], homes: list[int], message: str) -> None:
    with pytest.raises(PlanError, match=f"^{message}$"):
        SMALL.with_entries(names, homes)
    with pytest.raises(PlanError, match=r"^the keys of a plan must ascend, each once$"):
        Plan((1.0,), np.array([2, 1], np.uint64), np.zeros(2, np.int32))
    with pytest.raises(PlanError, match=r"^2 keys for 1 workers$"):
        Plan((1.0,), np.array([1, 2], np.uint64), np.zeros(1, np.int32))


@pytest.mark.parametrize(("names", "homes"), [([1, 2], [0]), ([1], [0, 2])])
def test_refuses_entries_of_unequal_length(names: list[int], homes: list[int]) -> None:
    with pytest.raises(PlanError, match=f"^{len(names)} keys for {len(homes)} workers$"):
        SMALL.with_entries(names, homes)


@pytest.mark.parametrize("homes", [[0.9], np.array([2**32])])
def test_refuses_workers_that_are_no_numbers_of_workers(homes: Any) -> None:
    with pytest.raises((PlanError, TypeError, OverflowError)):
        SMALL.with_entries([1], homes)


@pytest.mark.parametrize("name", ["version", "seed", "nodes"])
def test_numpy_integers_are_integers(name: str) -> None:
    plan = Plan((1.0,), **{name: np.int64(3)})  # type: ignore[arg-type]
    assert plan == Plan((1.0,), **{name: 3})  # type: ignore[arg-type]
