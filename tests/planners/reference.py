"""Every planner again: slow, in plain Python, and without a line of the package's own code.

A key is its position, 0 to n - 1. Sorts are made anew for each decision and loads are summed from
the homes, so there is no state that could be out of date. What the paper leaves open is settled in
one place each: `fits`, `order`, `llfd`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Step = tuple[Any, ...]
"""``("place", key, worker, exchanged)`` or ``("refuse", key, worker)``."""

TOLERANCE = 1 + 1e-9
NOWHERE = -1


@dataclass(frozen=True)
class Problem:
    """What a planner is told; a worker of capacity 0 is not active."""

    costs: Sequence[float]
    states: Sequence[float]
    hashed: Sequence[int]
    """h(k): where the hash sends each key."""
    present: Sequence[int]
    """F(k): where each key is."""
    capacities: Sequence[float]
    theta_max: float = 0.0
    beta: float = 1.5

    @property
    def keys(self) -> range:
        return range(len(self.costs))

    @property
    def active(self) -> list[int]:
        return [worker for worker, capacity in enumerate(self.capacities) if capacity > 0]

    @property
    def table(self) -> list[int]:
        """The keys that have an entry, the smallest state first, of equals the smallest cost."""
        entries = [key for key in self.keys if self.present[key] != self.hashed[key]]
        return sorted(entries, key=lambda key: (self.states[key], self.costs[key], key))

    def limit(self, worker: int) -> float:
        share = sum(self.costs) * self.capacities[worker] / sum(self.capacities)
        return (1 + self.theta_max) * share

    def fits(self, load: float, worker: int) -> bool:
        return load <= self.limit(worker) * TOLERANCE

    def gamma(self, key: int) -> float:
        if self.costs[key] == 0:
            return 0.0
        if self.states[key] == 0:
            return math.inf
        return float(self.costs[key] ** self.beta / self.states[key])

    def order(self, keys: Sequence[int], psi: str) -> list[int]:
        """Return the keys in the order of psi, "cost" or "gamma": the first to go first."""
        weight = {"cost": lambda key: self.costs[key], "gamma": self.gamma}[psi]
        return sorted(keys, key=lambda key: (-weight(key), -self.costs[key], key))


@dataclass
class Trial:
    """Where each key goes, and how that came about."""

    problem: Problem
    homes: list[int]
    sticky: bool = False
    """Whether a key goes back to where it was if it fits there."""
    trace: list[Step] = field(default_factory=list)
    forced: bool = False
    """Whether a key found no place and had to be put somewhere all the same."""

    def load(self, worker: int) -> float:
        costs = self.problem.costs
        return sum(costs[key] for key, home in enumerate(self.homes) if home == worker)

    def use(self, worker: int, more: float = 0.0) -> float:
        """Return the load of a worker for its capacity, with ``more`` on top."""
        return (self.load(worker) + more) / self.problem.capacities[worker]

    @property
    def loads(self) -> list[float]:
        return [self.load(worker) for worker in range(len(self.problem.capacities))]

    @property
    def worst(self) -> float:
        return max(self.use(worker) for worker in self.problem.active)

    @property
    def entries(self) -> dict[int, int]:
        hashed = self.problem.hashed
        return {key: home for key, home in enumerate(self.homes) if home != hashed[key]}

    @property
    def moved_state(self) -> float:
        problem = self.problem
        moved = [key for key in problem.keys if self.homes[key] != problem.present[key]]
        return sum(problem.states[key] for key in moved)

    @property
    def meets(self) -> bool:
        problem = self.problem
        return all(problem.fits(self.load(worker), worker) for worker in problem.active)


def unchanged(problem: Problem) -> Trial:
    return Trial(problem, list(problem.present))


def three_phases(problem: Problem, n: int, psi: str, sticky: bool = False) -> Trial:
    """Clean n entries, take keys off the workers with too much, place them again."""
    trial = Trial(problem, list(problem.present), sticky)
    for key in problem.table[:n]:
        trial.homes[key] = problem.hashed[key]
    candidates = take_off(trial, psi)
    place(trial, candidates, psi)
    return trial


def take_off(trial: Trial, psi: str) -> list[int]:
    problem, candidates = trial.problem, []
    for worker in range(len(problem.capacities)):
        here = [key for key in problem.keys if trial.homes[key] == worker and problem.costs[key]]
        for key in problem.order(here, psi):
            if problem.fits(trial.load(worker), worker):
                break
            trial.homes[key] = NOWHERE
            candidates.append(key)
    return candidates


def place(trial: Trial, candidates: list[int], psi: str) -> None:
    """Place each candidate by LLFD (algorithm 1), and what it drives out too."""
    problem = trial.problem
    placed: set[int] = set()
    while candidates:
        key = problem.order(candidates, "cost")[0]
        candidates.remove(key)
        worker, exchanged = destination(trial, key, placed, psi)
        for other in exchanged:
            trial.homes[other] = NOWHERE
            candidates.append(other)
        trial.homes[key] = worker
        placed.add(key)
        trial.trace.append(("place", key, worker, tuple(exchanged)))


def destination(trial: Trial, key: int, placed: set[int], psi: str) -> tuple[int, list[int]]:
    problem, cost = trial.problem, trial.problem.costs[key]
    home = problem.present[key]
    if trial.sticky and home in problem.active and problem.fits(trial.load(home) + cost, home):
        return home, []
    ascending = sorted(problem.active, key=lambda worker: (trial.use(worker), worker))
    for worker in ascending:
        if problem.fits(trial.load(worker) + cost, worker):
            return worker, []
    for worker in ascending:
        exchanged = exchange_set(trial, key, worker, placed, psi)
        if exchanged is not None:
            return worker, exchanged
        trial.trace.append(("refuse", key, worker))
    trial.forced = True
    return min(problem.active, key=lambda worker: (trial.use(worker, cost), worker)), []


def exchange_set(
    trial: Trial, key: int, worker: int, placed: set[int], psi: str
) -> list[int] | None:
    """Return the lighter keys to take off the worker so that the key fits, or None."""
    problem, cost = trial.problem, trial.problem.costs[key]
    lighter = [
        other
        for other in problem.keys
        if trial.homes[other] == worker and other not in placed and 0 < problem.costs[other] < cost
    ]
    exchanged: list[int] = []
    for other in problem.order(lighter, psi):
        exchanged.append(other)
        rest = trial.load(worker) + cost - sum(problem.costs[gone] for gone in exchanged)
        if problem.fits(rest, worker):
            return exchanged
    return None


def llfd(problem: Problem, max_entries: int) -> Trial:
    return three_phases(problem, 0, "cost")


def min_table(problem: Problem, max_entries: int) -> Trial:
    return three_phases(problem, len(problem.table), "cost")


def min_mig(problem: Problem, max_entries: int) -> Trial:
    return three_phases(problem, 0, "gamma")


def mixed(problem: Problem, max_entries: int) -> Trial:
    """Return the trial by gamma, and if that had to clean, the better of it and that by cost."""

    def worth(trial: Trial) -> tuple[bool, bool, float]:
        return len(trial.entries) > max_entries, trial.forced, trial.moved_state

    n, by_gamma = clean_until_small(problem, max_entries, "gamma")
    if n == 0:
        return by_gamma
    return min(by_gamma, clean_until_small(problem, max_entries, "cost")[1], key=worth)


def clean_until_small(problem: Problem, max_entries: int, psi: str) -> tuple[int, Trial]:
    n = 0
    while True:
        trial = three_phases(problem, n, psi, sticky=True)
        over = len(trial.entries) - max_entries
        if over <= 0 or n >= len(problem.table):
            return n, trial
        n += over


def mixed_bf(problem: Problem, max_entries: int) -> Trial:
    """Return the best trial; that of Mixed if no trial does what it must."""
    trials = [three_phases(problem, n, "gamma", True) for n in range(len(problem.table) + 1)]
    good = [trial for trial in trials if trial.meets and len(trial.entries) <= max_entries]
    return min(good, key=lambda trial: trial.moved_state, default=mixed(problem, max_entries))


def simple(problem: Problem, max_entries: int) -> Trial:
    trial = unchanged(problem)
    costly = [key for key in problem.keys if problem.costs[key] > 0]
    for key in costly:
        trial.homes[key] = NOWHERE
    for key in problem.order(costly, "cost"):
        cost = problem.costs[key]
        worker = min(problem.active, key=lambda worker: (trial.use(worker, cost), worker))
        trial.homes[key] = worker
    return trial


REFERENCES: dict[str, Callable[[Problem, int], Trial]] = {
    "llfd": llfd,
    "min-table": min_table,
    "min-mig": min_mig,
    "mixed": mixed,
    "mixed-bf": mixed_bf,
    "simple": simple,
}


def representatives(largest: float, resolution: int) -> list[int]:
    """Return the values that stand for all others (HLHE), ascending, from 0."""
    linear = [step * resolution for step in range(1, int(largest // resolution) + 1)]
    exponential = [2**power for power in range(resolution.bit_length() - 1)]
    return [0, *exponential, *linear]


def discretise(values: Sequence[float], resolution: int) -> list[int]:
    """Return phi(x) of each value in turn: the choice that keeps the summed deviation small."""
    steps = representatives(max(values, default=0), resolution)
    chosen: list[int] = []
    deviation = 0.0
    for value in values:
        below = max(step for step in steps if step <= value)
        above = min((step for step in steps if step > value), default=below)
        phi = min(below, above, key=lambda step: (abs(deviation + value - step), step))
        chosen.append(phi)
        deviation += value - phi
    return chosen
