"""Planners over intervals: loads, intervals, and workers that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from sim.reference import Keys, keys_of, loads_by_hand
from unskew import simulate_plans
from unskew.planners import Plan, Window, make_planner
from unskew.routers import ConsistentHash, PartialKey, Shuffle
from unskew.sim import Queue, WorkerChange
from unskew.workloads import Chunk, Stream

SPEC = "zipf:z=1.1,keys=300,records=3000,seed=3"
DRIFTING = "fluctuating-zipf:z=0.9,keys=300,records=4200,interval=700,workers=5,seed={}"
STEADY = "zipf:z=0.8,keys=2000,records=40000,seed=2"


class Unsized(Stream):
    """A stream that does not know its length, and may be read only so far."""

    def __init__(self, keys: Keys, most: int) -> None:
        self._keys, self._most = keys, most

    @property
    def n_records(self) -> None:
        return None

    def describe(self) -> dict[str, Any]:
        return {"spec": "unsized"}

    def chunks(self, size: int = 65_536) -> Iterator[Chunk]:
        for start in range(0, len(self._keys), size):
            assert start < self._most, "read on for nothing"
            yield Chunk(self._keys[start : start + size])


def intervals(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
    """Return the intervals of the first line."""
    rows: list[dict[str, Any]] = simulate_plans(*arguments, **options)["results"][0]["intervals"]
    return rows


@pytest.mark.parametrize("name", ["mixed", "min-table", "readj", "simple"])
@pytest.mark.parametrize("fallback", ["consistent", "key"])
@pytest.mark.parametrize("spec", [SPEC, DRIFTING.format(1), DRIFTING.format(2)])
def test_loads_are_those_of_plans_made_by_hand(name: str, fallback: str, spec: str) -> None:
    rows = intervals(spec, name, 5, interval=700, fallback=fallback)
    keys, plan = keys_of(spec), Plan.empty(5, fallback=fallback)
    expected = loads_by_hand(keys, make_planner(name), plan, 700, [[1.0] * 5] * 6)
    assert [row["loads"] for row in rows] == expected
    assert [row["records"] for row in rows] == [sum(loads) for loads in expected]
    for row in rows:
        mean = sum(row["loads"]) / 5
        assert row["max_over_mean"] == pytest.approx(max(row["loads"]) / mean)


@pytest.mark.parametrize("name", ["mixed", "simple"])
def test_loads_by_hand_when_workers_come_and_go(name: str) -> None:
    # Before record 2100 is between the third interval and the fourth; 2900 is in the fifth.
    changes = [WorkerChange(2900, 1), WorkerChange(2100), WorkerChange(2800)]
    rows = intervals(DRIFTING.format(1), name, 4, changes=changes)
    speeds = [*[[1.0] * 4] * 2, [1.0] * 5, [1.0] * 6, *[[1.0, 0.0, 1.0, 1.0, 1.0, 1.0]] * 2]
    keys = keys_of(DRIFTING.format(1))
    expected = loads_by_hand(keys, make_planner(name), Plan.empty(4), 700, speeds)
    assert [row["loads"] for row in rows] == expected
    assert [row["workers"] for row in rows] == [4, 4, 4, 5, 6, 5]


def test_planners_are_given_the_window() -> None:
    window = Window(2, record_cost=2.0, key_cost=1.0, record_bytes=8.0)
    rows = intervals(DRIFTING.format(1), "min-mig", 5, window=window)
    twin, planner, plan = Window(2, 2.0, 1.0, 8.0), make_planner("min-mig"), Plan.empty(5)
    for row, part in zip(rows, np.split(keys_of(DRIFTING.format(1)), 6), strict=True):
        twin.update(part)
        proposal = planner.plan(twin.close(np.ones(5)), plan)
        plan = proposal.plan
        assert row["moved_fraction"] == proposal.moved_fraction
        assert row["planned_max_over_mean"] == proposal.max_over_mean
        assert row["moves"] == len(proposal.moves)
        assert row["entries"] == len(plan.keys)
        assert row["falls_short"] == proposal.falls_short
        assert row["plan_s"] > 0


def test_a_window_that_is_given_is_not_used_up() -> None:
    window = Window(3)
    first, second = (intervals(SPEC, "mixed", 4, interval=700, window=window) for _ in range(2))
    assert [row["moved_fraction"] for row in first[:-1]] == [
        row["moved_fraction"] for row in second[:-1]
    ]


def test_means_are_those_of_the_intervals() -> None:
    out = simulate_plans(SPEC, "mixed,readj", 4, schemes="key,shuffle", interval=700)
    names = [result["scheme"] for result in out["results"]]
    assert names == ["mixed", "readj", "key", "shuffle"]
    for result in out["results"]:
        for name in ("max_over_mean", "moved_fraction", "entries", "plan_s"):
            values = [row[name] for row in result["intervals"] if name in row]
            assert (f"{name}_mean" in result) == bool(values)
            if values:
                assert result[f"{name}_mean"] == pytest.approx(np.mean(values))
    assert "queueing" not in out["results"][0]


@pytest.mark.parametrize("change", [WorkerChange(12_000), WorkerChange(12_000, 2)])
def test_balance_comes_back_after_workers_change(change: WorkerChange) -> None:
    out = simulate_plans(STEADY, "mixed", 5, interval=4000, changes=[change])
    rows = out["results"][0]["intervals"]
    came = change.worker is None
    assert [row["workers"] for row in rows] == [5] * 3 + [6 if came else 4] * 7
    active = [set(range(5)), set(range(6)) if came else {0, 1, 3, 4}]
    for row in rows:
        loaded = {worker for worker, load in enumerate(row["loads"]) if load}
        assert loaded == active[row["interval"] >= 3]
        assert row["planned_max_over_mean"] <= 1.08 + 1e-6
        assert row["falls_short"] == ""
    # The worker that comes or goes takes about its share of the state with it.
    assert 0.1 < rows[2]["moved_fraction"] < 0.5
    assert rows[2]["moves"] > 0
    assert all(row["max_over_mean"] < 1.2 for row in rows[5:])


def test_schemes_that_are_not_elastic_start_anew() -> None:
    # Counted at one source; both changes happen at a multiple of the interval.
    changes = [WorkerChange(1000), WorkerChange(2000, 1)]
    out = simulate_plans(SPEC, "mixed", 4, schemes="pkg,shuffle", interval=500, changes=changes)
    keys = keys_of(SPEC)
    staffs = [np.arange(4), np.arange(5), np.array([0, 2, 3, 4])]
    for result, scheme in zip(out["results"][1:], (PartialKey, Shuffle), strict=True):
        routed = [
            staff[scheme(len(staff)).route(keys[1000 * i : 1000 * (i + 1)])]
            for i, staff in enumerate(staffs)
        ]
        halves = np.split(np.concatenate(routed), 6)
        loads = [np.bincount(half, minlength=5).tolist() for half in halves]
        assert [row["loads"] for row in result["intervals"]] == loads


def test_schemes_that_are_elastic_go_on() -> None:
    change = WorkerChange(1000, 1)
    out = simulate_plans(SPEC, "mixed", 4, schemes="consistent", interval=1000, changes=[change])
    keys, router = keys_of(SPEC), ConsistentHash(4)
    router.remove_worker(1)
    expected = np.bincount(router.route(keys[1000:2000]), minlength=4).tolist()
    assert out["results"][1]["intervals"][1]["loads"] == expected


def test_schemes_are_told_the_capacities_of_the_workers_there_are() -> None:
    queue = Queue(1000.0, 1e-4, capacities=[1.0, 2.0, 3.0])
    options: dict[str, Any] = {"queue": queue, "changes": [WorkerChange(1000)]}
    out = simulate_plans(SPEC, "mixed", 3, schemes="consistent", interval=1000, **options)
    router = ConsistentHash(4, capacities=[1.0, 2.0, 3.0, 1.0])
    expected = np.bincount(router.route(keys_of(SPEC)[1000:2000])).tolist()
    assert out["results"][1]["intervals"][1]["loads"] == expected


def test_capacities_are_shares_of_the_load() -> None:
    queue = Queue(1000.0, 1e-4, capacities=[1.0, 3.0])
    rows = intervals("zipf:z=0.5,keys=500,records=8000,seed=1", "mixed", 2, interval=1000,
                     queue=queue)  # fmt: skip
    for row in rows:
        slow, fast = row["loads"]
        assert row["max_over_mean"] == pytest.approx(max(slow, fast / 3) / (sum(row["loads"]) / 4))
    assert rows[-1]["loads"][1] == pytest.approx(750, rel=0.1)


@pytest.mark.parametrize(
    ("spec", "options", "length", "records"),
    [
        (SPEC, {"interval": 700}, 700, [700, 700, 700, 700, 200]),
        (SPEC, {"interval": 1000}, 1000, [1000] * 3),
        (SPEC, {"interval": 5000}, 5000, [3000]),
        (SPEC, {"intervals": 4}, 750, [750] * 4),
        (SPEC, {"intervals": 7}, 428, [428] * 7),
        (SPEC, {"interval": 700, "intervals": 2}, 700, [700] * 2),
        (DRIFTING.format(1), {}, 700, [700] * 6),
        (DRIFTING.format(1), {"intervals": 2}, 700, [700] * 2),
        (DRIFTING.format(1), {"interval": 2000}, 2000, [2000, 2000, 200]),
    ],
)
def test_intervals_are_cut(
    spec: str, options: dict[str, Any], length: int, records: list[int]
) -> None:
    told: list[int] = []
    out = simulate_plans(spec, "mixed", 4, schemes="shuffle", progress=told.append, **options)
    assert out["interval_records"] == length
    assert sum(told) == sum(records)
    for result in out["results"]:
        rows = result["intervals"]
        assert [row["records"] for row in rows] == records
        assert [row["interval"] for row in rows] == list(range(len(records)))
    # After an interval that is not full there is no plan.
    planned = ["plan_s" in row for row in out["results"][0]["intervals"]]
    assert planned == [count == length for count in records]


def test_a_stream_is_read_no_further_than_needed() -> None:
    stream = Unsized(keys_of(SPEC), most=1400)
    rows = intervals(stream, "mixed", 4, interval=700, intervals=2)
    assert [row["records"] for row in rows] == [700, 700]


def test_an_empty_stream_has_no_intervals() -> None:
    out = simulate_plans(Unsized(np.empty(0, np.uint64), 0), "mixed", 3, interval=10)
    assert out["results"] == [{"scheme": "mixed", "intervals": []}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fallback": "key", "changes": [WorkerChange(700)]}, "with the fallback 'key' workers"),
        ({"fallback": "key", "changes": [WorkerChange(5, 1)]}, "with the fallback 'key' workers"),
        ({"fallback": "ring"}, "fallback must be one of consistent, key, spark, got ring"),
        ({"queue": Queue()}, "planners need a finite arrival rate, got inf: set one"),
        ({"queue": Queue(rate=float("nan"))}, "planners need a finite arrival rate"),
        ({"queue": Queue(rate=0.0)}, "arrival_rate must be positive"),
        ({"interval": None}, "the length of an interval is unknown: give its records, or the"),
        ({"interval": 0}, "interval must be at least 1, got 0"),
        ({"interval": None, "intervals": 0}, "intervals must be at least 1, got 0"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"workers": 0}, "workers must be at least 1, got 0"),
        ({"sources": 0}, "sources must be at least 1, got 0"),
        ({"changes": [WorkerChange(3000)]}, "a change of workers must come before record 3000"),
        ({"changes": [WorkerChange(10, 9)]}, "worker 9 cannot leave before record 10"),
        ({"planners": "mxied"}, "unknown planner 'mxied' \\(did you mean 'mixed'\\?\\)"),
        ({"planners": "mixed:resolutoin=8"}, "mixed has no parameter 'resolutoin'"),
        ({"schemes": "pgk"}, "unknown scheme 'pgk' \\(did you mean 'pkg'\\?\\)"),
        (
            {"queue": Queue(rate=10.0, capacities=[1.0, 1.0, 1.0])},
            "capacities must have one entry for each of 4 workers, got 3",
        ),
        ({"schemes": "off-greedy"}, "off-greedy cannot run beside planners"),
        ({"schemes": "pkg:load=probing"}, "pkg:load=probing cannot run beside planners"),
    ],
)
def test_bad_input_is_refused(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"planners": "mixed", "workers": 4, "interval": 700, **options}
    with pytest.raises(ValueError, match=f"^{message}"):
        simulate_plans(SPEC, **given)


def test_an_unsized_stream_needs_the_length_of_an_interval() -> None:
    with pytest.raises(ValueError, match="the length of an interval is unknown"):
        simulate_plans(Unsized(keys_of(SPEC), 0), "mixed", 4, intervals=3)
