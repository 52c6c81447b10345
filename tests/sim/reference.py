"""Planners over intervals again, record by record: plans by hand, queues as sorted events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.planners import Plan, Planner, Proposal, Window
from unskew.routers.planned import TableRouter
from unskew.sim.contenders import Migration
from unskew.workloads import open_stream

Keys = NDArray[np.uint64]


def keys_of(spec: str) -> Keys:
    return np.concatenate([chunk.keys for chunk in open_stream(spec).chunks()])


def loads_by_hand(
    keys: Keys, planner: Planner, plan: Plan, length: int, speeds: Sequence[Sequence[float]]
) -> list[list[int]]:
    """Return the loads of each interval, after the i-th of which these workers are there."""
    window, loads = Window(), []
    for i, start in enumerate(range(0, len(keys), length)):
        part = keys[start : start + length]
        workers = TableRouter.of(plan).route(part)
        loads.append(np.bincount(workers, minlength=len(speeds[-1])).tolist())
        window.update(part)
        if len(part) == length:
            plan = planner.plan(window.close(speeds[i]), plan).plan
    return loads


@dataclass
class Migrating:
    """A planner whose plans take their time: who is served when, and who is held back."""

    planner: Planner
    new: Plan
    migration: Migration
    window: Window
    old: Plan = field(init=False)
    moved: set[int] = field(init=False, default_factory=set)
    paused_s: float = field(init=False, default=0.0)
    resumed_s: float = field(init=False, default=0.0)
    events: list[tuple[float, bool, float, int]] = field(init=False, default_factory=list)
    """When a record joins its queue, whether it was not held, when it came, and its worker."""
    plans: list[int] = field(init=False, default_factory=list)
    held: dict[int, int] = field(init=False, default_factory=dict)
    """Held records, by the interval after which the plan was made."""

    def __post_init__(self) -> None:
        self.old = self.new

    def run(self, keys: Keys, length: int, rate: float, speeds: Sequence[Sequence[float]]) -> None:
        """Take the whole stream; after its i-th interval these workers are there."""
        for number, start in enumerate(range(0, len(keys), length)):
            part = keys[start : start + length]
            old, new = (TableRouter.of(plan).route(part) for plan in (self.old, self.new))
            for i, key in enumerate(part.tolist()):
                self.take(key, (start + i) / rate, int(old[i]), int(new[i]))
            self.window.update(part)
            if len(part) == length:
                self.end(number, (start + length) / rate, speeds[number])

    def take(self, key: int, now_s: float, old: int, new: int) -> None:
        if now_s < self.paused_s:
            self.events.append((now_s, True, now_s, old))
        elif now_s < self.resumed_s and key in self.moved:
            self.events.append((self.resumed_s, False, now_s, new))
            self.held[max(self.held)] += 1
        else:
            self.events.append((now_s, True, now_s, new))

    def end(self, number: int, now_s: float, speeds: Sequence[float]) -> None:
        statistics = self.window.close(speeds)
        if now_s < self.resumed_s:
            return
        proposal = self.planner.plan(statistics, self.new)
        self.plans.append(number)
        if len(proposal.moves):
            self.old, self.held[number] = self.new, 0
            self.moved = set(proposal.moves.keys.tolist())
            self.pause(proposal, now_s)
        else:
            self.old = proposal.plan
        self.new = proposal.plan

    def pause(self, proposal: Proposal, now_s: float) -> None:
        n_workers = proposal.plan.n_workers
        sent, received = [0.0] * n_workers, [0.0] * n_workers
        moves = proposal.moves
        rows = zip(moves.origins, moves.destinations, moves.state_bytes, strict=True)
        for origin, destination, state in rows:
            sent[origin] += state
            received[destination] += state
        steps = self.migration
        self.paused_s = now_s + steps.signal_s + steps.planning_s + steps.signal_s
        transfer_s = max(*sent, *received) / steps.bytes_per_s
        self.resumed_s = self.paused_s + transfer_s + 2 * steps.signal_s

    def latencies(self, service_s: Sequence[float]) -> tuple[list[float], float]:
        """Return the latency of every record, and when the last one is done."""
        free_s = [0.0] * len(service_s)
        latencies = []
        for joined_s, _, came_s, worker in sorted(self.events):
            free_s[worker] = max(free_s[worker], joined_s) + service_s[worker]
            latencies.append(free_s[worker] - came_s)
        return latencies, max(free_s)
