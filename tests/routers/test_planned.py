"""Mixed routing: a dict, then a hash; and the laws of routers for one that follows a plan."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routers.cases import ODD_KEYS, Keys, capacities, streams
from routers.reference import Key
from routers.reference_ring import Consistent
from routers.streams import spread, zipf
from unskew.plan import FALLBACKS, Plan, PlanError
from unskew.routers import ConsistentHash, KeyGrouping
from unskew.routers.planned import TableRouter
from unskew.state import SnapshotError

law = settings(max_examples=25, deadline=None)
of_both = pytest.mark.parametrize("fallback", FALLBACKS)


class SparkHash(NamedTuple):
    """Where Spark puts the keys whose Murmur3 hash is their lower half, with a slot of 0."""

    n_workers: int

    def choose(self, key: int) -> int:
        h = key % 2**32  # the seed; an INT of 0 mixes to 0
        h = ((h << 13 | h >> 19) % 2**32 * 5 + 0xE6546B64) % 2**32 ^ 4
        h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
        h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
        h ^= h >> 16
        return (h - 2**32 if h >= 2**31 else h) % self.n_workers


class Case(NamedTuple):
    plan: Plan
    table: dict[int, int]
    keys: Keys

    def reference(self) -> Consistent | Key | SparkHash:
        plan = self.plan
        if plan.fallback == "spark":
            return SparkHash(plan.n_workers)
        if plan.fallback == "key":
            return Key(plan.n_workers, seed=plan.seed)
        speeds = list(plan.capacities)
        return Consistent(plan.n_workers, seed=plan.seed, capacities=speeds, nodes=plan.nodes)

    def expected(self) -> list[int]:
        hashed = self.reference()
        keys: list[int] = self.keys.tolist()
        return [self.table[key] if key in self.table else hashed.choose(key) for key in keys]


@st.composite
def cases(draw: st.DrawFn, fallback: str) -> Case:
    """Draw a stream, and a plan with entries for some of its keys, of which workers have left."""
    keys = draw(streams)
    speed = capacities if fallback != "consistent" else capacities | st.just(0.0)
    speeds = draw(st.lists(speed, min_size=1, max_size=8).filter(any))
    seed, nodes = draw(st.sampled_from([0, 1, 2**64 - 1])), draw(st.integers(1, 20))
    plan = Plan(tuple(speeds), fallback=fallback, seed=seed, nodes=nodes)
    return entered(draw, plan, keys)


def entered(draw: st.DrawFn, plan: Plan, keys: Keys) -> Case:
    names = st.sampled_from([*ODD_KEYS.tolist(), *np.unique(keys).tolist()])
    homes = st.sampled_from(np.flatnonzero(plan.active).tolist())
    table = draw(st.dictionaries(names, homes, max_size=30))
    return Case(plan.with_entries(list(table), list(table.values())), table, keys)


@st.composite
def next_cases(draw: st.DrawFn, case: Case) -> Case:
    """Draw the case of the next interval: other entries, and where that is possible workers."""
    plan = case.plan
    if plan.fallback == "consistent" and draw(st.booleans()):
        plan = plan.with_workers([*plan.capacities, draw(capacities)])
    return entered(draw, plan, case.keys)


def same(before: dict[str, Any], router: TableRouter) -> bool:
    after = router.snapshot()
    return all(np.array_equal(before[part], array) for part, array in after.items())


@of_both
@law
@given(data=st.data())
def test_a_dict_then_a_hash(fallback: str, data: st.DataObject) -> None:
    case = data.draw(cases(fallback))
    router = TableRouter.of(case.plan)
    assert router.route(case.keys).tolist() == case.expected()
    after = data.draw(next_cases(case))
    router.follow(after.plan)
    assert router.route(case.keys).tolist() == after.expected()
    assert router == TableRouter.of(after.plan) or router.n_workers != after.plan.n_workers


@of_both
@law
@given(data=st.data())
def test_without_entries_it_is_the_hash(fallback: str, data: st.DataObject) -> None:
    case = data.draw(cases(fallback))
    plan = case.plan
    plain = TableRouter.of(plan.with_entries([], [])).route(case.keys)
    assert np.array_equal(TableRouter.of(plan).hash(case.keys), plain)
    if fallback == "key":
        assert np.array_equal(KeyGrouping(plan.n_workers, seed=plan.seed).route(case.keys), plain)
    elif fallback == "consistent" and all(plan.capacities):
        ring: dict[str, Any] = {"seed": plan.seed, "nodes": plan.nodes}
        ring["capacities"] = plan.capacities
        assert np.array_equal(ConsistentHash(plan.n_workers, **ring).route(case.keys), plain)
        assert np.array_equal(TableRouter(plan.n_workers, **ring).route(case.keys), plain)


def test_a_large_table() -> None:
    keys = zipf(0.2, 20_000, 40_000)
    table = {key: key % 7 for key in range(0, 20_000, 3)}
    plan = Plan.empty(7).with_entries(list(table), list(table.values()))
    workers = TableRouter.of(plan).route(keys)
    hashed = ConsistentHash(7).route(keys)
    expected = np.where(keys % 3 == 0, keys % 7, hashed)
    assert np.array_equal(workers, expected)
    assert set(spread(keys, workers).values()) == {1}


@of_both
@law
@given(data=st.data())
def test_closed(fallback: str, data: st.DataObject) -> None:
    case = data.draw(cases(fallback))
    router = TableRouter.of(case.plan)
    before = router.snapshot()
    for key in case.keys[:100]:
        assert router.candidates(int(key)).tolist() == router.route(key[np.newaxis]).tolist()
    assert set(router.route(case.keys).tolist()) <= set(np.flatnonzero(case.plan.active).tolist())
    assert same(before, router)


@of_both
@law
@given(data=st.data())
def test_total(fallback: str, data: st.DataObject) -> None:
    router = TableRouter.of(data.draw(cases(fallback)).plan)
    empties: list[Any] = [[], np.empty(0, np.uint64), np.empty(0)]
    for empty in empties:
        workers = router.route(empty)
        assert workers.dtype == np.int32
        assert workers.shape == (0,)
    signed = np.array([0, 1, 2**63 - 1, -1, -(2**63)])
    assert np.array_equal(router.route(signed), router.route(signed.view(np.uint64)))
    with pytest.raises(TypeError, match="keys must be a 1-d array of integers"):
        router.route([1.5])


@of_both
@law
@given(data=st.data(), cuts=st.lists(st.integers(0, 400), max_size=8))
def test_batch_free(fallback: str, data: st.DataObject, cuts: list[int]) -> None:
    case = data.draw(cases(fallback))
    router = TableRouter.of(case.plan)
    routed = [router.route(part) for part in np.split(case.keys, sorted(cuts))]
    assert np.array_equal(TableRouter.of(case.plan).route(case.keys), np.concatenate(routed))


@of_both
@law
@given(data=st.data())
def test_replayable(fallback: str, data: st.DataObject) -> None:
    case = data.draw(cases(fallback))
    router = TableRouter.of(case.plan)
    first = router.route(case.keys)
    assert np.array_equal(router.route(case.keys), first)
    assert np.array_equal(TableRouter.of(case.plan).route(case.keys), first)
    assert router == TableRouter.of(Plan.from_bytes(case.plan.to_bytes()))


@of_both
@law
@given(data=st.data())
def test_restorable(fallback: str, data: st.DataObject) -> None:
    case = data.draw(cases(fallback))
    after = data.draw(next_cases(case))
    router = TableRouter.of(case.plan)
    old = router.snapshot(), case.expected()
    router.follow(after.plan)
    new = router.snapshot(), after.expected()
    for snapshot, expected in (old, new, old):
        restored = TableRouter(**router.parameters())
        restored.restore(snapshot)
        router.restore(snapshot)
        assert restored == router
        assert restored.route(case.keys).tolist() == expected
        assert router.route(case.keys).tolist() == expected
    assert pickle.loads(pickle.dumps(router)) == router
    with pytest.raises(SnapshotError, match="snapshot of another kind"):
        TableRouter(router.n_workers + 1).restore(old[0])


@law
@given(data=st.data())
def test_elastic(data: st.DataObject) -> None:
    case = data.draw(cases("consistent"))
    router, reference, table = TableRouter.of(case.plan), case.reference(), dict(case.table)
    assert isinstance(reference, Consistent)
    for _ in range(4):
        active = router.workers.tolist()
        if data.draw(st.booleans()) and len(active) > 1:
            leaver = data.draw(st.sampled_from(active))
            router.remove_worker(leaver)
            reference.remove_worker(leaver)
            # An entry for a worker that left is void, for good.
            table = {key: home for key, home in table.items() if home != leaver}
        else:
            capacity = data.draw(capacities)
            assert router.add_worker(capacity) == len(reference.speeds)
            reference.add_worker(capacity)
        hashed = {key: reference.choose(key) for key in set(case.keys.tolist())}
        expected = [table.get(key, hashed[key]) for key in case.keys.tolist()]
        assert router.route(case.keys).tolist() == expected
        restored = TableRouter(**router.parameters())
        restored.restore(router.snapshot())
        assert restored == router
    # A plan brings its own workers, and its entries hold again.
    router.follow(case.plan)
    assert router.route(case.keys).tolist() == case.expected()


def test_a_void_entry_leaves_the_key_to_the_ring() -> None:
    keys = np.arange(200, dtype=np.uint64)
    plan = Plan.empty(3).with_entries(keys, np.full(200, 1))
    router, ring = TableRouter.of(plan), ConsistentHash(3)
    assert set(router.route(keys).tolist()) == {1}
    router.remove_worker(1)
    ring.remove_worker(1)
    assert np.array_equal(router.route(keys), ring.route(keys))
    # With the last worker gone as well, a void entry must not look like one of it.
    router.add_worker()
    ring.add_worker()
    router.remove_worker(2)
    ring.remove_worker(2)
    assert np.array_equal(router.route(keys), ring.route(keys))


@pytest.mark.parametrize(
    "plan",
    [
        Plan.empty(3, seed=1, fallback="key"),
        Plan.empty(3),
        Plan((1.0,) * 3, nodes=64, fallback="key"),
        Plan.empty(4, fallback="key"),
    ],
)
def test_follow_refuses_a_plan_of_another_hash(plan: Plan) -> None:
    router = TableRouter.of(Plan.empty(3, fallback="key").with_entries([5], [2]))
    before = router.snapshot()
    with pytest.raises(
        PlanError, match=r"does not fit .*: other (workers|fallback, seed or nodes)"
    ):
        router.follow(plan)
    assert same(before, router)


@pytest.mark.parametrize("plan", [Plan.empty(3, seed=1), Plan((1.0,) * 3, nodes=64)])
def test_follow_refuses_a_plan_of_another_ring(plan: Plan) -> None:
    router = TableRouter(3)
    before = router.snapshot()
    with pytest.raises(PlanError, match=r"does not fit .*: other fallback, seed or nodes$"):
        router.follow(plan)
    assert same(before, router)


def test_workers_of_key_grouping_cannot_change() -> None:
    router = TableRouter.of(Plan.empty(3, fallback="key").with_entries([5], [2]))
    before = router.snapshot()
    message = r"^with the fallback 'key' workers cannot change: use 'consistent'$"
    with pytest.raises(ValueError, match=message):
        router.add_worker()
    with pytest.raises(ValueError, match=message):
        router.remove_worker(0)
    assert same(before, router)
    assert router.workers.tolist() == [0, 1, 2]


def test_refuses() -> None:
    with pytest.raises(
        ValueError, match=r"^fallback must be one of consistent, key, spark, got ring$"
    ):
        TableRouter(3, fallback="ring")
    with pytest.raises(ValueError, match=r"^nodes must be at least 1, got 0$"):
        TableRouter(3, nodes=0)


def test_keys_stay_whole_and_the_version_is_known() -> None:
    router = TableRouter.of(Plan.empty(3).with_entries([5], [2]).with_entries([6], [1]))
    assert not router.splits
    assert router.elastic
    assert router.version.tolist() == [2]
    assert router != TableRouter(3)
