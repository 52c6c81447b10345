"""The contenders of an interval simulation: planners with their plans, and online schemes."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.metrics import Queueing
from unskew.planners import Plan, Planner, Proposal, Statistics
from unskew.routers import ElasticRouter, TableRouter
from unskew.sim.sources import Sources
from unskew.sketches.exact import KeyIndex
from unskew.state import within
from unskew.workloads import Chunk

Workers = NDArray[np.int32]
Times = NDArray[np.float64]
Row = dict[str, Any]


@dataclass(frozen=True)
class Migration:
    """The duration of a change of plans, by the steps of the paper's workflow.

    Workers report (1) and the controller plans (2): ``planning_s``. It pauses the moved keys at
    the sources (3, 4), workers send their state (5) at ``bytes_per_s`` each, in and out, and
    acknowledge (6), and the sources resume (7): ``signal_s`` each for pause, acknowledgement and
    resumption. Records of moved keys wait at the sources meanwhile; other records are not delayed.
    """

    planning_s: float = 0.1
    signal_s: float = 0.005
    bytes_per_s: float = 1e8

    def __post_init__(self) -> None:
        within("planning_s", self.planning_s, 0, 1e9)
        within("signal_s", self.signal_s, 0, 1e9)
        if not self.bytes_per_s > 0:
            raise ValueError(f"bytes_per_s must be above 0, got {self.bytes_per_s}")

    def times(self, boundary_s: float, proposal: Proposal) -> tuple[float, float]:
        """Return when moved keys are paused and when they resume."""
        paused_s = boundary_s + self.signal_s + self.planning_s + self.signal_s
        moves = proposal.moves
        sent = np.bincount(moves.origins, moves.state_bytes)
        received = np.bincount(moves.destinations, moves.state_bytes)
        longest = float(max(sent.max(initial=0.0), received.max(initial=0.0)))
        return paused_s, paused_s + longest / self.bytes_per_s + 2 * self.signal_s


@dataclass
class Contender:
    """A way to route records, with its measures in every interval."""

    name: str
    n_ever: int
    queueing: Queueing | None
    rows: list[Row] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._loads = np.zeros(self.n_ever, np.int64)

    @abstractmethod
    def take(self, chunk: Chunk, arrivals_s: Times) -> None:
        """Route records that arrive at these times."""

    def end(self, capacities: NDArray[np.float64]) -> None:
        """Record the measures of the interval that ends."""
        loads, active = self._loads, capacities > 0
        mean = loads.sum() / capacities.sum()
        skew = (loads[active] / capacities[active]).max() / mean if mean else 1.0
        self.rows.append(
            {
                "interval": len(self.rows),
                "records": int(loads.sum()),
                "workers": int(active.sum()),
                "max_over_mean": float(skew),
                "loads": loads.tolist(),
            }
        )
        self._loads[:] = 0

    @abstractmethod
    def replan(self, statistics: Statistics, boundary_s: float) -> None:
        """Prepare for the next interval, with the workers that are in the statistics."""

    def finish(self, capacities: NDArray[np.float64]) -> None:
        """Record the measures since the end of the last interval."""
        if self._loads.any():
            self.end(capacities)

    def result(self) -> dict[str, Any]:
        """Return the measures of all intervals, and their means."""
        out: dict[str, Any] = {"scheme": self.name}
        for name in ("max_over_mean", "moved_fraction", "entries", "plan_s"):
            values = [row[name] for row in self.rows if name in row]
            if values:
                out[f"{name}_mean"] = float(np.mean(values))
        out["intervals"] = self.rows
        if self.queueing is not None:
            out["queueing"] = self.queueing.result()
        return out

    def _serve(self, workers: Workers, arrivals_s: Times, release_s: float = 0.0) -> None:
        self._loads += np.bincount(workers, minlength=self.n_ever)
        if self.queueing is not None:
            self.queueing.serve(workers, arrivals_s, release_s)


@dataclass
class SchemeContender(Contender):
    """An online scheme, which needs no plan."""

    sources: Sources

    def __post_init__(self) -> None:
        super().__post_init__()
        router = self.sources.routers[0]
        if router.offline or self.sources.probe_every:
            raise ValueError(
                f"{self.name} cannot run beside planners, because it needs all frequencies or the "
                "true loads: run it without planners"
            )
        self._workers = np.arange(self.sources.n_workers, dtype=np.int32)

    def take(self, chunk: Chunk, arrivals_s: Times) -> None:
        """Route records that arrive at these times."""
        self._serve(self._workers[self.sources.route(chunk)], arrivals_s)

    def replan(self, statistics: Statistics, boundary_s: float) -> None:
        """Add and remove workers; a scheme that is not elastic starts again with new routers."""
        workers = np.flatnonzero(statistics.capacities).astype(np.int32)
        router = self.sources.routers[0]
        if isinstance(router, ElasticRouter):
            self._workers = np.arange(self.n_ever, dtype=np.int32)
            for _ in range(len(router.speeds), len(statistics.capacities)):
                self.sources.add_worker()
            for worker in np.setdiff1d(router.workers, workers):
                self.sources.remove_worker(int(worker))
        elif not np.array_equal(workers, self._workers):
            self._workers = workers
            self.sources = replace(self.sources, n_workers=len(workers))


@dataclass
class PlannerContender(Contender):
    """A planner with its current plan and the migration in progress.

    Without a `Migration` a new plan takes effect at the start of the next interval. With one, the
    change takes time, and no other migration starts before its end.
    """

    planner: Planner
    plan: Plan
    migration: Migration | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._router = TableRouter.of(self.plan)
        self._moved = KeyIndex()
        self._paused_s = self._resumed_s = 0.0
        self._held: list[tuple[Keys, Times]] = []
        self._migrating: Row = {}

    def take(self, chunk: Chunk, arrivals_s: Times) -> None:
        """Route records that arrive at these times; hold back records of paused keys."""
        cuts = np.searchsorted(arrivals_s, [self._paused_s, self._resumed_s])
        before, during, after = np.split(chunk.keys, cuts)
        times = np.split(arrivals_s, cuts)
        if len(before):
            self._serve(self._router.route(before), times[0])
        if len(during):
            self._follow()
            self._hold(during, times[1])
        if len(after):
            self._follow()
            self._release()
            self._serve(self._router.route(after), times[2])

    def replan(self, statistics: Statistics, boundary_s: float) -> None:
        """Make a plan after an interval; it takes effect at once or after its migration."""
        row = self.rows[-1]
        if boundary_s < self._resumed_s:
            row |= {"entries": len(self.plan.keys), "falls_short": "still migrating"}
            return
        self._follow()
        self._release()
        started = time.perf_counter()
        proposal = self.planner.plan(statistics, self.plan)
        row |= {
            "plan_s": time.perf_counter() - started,
            "moves": len(proposal.moves),
            "moved_fraction": proposal.moved_fraction,
            "entries": len(proposal.plan.keys),
            "planned_max_over_mean": proposal.max_over_mean,
            "falls_short": proposal.falls_short,
        }
        self.plan = proposal.plan
        if self.migration is not None and len(proposal.moves):
            self._moved = KeyIndex()
            self._moved.number(proposal.moves.keys)
            self._paused_s, self._resumed_s = self.migration.times(boundary_s, proposal)
            row |= {"pause_s": self._resumed_s - self._paused_s, "held_records": 0}
            self._migrating = row

    def finish(self, capacities: NDArray[np.float64]) -> None:
        """Release the records that are held back, and record the measures of the rest."""
        self._follow()
        self._release()
        super().finish(capacities)

    def _follow(self) -> None:
        if self._router.version[0] != self.plan.version:
            self._router.follow(self.plan)

    def _hold(self, keys: Keys, arrivals_s: Times) -> None:
        """Hold back the records of moved keys, and route the others."""
        held = self._moved.find(keys) >= 0
        self._held.append((keys[held], arrivals_s[held]))
        self._migrating["held_records"] += int(held.sum())
        self._serve(self._router.route(keys[~held]), arrivals_s[~held])

    def _release(self) -> None:
        for keys, arrivals_s in self._held:
            self._serve(self._router.route(keys), arrivals_s, self._resumed_s)
        self._held.clear()
