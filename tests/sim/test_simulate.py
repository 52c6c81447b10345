from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from unskew import simulate
from unskew.routers import ConsistentHash, OffGreedy, PartialKey, make_router, read_schemes
from unskew.sim import Queue, Sources, WorkerChange
from unskew.workloads import Chunk, Stream, Zipf, open_stream

SPEC = "zipf:z=1.2,keys=200,records=3000,seed=3"
ALL = (
    "key,shuffle,potc,on-greedy,off-greedy,greedy-d:d=3,pkg,d-choices,w-choices,round-robin-head,"
    "dkg:learning=500,dstream,fish,consistent"
)


class Edges(Stream):
    """A stream with source keys."""

    def __init__(self, keys: np.ndarray, source_keys: np.ndarray) -> None:
        self._keys = keys.astype(np.uint64)
        self._source_keys = source_keys.astype(np.uint64)

    @property
    def n_records(self) -> int:
        return len(self._keys)

    def describe(self) -> dict[str, object]:
        return {"spec": "edges"}

    def chunks(self, size: int = 65_536) -> Iterator[Chunk]:
        for start in range(0, len(self._keys), size):
            part = slice(start, start + size)
            yield Chunk(self._keys[part], self._source_keys[part])


def test_every_scheme_runs_and_measures_add_up() -> None:
    out = simulate(SPEC, ALL, 7, sources=3)
    keys = np.concatenate([chunk.keys for chunk in open_stream(SPEC).chunks()])
    assert len(out["results"]) == 14
    for result in out["results"]:
        assert sum(result["loads"]) == result["records"] == 3000
        assert result["keys"] == len(np.unique(keys))
        assert result["keys"] <= result["replicas"] <= 7 * result["keys"]
        assert sum(result["worker_keys"]) == result["replicas"]
        top = max(result["loads"]) - 3000 / 7
        assert result["imbalance_final_fraction"] == pytest.approx(top / 3000)
        assert result["relative_imbalance"] == pytest.approx(top / (3000 / 7))
    whole = [r for r in out["results"] if r["scheme"] in ("key", "potc", "on-greedy", "off-greedy")]
    assert all(result["replication"] == 1 for result in whole)


@pytest.mark.parametrize("scheme", ALL.split(","))
def test_chunks_do_not_matter(scheme: str) -> None:
    big, small = (simulate(SPEC, scheme, 5, sources=4, chunk=chunk) for chunk in (10_000, 17))
    for result in (*big["results"], *small["results"]):
        del result["seconds"], result["records_per_s"]
    assert big == small


def test_round_robin_sends_record_t_to_source_t_mod_s() -> None:
    keys = np.concatenate([chunk.keys for chunk in open_stream(SPEC).chunks()])
    expected = np.empty(len(keys), np.int32)
    for source in range(4):
        expected[source::4] = PartialKey(6, source=source).route(keys[source::4])
    result = simulate(SPEC, "pkg", 6, sources=4)["results"][0]
    assert result["loads"] == np.bincount(expected, minlength=6).tolist()


def test_sources_fed_by_key_get_all_records_of_a_source_key() -> None:
    rng = np.random.default_rng(5)
    edges = Edges(rng.integers(0, 50, 2000), rng.zipf(1.5, 2000) % 100)
    sources = Sources(read_schemes("pkg")[0], 6, 3, "key")
    chunk = next(edges.chunks())
    workers = sources.route(chunk)
    placed = make_router("key", 3, seed=0xA0761D6478BD642F).route(chunk.source_keys)
    for source in range(3):
        part = placed == source
        expected = PartialKey(6, source=source).route(chunk.keys[part])
        assert np.array_equal(workers[part], expected)
    assert simulate(edges, "pkg", 6, sources=3, feed="key")["results"][0]["records"] == 2000


def test_global_load_is_one_router_and_probing_comes_close() -> None:
    spec = "zipf:z=0.8,keys=500,records=20000,seed=3"
    schemes = "pkg:load=global,pkg,pkg:load=probing:probe_records=500"
    out = simulate(spec, schemes, 10, sources=5, agreement=True)
    alone = PartialKey(10).route(np.concatenate([c.keys for c in open_stream(spec).chunks()]))
    results = out["results"]
    assert results[0]["loads"] == np.bincount(alone, minlength=10).tolist()
    assert all(result["imbalance_final"] < 60 for result in results)
    assert 0.3 < out["agreement"][0]["jaccard"] < 0.8


def test_probing_sets_the_estimate_to_the_true_load_over_the_sources() -> None:
    sources = Sources(read_schemes("pkg:load=probing:probe_records=10")[0], 3, 2)
    sources.probe(np.array([10, 4, 6]))
    for router in sources.routers:
        assert isinstance(router, PartialKey)
        assert router.loads.tolist() == [5.0, 2.0, 3.0]


def test_queueing_reports_the_busiest_worker_as_the_makespan() -> None:
    out = simulate(SPEC, "key,shuffle", 5, queue=Queue(rate=math.inf, service_s=0.01))
    for result in out["results"]:
        assert result["queueing"]["makespan_s"] == pytest.approx(0.01 * max(result["loads"]))


def test_capacities_are_told_to_schemes_that_know_them() -> None:
    queue = Queue(rate=1000.0, service_s=0.004, capacities=[1, 1, 2, 2])
    out = simulate("zipf:z=1.4,keys=500,records=40000,seed=1", "fish,w-choices", 4, queue=queue)
    fish, w_choices = out["results"]
    slow, fast = sum(fish["loads"][:2]), sum(fish["loads"][2:])
    assert fast / slow == pytest.approx(2.0, rel=0.05)
    assert fish["queueing"]["latency_p99_s"] < w_choices["queueing"]["latency_p99_s"]


