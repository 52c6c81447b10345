"""Every router equals its slow reference, record by record."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routers.cases import (
    Parameters,
    capacities,
    new_router,
    parameters,
    streams,
    zipf_stream,
)
from routers.primitives import Reference
from routers.reference import REFERENCES, GreedyD, OffGreedy
from routers.reference_ring import Consistent, Fish
from unskew.routers import ROUTERS, ElasticRouter
from unskew.routers import Fish as FishRouter
from unskew.routers import GreedyD as GreedyRouter
from unskew.routers import OffGreedy as OffGreedyRouter


def new_reference(name: str, given_: Parameters) -> Reference:
    return REFERENCES[name](**given_)


def routed(reference: Reference, keys: Any) -> list[int]:
    return [reference.route(int(key)) for key in keys]


def test_every_router_has_a_reference() -> None:
    assert REFERENCES.keys() == ROUTERS.keys()


@pytest.mark.parametrize("name", ROUTERS)
@settings(max_examples=40, deadline=None)
@given(data=st.data(), keys=streams)
def test_equals_the_reference(name: str, data: st.DataObject, keys: Any) -> None:
    given_ = data.draw(parameters(name))
    router, reference = new_router(name, given_), new_reference(name, given_)
    assert router.route(keys).tolist() == routed(reference, keys)


@settings(max_examples=40, deadline=None)
@given(parameters("off-greedy"), streams, st.sampled_from([1, 2, 3]))
def test_off_greedy_that_was_told(given_: Parameters, keys: Any, every: int) -> None:
    told, counts = np.unique(keys, return_counts=True)
    told, counts = told[::every], counts[::every]
    router, reference = OffGreedyRouter(**given_), OffGreedy(**given_)
    router.learn(told, counts)
    reference.learn(told.tolist(), counts.tolist())
    assert router.route(keys).tolist() == routed(reference, keys)


@settings(max_examples=40, deadline=None)
@given(parameters("greedy-d"), streams, streams, st.data())
def test_greedy_that_probes(given_: Parameters, keys: Any, more: Any, data: st.DataObject) -> None:
    router, reference = GreedyRouter(**given_), GreedyD(**given_)
    assert router.route(keys).tolist() == routed(reference, keys)
    n = given_["n_workers"]
    loads = data.draw(st.lists(st.integers(0, 100), min_size=n, max_size=n))
    sources = data.draw(st.integers(1, 7))
    router.probe(loads, sources)
    reference.probe(loads, sources)
    assert router.route(more).tolist() == routed(reference, more)


@pytest.mark.parametrize("name", ["consistent", "fish"])
@settings(max_examples=40, deadline=None)
@given(data=st.data(), keys=streams)
def test_workers_come_and_go(name: str, data: st.DataObject, keys: Any) -> None:
    given_ = data.draw(parameters(name))
    router = cast(ElasticRouter, new_router(name, given_))
    reference = cast(Consistent, new_reference(name, given_))
    for part in np.array_split(keys, data.draw(st.integers(1, 6))):
        assert router.route(part).tolist() == routed(reference, part)
        if data.draw(st.booleans()) and len(router.workers) > 1:
            leaver = data.draw(st.sampled_from(router.workers.tolist()))
            router.remove_worker(leaver)
            reference.remove_worker(leaver)
        else:
            capacity = data.draw(capacities)
            router.add_worker(capacity)
            reference.add_worker(capacity)


@settings(max_examples=40, deadline=None)
@given(st.data(), streams)
def test_fish_that_samples_service_times(data: st.DataObject, keys: Any) -> None:
    given_ = data.draw(parameters("fish"))
    router, reference = FishRouter(**given_), Fish(**given_)
    n = given_["n_workers"]
    times = st.lists(st.sampled_from([0.01, 0.3, 1.0, 7.0]), min_size=n, max_size=n)
    for part in np.array_split(keys, data.draw(st.integers(1, 5))):
        assert router.route(part).tolist() == routed(reference, part)
        service_s = data.draw(times)
        router.observe_service(service_s)
        reference.observe_service(service_s)


LONG: list[tuple[str, Parameters]] = [
    *((name, {}) for name in ROUTERS),
    ("d-choices", {"capacity": 300, "epsilon": 0.0}),
    ("d-choices", {"warm_up": 0, "theta": 0.01}),
    ("w-choices", {"capacity": 100}),
    ("dkg", {"learning": 10_000}),
    ("dstream", {"threshold": 3, "decline": 0.1}),
    ("fish", {"counters": 200, "theta": 0.001, "interval_s": 0.5}),
    ("waterline", {"epoch": 1000, "capacity": 300}),
    ("waterline", {"epoch": 3000, "alarm": 30, "tolerance": 0.1}),
    ("fish", {"capacities": [1.0] * 25 + [2.0] * 25, "alpha": 0.9, "interval_s": 2.0}),
]


@pytest.mark.jit
@pytest.mark.parametrize("z", [0.8, 1.4])
@pytest.mark.parametrize(("name", "own"), LONG)
def test_equals_the_reference_on_a_long_stream(name: str, own: Parameters, z: float) -> None:
    keys = zipf_stream(seed=7, z=z, n_keys=3000, records=20_000)
    given_ = {"n_workers": 50, "seed": 3} | own
    router, reference = new_router(name, given_), new_reference(name, given_)
    assert router.route(keys).tolist() == routed(reference, keys)
