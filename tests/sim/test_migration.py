"""What a change of plans does to records that come meanwhile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sim.reference import Migrating, keys_of
from unskew import simulate_plans
from unskew.metrics import Queueing
from unskew.planners import Moves, Plan, Planner, Proposal, Statistics, Window, make_planner
from unskew.planners.problem import Homes, Problem
from unskew.sim import Queue, WorkerChange
from unskew.sim.contenders import Migration, PlannerContender
from unskew.workloads import Chunk

# So many keys that some come that the window does not know.
SPEC = "fluctuating-zipf:z=0.9,keys=300,records=2600,interval=500,workers=4,seed={}"

# Odd numbers: no record should come at the very moment of a pause, where rounding would decide.
migrations = st.builds(
    Migration,
    planning_s=st.sampled_from([0.0, 0.01037, 0.10037, 0.20037]),
    signal_s=st.sampled_from([0.0, 0.00507]),
    bytes_per_s=st.sampled_from([9973.0, 1e5 + 3, float("inf")]),
)


def against_reference(
    seed: int, name: str, migration: Migration, queue: Queue, changes: Sequence[str] = ()
) -> list[Any]:
    """Compare a run with the one by hand; return its intervals."""
    spec = SPEC.format(seed)
    speeds = [list(queue.capacities or [1.0] * 4)]
    for end in range(500, 2600, 500):
        speeds.append(speeds[-1].copy())
        for at, worker in (change.split(":") for change in changes):
            if end - 500 < int(at) <= end and worker == "+":
                speeds[-1].append(1.0)
            elif end - 500 < int(at) <= end:
                speeds[-1][-int(worker)] = 0.0
    hand = Migrating(make_planner(name), Plan.empty(speeds[0]), migration, Window(2))
    hand.run(keys_of(spec), 500, queue.rate, speeds[1:])
    ever = [*speeds[0], *[1.0] * (len(speeds[-1]) - 4)]
    latencies, makespan_s = hand.latencies([queue.service_s / speed for speed in ever])

    read = [WorkerChange.read(change) for change in changes]
    options: dict[str, Any] = {"queue": queue, "migration": migration, "changes": read}
    result = simulate_plans(spec, name, 4, window=2, **options)["results"][0]
    found, rows = result["queueing"], result["intervals"]
    assert found["records"] == len(latencies) == 2600
    assert found["latency_mean_s"] == pytest.approx(np.mean(latencies), rel=1e-9)
    assert found["latency_max_s"] == pytest.approx(max(latencies), rel=1e-9)
    assert found["makespan_s"] == pytest.approx(makespan_s, rel=1e-9)
    assert {row["interval"]: row["held_records"] for row in rows if "pause_s" in row} == hand.held
    assert [row["interval"] for row in rows if "plan_s" in row] == hand.plans
    loads = np.bincount([event[3] for event in hand.events], minlength=len(ever))
    assert np.sum([row["loads"] for row in rows], axis=0).tolist() == loads.tolist()
    return list(rows)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 50),
    name=st.sampled_from(["mixed", "min-mig", "readj"]),
    migration=migrations,
    service_s=st.sampled_from([0.0005, 0.0031, 0.01]),
    capacities=st.sampled_from([None, [1.0, 2.0, 0.5, 1.0]]),
    changes=st.sampled_from([[], ["900:+"], ["1000:-2"], ["600:+", "1600:-4", "1700:+"]]),
)
def test_against_events_by_hand(
    seed: int,
    name: str,
    migration: Migration,
    service_s: float,
    capacities: list[float] | None,
    changes: list[str],
) -> None:
    queue = Queue(1000.0, service_s, capacities)
    against_reference(seed, name, migration, queue, changes)


@pytest.mark.parametrize(
    "migration",
    [
        Migration(planning_s=0.01037, bytes_per_s=97.0),
        Migration(planning_s=0.70037, bytes_per_s=9973.0),
        Migration(planning_s=0.0, signal_s=0.30037, bytes_per_s=9973.0),
    ],
)
def test_no_plan_is_begun_before_the_last_migration_is_over(migration: Migration) -> None:
    rows = against_reference(1, "mixed", migration, Queue(1000.0, 0.0031))
    waiting = [row for row in rows if row.get("falls_short") == "still migrating"]
    assert waiting
    assert not any("plan_s" in row or "moves" in row for row in waiting)
    for row in waiting:
        assert row["entries"] == rows[row["interval"] - 1]["entries"]


def test_every_record_is_in_an_interval() -> None:
    spec = "zipf:z=1.0,keys=100,records=1000,seed=1"
    options: dict[str, Any] = {"interval": 500, "queue": Queue(1000.0, 1e-3)}
    out = simulate_plans(spec, "mixed", 4, migration=Migration(bytes_per_s=100.0), **options)
    rows = out["results"][0]["intervals"]
    assert rows[0]["held_records"] > 0
    assert rows[1]["falls_short"] == "still migrating"
    assert sum(row["records"] for row in rows) == 1000


def test_what_is_held_in_a_last_interval_is_in_it() -> None:
    spec = "zipf:z=1.0,keys=100,records=700,seed=1"
    options: dict[str, Any] = {"interval": 500, "queue": Queue(1000.0, 1e-3)}
    out = simulate_plans(spec, "mixed", 4, migration=Migration(bytes_per_s=100.0), **options)
    result = out["results"][0]
    assert result["intervals"][0]["held_records"] > 0
    assert [row["records"] for row in result["intervals"]] == [500, 200]
    assert result["queueing"]["records"] == 700
    assert result["queueing"]["makespan_s"] > 0.5 + result["intervals"][0]["pause_s"]


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    queue, migration = Queue(1000.0, 0.0031), Migration(bytes_per_s=5000.0)
    results = []
    for chunk in (65_536, 7):
        monkeypatch.setattr("unskew.sim.intervals.LARGEST_CHUNK", chunk)
        options: dict[str, Any] = {"queue": queue, "migration": migration, "sources": 3}
        out = simulate_plans(SPEC.format(3), "mixed", 4, schemes="pkg,fish", **options)
        for result in out["results"]:
            result.pop("plan_s_mean", None)
            for row in result["intervals"]:
                row.pop("plan_s", None)
        results.append(out)
    assert results[0] == results[1]
    assert any(row.get("held_records") for row in results[0]["results"][0]["intervals"])


@dataclass(frozen=True)
class Scripted(Planner):
    """Puts keys where it is told."""

    table: Mapping[int, int] = field(default_factory=dict)
    name: ClassVar[str] = "scripted"

    def plan(self, statistics: Statistics, plan: Plan) -> Proposal:
        problem = Problem.of(statistics, plan)
        return problem.proposal(self._homes(problem), self.name, self.theta_max)

    def _homes(self, problem: Problem) -> Homes:
        homes = problem.starts.copy()
        for key, home in self.table.items():
            homes[problem.keys == key] = home
        return homes


class Ledger(Queueing):
    """Also writes down when each record came to its worker, and when it may be served."""

    log: defaultdict[int, list[tuple[float, float]]]

    def serve(
        self, workers: NDArray[np.int32], arrivals_s: NDArray[np.float64], release_s: float = 0.0
    ) -> None:
        for worker, came_s in zip(workers.tolist(), arrivals_s.tolist(), strict=True):
            self.log[worker].append((came_s, max(came_s, release_s)))
        super().serve(workers, arrivals_s, release_s)


def scripted_line(
    migration: Migration, moves: Mapping[int, int]
) -> tuple[PlannerContender, Ledger]:
    """Return a line with keys 1 and 2 on worker 0, 3 on 1, 4 on 2; at 8 s a plan moves some."""
    plan = Plan.empty(3).with_entries([1, 2, 3, 4], [0, 0, 1, 2])
    ledger = Ledger(3, arrival_rate=1.0, service_s=0.25)
    ledger.log = defaultdict(list)
    line = PlannerContender("x", 3, ledger, Scripted(table=moves), plan, migration)
    take(line, [1, 2, 3, 4], [0.0, 1.0, 2.0, 3.0])
    line.end(np.ones(3))
    keys, ones = np.array([1, 2, 3, 4], np.uint64), np.ones(4)
    line.replan(Statistics(keys, ones, 4 * ones, np.ones(3)), boundary_s=8.0)
    ledger.log.clear()
    return line, ledger


def take(line: PlannerContender, keys: list[int], arrivals_s: list[float]) -> None:
    line.take(Chunk(np.array(keys, np.uint64)), np.array(arrivals_s))


def test_moved_keys_wait_from_the_pause_to_the_resumption() -> None:
    # Pause at 8 + 0.5 + 1 + 0.5 = 10, resumption at 10 + 4 / 2 + 2 * 0.5 = 13.
    migration = Migration(planning_s=1.0, signal_s=0.5, bytes_per_s=2.0)
    line, ledger = scripted_line(migration, {1: 1})
    take(line, [1, 1, 2, 1], [9.75, 10.0, 10.25, 11.0])
    assert ledger.log == {0: [(9.75, 9.75), (10.25, 10.25)]}
    take(line, [3, 1, 3], [12.75, 13.0, 14.0])
    assert ledger.log == {
        0: [(9.75, 9.75), (10.25, 10.25)],
        1: [(12.75, 12.75), (10.0, 13.0), (11.0, 13.0), (13.0, 13.0), (14.0, 14.0)],
    }
    row = line.rows[-1]
    assert (row["moves"], row["held_records"], row["pause_s"]) == (1, 2, 3.0)
    assert row["moved_fraction"] == 0.25


def test_what_is_held_at_the_end_is_let_go() -> None:
    line, ledger = scripted_line(Migration(1.0, 0.5, 2.0), {1: 1})
    take(line, [1, 2], [10.0, 11.0])
    line.finish(np.ones(line.n_ever))
    assert ledger.log == {0: [(11.0, 11.0)], 1: [(10.0, 13.0)]}


def test_a_worker_without_moves_does_not_notice() -> None:
    arrivals = [8.0 + i / 16 for i in range(160)]
    keys = [(i * 7) % 4 + 1 for i in range(160)]
    logs = []
    for bytes_per_s in (float("inf"), 2.0, 0.8):
        line, ledger = scripted_line(Migration(1.0, 0.5, bytes_per_s), {1: 1})
        take(line, keys, arrivals)
        line.finish(np.ones(line.n_ever))
        logs.append(ledger.log)
    assert logs[0][1] != logs[1][1] != logs[2][1]
    assert logs[0][2] == logs[1][2] == logs[2][2]
    assert [came_s for came_s, _ in logs[0][2]] == [arrivals[i] for i in range(160) if keys[i] == 4]


def test_a_plan_without_moves_pauses_nobody() -> None:
    line, ledger = scripted_line(Migration(1.0, 0.5, 2.0), {})
    assert "pause_s" not in line.rows[-1]
    take(line, [1, 3, 1], [8.0, 10.5, 12.0])
    assert ledger.log == {0: [(8.0, 8.0), (12.0, 12.0)], 1: [(10.5, 10.5)]}


@pytest.mark.parametrize("turned", [False, True])
def test_a_migration_lasts_as_long_as_its_busiest_worker(turned: bool) -> None:
    # Worker 0 sends 7, worker 2 receives 9; or the other way round.
    origins, destinations = np.array([0, 0, 3], np.int32), np.array([1, 2, 2], np.int32)
    if turned:
        origins, destinations = destinations, origins
    keys, states = np.arange(3, dtype=np.uint64), np.array([3.0, 4.0, 5.0])
    moves = Moves(keys, origins, destinations, states)
    proposal = Proposal(Plan.empty(4), moves, np.ones(4), 1.0, 1.0, "")
    assert Migration(2.0, 0.5, bytes_per_s=3.0).times(100.0, proposal) == (103.0, 107.0)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"planning_s": -1.0}, "planning_s must be between 0 and"),
        ({"signal_s": float("nan")}, "signal_s must be between 0 and"),
        ({"bytes_per_s": 0.0}, r"bytes_per_s must be above 0, got 0\.0"),
        ({"bytes_per_s": float("nan")}, "bytes_per_s must be above 0, got nan"),
    ],
)
def test_refuses(given_: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Migration(**given_)