def test_workers_come_and_go() -> None:
    changes = [WorkerChange(1000), WorkerChange(2000, worker=0)]
    out = simulate(SPEC, "consistent,fish", 4, sources=2, changes=changes)
    for result in out["results"]:
        assert len(result["loads"]) == 5
        assert sum(result["loads"]) == 3000
        assert result["loads"][4] > 0
    unchanged = simulate(SPEC, "consistent", 4)["results"][0]
    assert out["results"][0]["replicas"] > unchanged["replicas"]


def test_workers_change_before_the_very_record() -> None:
    keys = np.concatenate([chunk.keys for chunk in open_stream(SPEC).chunks()])
    router = ConsistentHash(4)
    parts = [router.route(keys[:1000])]
    router.add_worker()
    parts.append(router.route(keys[1000:2000]))
    router.remove_worker(0)
    parts.append(router.route(keys[2000:]))
    changes = [WorkerChange(2000, worker=0), WorkerChange(1000)]
    result = simulate(SPEC, "consistent", 4, changes=changes, chunk=700)["results"][0]
    assert result["loads"] == np.bincount(np.concatenate(parts), minlength=5).tolist()
    assert result["workers_at_end"] == 4
    # Balance since the last change, over the four workers that are left.
    last = np.bincount(parts[2], minlength=5)
    assert result["relative_imbalance"] == pytest.approx(last.max() / (1000 / 4) - 1)


def test_probes_come_after_every_so_many_records() -> None:
    keys = np.concatenate([chunk.keys for chunk in open_stream(SPEC).chunks()])
    routers = [PartialKey(6, source=source, load="probing") for source in range(2)]
    loads = np.zeros(6, np.int64)
    for start in range(0, len(keys), 500):
        if start:
            for router in routers:
                router.probe(loads, 2)
        part = keys[start : start + 500]
        for source, router in enumerate(routers):
            loads += np.bincount(router.route(part[source::2]), minlength=6)
    scheme = "pkg:load=probing:probe_records=500"
    result = simulate(SPEC, scheme, 6, sources=2, chunk=700)["results"][0]
    assert result["loads"] == loads.tolist()


def test_off_greedy_knows_the_frequencies() -> None:
    keys = np.concatenate([chunk.keys for chunk in open_stream(SPEC).chunks()])
    router = OffGreedy(5)
    router.learn(*np.unique(keys, return_counts=True))
    expected = np.bincount(router.route(keys), minlength=5).tolist()
    assert simulate(SPEC, "off-greedy", 5, sources=3)["results"][0]["loads"] == expected


def test_a_source_knows_its_part_of_the_rate() -> None:
    queue = Queue(rate=1000.0, service_s=0.004, capacities=[1, 2])
    known = queue.defaults(4)
    assert known == {"capacities": [1, 2], "rate": 250.0, "service_s": 0.016}
    routers = Sources(read_schemes("fish:rate=7")[0], 2, 4, defaults=known).routers
    assert [router.parameters()["rate"] for router in routers] == [7.0] * 4
    assert [router.parameters()["service_s"] for router in routers] == [0.016] * 4


def test_an_empty_stream_is_measured_too() -> None:
    out = simulate(Edges(np.empty(0), np.empty(0)), ALL, 3, sources=2)
    assert all(r["records"] == r["replicas"] == r["imbalance_final"] == 0 for r in out["results"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"sources": 0}, "sources must be at least 1, got 0"),
        ({"feed": "hash"}, "feed must be one of round-robin, key, got 'hash'"),
        ({"schemes": "pgk"}, "unknown scheme 'pgk' \\(did you mean 'pkg'\\?\\)"),
        ({"schemes": "pkg:laod=local"}, "pkg has no parameter 'laod' \\(did you mean 'load'\\?\\)"),
        ({"schemes": "fish:alpha=x"}, "alpha must be a number, got 'x'"),
        ({"schemes": "greedy-d:d=2.5"}, "d must be a whole number, got '2.5'"),
        ({"schemes": "pkg:load=global:load=local"}, "load must be given once, got global and"),
        ({"schemes": "pkg:load"}, "options must look like pkg:name=value:name=value, got 'load'"),
        ({"changes": [WorkerChange(5)]}, "pkg cannot change its workers while it runs"),
        ({"queue": Queue(capacities=[1.0])}, "capacities must have one entry for each of 4"),
        ({"interval": 0}, "interval must be at least 1, got 0"),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, object], message: str) -> None:
    given: dict[str, Any] = {"schemes": "pkg", "workers": 4, **arguments}
    with pytest.raises(ValueError, match=message):
        simulate(Zipf(1.0, 10, 100, 0), **given)


@pytest.mark.parametrize("text", ["5", "x:+", "5:3", "-5:+", "5:-x"])
def test_a_change_of_workers_must_be_readable(text: str) -> None:
    with pytest.raises(ValueError, match="must look like 500000:\\+ or 500000:-3"):
        WorkerChange.read(text)


def test_progress_is_told_every_record() -> None:
    told: list[int] = []
    simulate(SPEC, "key", 3, chunk=1000, progress=told.append)
    assert told == [1000, 1000, 1000]
