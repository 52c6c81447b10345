"""The laws of `unskew.routers.base`, over the table of routers."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unskew.routers
from routers.cases import Keys, Parameters, capacities, new_router, parameters, streams
from unskew.routers import ROUTERS, ConsistentHash, ElasticRouter, OffGreedy, Router
from unskew.routers.greedy import GreedyRouter
from unskew.state import WHOSE, Snapshot, SnapshotError

FIXED = [name for name, scheme in ROUTERS.items() if scheme.fixed]
ELASTIC = [name for name, scheme in ROUTERS.items() if scheme.elastic]
WHOLE = ["key", "potc", "on-greedy", "off-greedy", "dkg", "consistent"]

law = settings(max_examples=25, deadline=None)
over_all = pytest.mark.parametrize("name", ROUTERS)


@st.composite
def started(draw: st.DrawFn, name: str) -> Router:
    """Draw a router, told what it must be told, that has routed some records."""
    router = new_router(name, draw(parameters(name)))
    keys = draw(streams)
    if isinstance(router, OffGreedy):
        router.learn(*np.unique(keys[::2], return_counts=True))
    router.route(keys)
    return router


def twin(router: Router) -> Router:
    """Return a new router with the same parameters."""
    return type(router)(**router.parameters())


def through_a_file(snapshot: Snapshot) -> Snapshot:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **snapshot)
    file.seek(0)
    with np.load(file) as arrays:
        return dict(arrays)


@over_all
@law
@given(data=st.data(), keys=streams)
def test_closed(name: str, data: st.DataObject, keys: Keys) -> None:
    router = data.draw(started(name))
    for key in keys[:100]:
        worker = router.route(key[np.newaxis])[0]
        assert worker in router.candidates(int(key))


@pytest.mark.parametrize("name", ROUTERS)
@law
@given(data=st.data())
def test_total(name: str, data: st.DataObject) -> None:
    router = data.draw(started(name))
    before = router.snapshot()
    empties: list[Any] = [[], np.empty(0, np.uint64), np.empty(0)]
    for empty in empties:
        workers = router.route(empty)
        assert workers.dtype == np.int32
        assert workers.shape == (0,)
    assert all(np.array_equal(before[part], array) for part, array in router.snapshot().items())
    keys = np.array([0, 1, 2**63 - 1, -1, -(2**63)])
    assert len(router.route(keys)) == 5
    assert len(router.route(np.arange(20, dtype=np.uint64)[::-3])) == 7


@over_all
def test_total_only_for_integers(name: str) -> None:
    router = ROUTERS[name](3)
    message = "keys must be a 1-d array of integers, got 1-d float64; unskew.hash_keys makes keys"
    with pytest.raises(TypeError, match=message):
        router.route([1.5])
    with pytest.raises(TypeError, match="got 2-d int64"):
        router.route([[1], [2]])


@over_all
@law
@given(data=st.data(), keys=streams, cuts=st.lists(st.integers(0, 400), max_size=8))
def test_batch_free(name: str, data: st.DataObject, keys: Keys, cuts: list[int]) -> None:
    given_ = data.draw(parameters(name))
    whole, parts = new_router(name, given_), new_router(name, given_)
    routed = [parts.route(part) for part in np.split(keys, sorted(cuts))]
    assert np.array_equal(whole.route(keys), np.concatenate(routed))


@over_all
@law
@given(data=st.data(), keys=streams)
def test_replayable(name: str, data: st.DataObject, keys: Keys) -> None:
    given_ = data.draw(parameters(name))
    one, other = new_router(name, given_), new_router(name, given_)
    kept = keys.copy()
    workers = one.route(keys)
    assert np.array_equal(workers, other.route(keys))
    assert np.array_equal(keys, kept)
    assert workers.min(initial=0) >= 0
    assert workers.max(initial=0) < given_["n_workers"]


@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("carry", [dict, through_a_file])
@law
@given(data=st.data(), keys=streams)
def test_restorable(name: str, carry: Any, data: st.DataObject, keys: Keys) -> None:
    router = data.draw(started(name))
    restored = twin(router)
    snapshot = carry(router.snapshot())
    kept = {part: array.copy() for part, array in snapshot.items()}
    restored.restore(snapshot)
    assert restored == router
    expected = router.route(keys)
    assert np.array_equal(restored.route(keys), expected)
    assert restored == router
    assert all(np.array_equal(kept[part], array) for part, array in snapshot.items())
    restored.restore(snapshot)
    assert np.array_equal(restored.route(keys), expected)


@over_all
@law
@given(data=st.data(), keys=streams)
def test_restorable_by_pickle(name: str, data: st.DataObject, keys: Keys) -> None:
    router = data.draw(started(name))
    copy = pickle.loads(pickle.dumps(router))
    assert np.array_equal(copy.route(keys), router.route(keys))


@pytest.mark.parametrize("name", FIXED)
@law
@given(data=st.data(), keys=streams)
def test_fixed(name: str, data: st.DataObject, keys: Keys) -> None:
    router = data.draw(started(name))
    other = type(router)(**{**router.parameters(), "source": 3})
    before = [router.candidates(int(key)).tolist() for key in keys]
    router.route(keys)
    assert [router.candidates(int(key)).tolist() for key in keys] == before
    assert [other.candidates(int(key)).tolist() for key in keys] == before


def test_learning_and_probing_are_for_those_that_say_so() -> None:
    for name in ROUTERS:
        router = new_router(name, {"n_workers": 4})
        before = router.snapshot()
        router.probe(np.arange(4), 2)
        if not router.offline:
            router.learn([1, 2], [3, 4])
        same = all(np.array_equal(before[part], now) for part, now in router.snapshot().items())
        assert same == (not isinstance(router, GreedyRouter))


@pytest.mark.parametrize("name", ELASTIC)
@law
@given(data=st.data(), keys=streams)
def test_elastic(name: str, data: st.DataObject, keys: Keys) -> None:
    router = data.draw(started(name))
    assert isinstance(router, ElasticRouter)
    active = set(range(router.n_workers))
    numbers = router.n_workers
    for part in np.array_split(keys, 5):
        if data.draw(st.booleans()) and len(active) > 1:
            leaver = data.draw(st.sampled_from(sorted(active)))
            router.remove_worker(leaver)
            active.remove(leaver)
        else:
            assert router.add_worker(data.draw(capacities)) == numbers
            active.add(numbers)
            numbers += 1
        assert set(router.workers.tolist()) == active
        assert set(router.route(part).tolist()) <= active


@pytest.mark.parametrize("name", ELASTIC)
@law
@given(data=st.data(), keys=streams)
def test_elastic_and_restorable(name: str, data: st.DataObject, keys: Keys) -> None:
    router = data.draw(started(name))
    assert isinstance(router, ElasticRouter)
    router.add_worker(2.0)
    router.route(keys)
    router.remove_worker(0)
    restored = twin(router)
    restored.restore(router.snapshot())
    assert restored == router
    assert np.array_equal(restored.route(keys), router.route(keys))


@law
@given(data=st.data())
def test_elastic_moves_only_the_keys_of_the_worker(data: st.DataObject) -> None:
    router = ConsistentHash(**data.draw(parameters("consistent")))
    keys = np.arange(500, dtype=np.uint64)
    before = router.route(keys)
    new = router.add_worker(data.draw(capacities))
    between = router.route(keys)
    assert set(between[between != before].tolist()) <= {new}
    leaver = data.draw(st.sampled_from(router.workers.tolist()))
    router.remove_worker(leaver)
    after = router.route(keys)
    assert np.array_equal(between != after, between == leaver)


@pytest.mark.parametrize("name", ELASTIC)
def test_elastic_refuses(name: str) -> None:
    router = ROUTERS[name](3)
    assert isinstance(router, ElasticRouter)
    router.remove_worker(1)
    with pytest.raises(ValueError, match=r"^worker 1 is not active; active: \[0, 2\]$"):
        router.remove_worker(1)
    with pytest.raises(ValueError, match=r"^worker 3 is not active; active: \[0, 2\]$"):
        router.remove_worker(3)
    with pytest.raises(ValueError, match=r"^a capacity must be above 0 and finite, got 0$"):
        router.add_worker(0)
    router.remove_worker(0)
    with pytest.raises(ValueError, match=r"^the last worker cannot be removed$"):
        router.remove_worker(2)
    assert router.workers.tolist() == [2]


@over_all
def test_elastic_is_said(name: str) -> None:
    assert ROUTERS[name].elastic == issubclass(ROUTERS[name], ElasticRouter)


@over_all
@law
@given(data=st.data(), keys=streams)
def test_candidates_are_distinct_workers(name: str, data: st.DataObject, keys: Keys) -> None:
    router = data.draw(started(name))
    for key in {*keys[:20].tolist(), 5}:
        workers = router.candidates(key)
        assert workers.dtype == np.int32
        assert 1 <= len(workers) == len(set(workers.tolist())) <= router.n_workers
        assert 0 <= workers.min() <= workers.max() < router.n_workers


@pytest.mark.parametrize("name", ROUTERS)
@law
@given(data=st.data(), keys=streams)
def test_candidates_change_nothing(name: str, data: st.DataObject, keys: Keys) -> None:
    router = data.draw(started(name))
    before = router.snapshot()
    for key in keys[:20].tolist():
        router.candidates(key)
    assert all(np.array_equal(before[part], array) for part, array in router.snapshot().items())


@over_all
@law
@given(data=st.data(), keys=streams)
def test_splits_is_said(name: str, data: st.DataObject, keys: Keys) -> None:
    assert ROUTERS[name].splits == (name not in WHOLE)
    if name in WHOLE:
        router = data.draw(started(name))
        # Two calls to have the place settled: DKG moves keys once, when it has learnt.
        for _ in range(400 // max(len(keys), 1) + 1):
            router.route(keys)
        pairs = set(zip(keys.tolist(), router.route(keys).tolist(), strict=True))
        assert len(pairs) == len(set(keys.tolist()))


@over_all
def test_shared_is_said(name: str) -> None:
    shared = ["potc", "on-greedy", "off-greedy", "dkg", "dstream"]
    assert ROUTERS[name](3).shared == (name in shared)


@pytest.mark.parametrize("name", ["greedy-d", "pkg"])
def test_shared_when_the_loads_are_global(name: str) -> None:
    assert new_router(name, {"n_workers": 3, "load": "global"}).shared
    assert not new_router(name, {"n_workers": 3, "load": "probing"}).shared


def test_not_shared_when_the_predictor_is_local() -> None:
    assert not new_router("dstream", {"n_workers": 3, "predictor": "local"}).shared


@over_all
def test_probes_are_wanted_only_by_the_greedy(name: str) -> None:
    assert ROUTERS[name](3).probe_every is None
    if name in ("greedy-d", "pkg"):
        given_ = {"n_workers": 3, "load": "probing", "probe_records": 50}
        assert new_router(name, given_).probe_every == 50


@pytest.mark.parametrize("name", ROUTERS)
@pytest.mark.parametrize("other", ROUTERS)
def test_a_snapshot_of_another_scheme_is_refused(name: str, other: str) -> None:
    if name == other:
        return
    router, source = ROUTERS[name](4), ROUTERS[other](4)
    router.route(np.arange(50))
    before = router.snapshot()
    with pytest.raises(
        SnapshotError, match=rf"^snapshot of another kind: of {ROUTERS[other].__name__}\("
    ):
        router.restore(source.snapshot())
    assert all(np.array_equal(before[part], array) for part, array in router.snapshot().items())


@pytest.mark.parametrize("name", ROUTERS)
def test_a_broken_snapshot_is_refused(name: str) -> None:
    router = ROUTERS[name](4)
    router.route(np.arange(50))
    before = router.snapshot()
    for part, array in before.items():
        if part == WHOSE:
            continue
        with pytest.raises(SnapshotError, match=rf"^{part} must be {array.ndim}-d {array.dtype}, "):
            router.restore(before | {part: array.astype(np.float32)})
        with pytest.raises(SnapshotError, match=rf", got {array.ndim + 1}-d {array.dtype}$"):
            router.restore(before | {part: array[np.newaxis]})
    unnamed = {part: array for part, array in before.items() if part != WHOSE}
    with pytest.raises(SnapshotError, match=rf"^snapshot of another kind: {WHOSE} do not match$"):
        router.restore(unnamed)
    with pytest.raises(SnapshotError, match=r"^snapshot of another kind: of .*n_workers=5"):
        router.restore(ROUTERS[name](5).snapshot())
    assert all(np.array_equal(before[part], array) for part, array in router.snapshot().items())


@pytest.mark.parametrize("name", ROUTERS)
@law
@given(data=st.data(), keys=streams)
def test_repr_evaluates_to_the_router(name: str, data: st.DataObject, keys: Keys) -> None:
    router = new_router(name, data.draw(parameters(name)))
    again = eval(repr(router), vars(unskew.routers).copy())
    assert again == router
    assert np.array_equal(again.route(keys), router.route(keys))


@pytest.mark.parametrize("name", ROUTERS)
def test_equality_sees_parameters_and_state(name: str) -> None:
    router = ROUTERS[name](4)
    assert router == ROUTERS[name](4)
    assert router != ROUTERS[name](5)
    assert router != ROUTERS[name](4, seed=1)
    assert router != 4
    snapshot = router.snapshot()
    router.route(np.arange(501) % 3)
    changed = [not np.array_equal(snapshot[part], a) for part, a in router.snapshot().items()]
    stateless = name in ("key", "off-greedy", "consistent")
    assert (router == ROUTERS[name](4)) == stateless == (not any(changed))


def test_parameters_are_named() -> None:
    given_: Parameters = {"n_workers": 3, "seed": 5, "source": 2}
    for name in ROUTERS:
        assert new_router(name, given_).parameters().items() >= given_.items()
