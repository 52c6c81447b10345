"""Waterline plans for Spark: small tables, quiet under noise, close behind drift; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.murmur import homes
from unskew.spark.control.hot_keys import KeyFrequencies, WaterlineStrategy
from unskew.spark.control.observed import SAMPLED_SHARE, BatchObservation
from unskew.spark.control.planning import KeyHistory
from unskew.spark.control.schemes import read_scheme
from unskew.spark.plans.split_plan import SplitPlan

Floats = NDArray[np.float64]
N, KEYS, BATCH = 16, 2000, 200_000


def shares(z: float) -> Floats:
    law: Floats = np.arange(1.0, KEYS + 1) ** -z
    return np.asarray(law / law.sum())


@dataclass
class Driver:
    """A stream of batches with given shares, of which a sample is observed, and its plans."""

    strategy: WaterlineStrategy
    seed: int = 1
    plan: SplitPlan = field(default_factory=lambda: SplitPlan.empty(N))
    heights: list[float] = field(default_factory=list)
    changes: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.keys = self.rng.integers(0, 2**64, KEYS, np.uint64)
        self.homes = homes(self.keys, N)
        self.history = KeyHistory(N, decay=0.5)
        self.speeds = np.array(self.strategy.capacities or [1.0] * N)

    def exact(self, share: Floats) -> KeyFrequencies:
        return KeyFrequencies(
            self.keys, share, 1.0, np.bincount(self.homes, share, minlength=N).astype(np.float64)
        )

    def height(self, share: Floats) -> float:
        """Return the largest load under the plan over the mean, both for their capacities."""
        keys, parts = np.unique(self.plan.keys, return_counts=True)
        order = np.argsort(self.keys)
        planned = order[np.searchsorted(self.keys[order], keys)]
        alone = share.copy()
        alone[planned] = 0.0
        loads = np.bincount(self.homes, alone, minlength=N)
        loads += np.bincount(self.plan.workers, np.repeat(share[planned] / parts, parts), N)
        return float((loads / self.speeds).max() / (loads.sum() / self.speeds.sum()))

    def run(self, batches: int, share: Callable[[int], Floats], records: int = BATCH) -> None:
        for number in range(batches):
            self.heights.append(self.height(share(number)))
            n_sampled = round(records * SAMPLED_SHARE)
            seen = self.rng.multinomial(n_sampled, share(number)) / SAMPLED_SHARE
            by_home = np.bincount(self.homes, seen, minlength=N).astype(np.float64)
            top = np.argsort(-seen)[: 5 * N]
            hot = {int(self.keys[i]): float(seen[i]) for i in top if seen[i]}
            self.history.add(BatchObservation(records, hot, by_home, by_home, {}))
            plan = self.strategy.plan(self.history.measured(), self.plan)
            self.changes += plan is not self.plan
            self.plan = plan

    def extra(self) -> int:
        pairs = {*zip(self.plan.keys.tolist(), self.plan.workers.tolist(), strict=True)}
        return len(pairs) - len({key for key, _ in pairs})


@pytest.mark.parametrize("z", [0.8, 1.2, 2.0])
def test_plans_of_exact_shares_balance_with_few_pairs(z: float) -> None:
    driver = Driver(WaterlineStrategy(N, deviations=0.0))
    measured = driver.exact(1e6 * shares(z))
    driver.plan = driver.strategy.plan(measured, driver.plan)
    assert driver.height(shares(z)) <= 1.03
    assert driver.extra() <= N - 1
    assert (driver.plan.version, driver.plan.scheme) == (1, "waterline")
    assert driver.strategy.plan(measured, driver.plan) is driver.plan
    # Of keys at home nothing is said, and no key is cut into more parts than it needs.
    whole, workers = driver.plan.whole()
    assert (workers != homes(whole, N)).all()
    assert len(driver.plan.keys) <= 16 * (2 * N + len(whole))


@pytest.mark.parametrize("z", [0.8, 1.2, 2.0])
@pytest.mark.parametrize("records", [BATCH // 10, BATCH])
def test_a_stationary_stream_changes_the_plan_a_few_times(z: float, records: int) -> None:
    driver, law = Driver(WaterlineStrategy(N)), shares(z)
    driver.run(500, lambda _: law, records)
    assert 1 <= driver.changes <= 6
    assert driver.heights[0] > 1.5
    # Within the noise of what was measured.
    assert max(driver.heights[20:]) < (1.15 if records < BATCH else 1.08)
    assert driver.extra() <= N - 1


@pytest.mark.parametrize("z", [0.8, 1.2, 2.0])
def test_slow_drift_is_followed(z: float) -> None:
    def drifting(number: int) -> Floats:
        share = shares(z)
        share[5] *= 1.01**number
        return np.asarray(share / share.sum())

    driver = Driver(WaterlineStrategy(N))
    driver.run(300, drifting)
    assert drifting(299)[5] > 4 * drifting(0)[5]
    assert max(driver.heights[5:]) < 1.1
    assert driver.changes <= 60


def test_a_new_hot_key_is_split_at_once() -> None:
    def turned(number: int) -> Floats:
        return shares(1.4)[::-1] if number >= 20 else shares(1.4)

    driver = Driver(WaterlineStrategy(N))
    driver.run(30, turned)
    assert driver.heights[20] > 3
    assert max(driver.heights[24:]) < 1.15
    assert driver.extra() <= 2 * N


def test_capacities_are_respected() -> None:
    driver = Driver(WaterlineStrategy(N, capacities=[1.0] * 8 + [3.0] * 8))
    driver.run(50, lambda _: shares(1.2))
    assert driver.heights[0] > 3
    assert max(driver.heights[5:]) < 1.1


def test_without_records_nothing_is_planned() -> None:
    empty = KeyFrequencies(np.empty(0, np.uint64), np.empty(0), 0.0, np.zeros(N))
    plan = SplitPlan.empty(N)
    assert WaterlineStrategy(N).plan(empty, plan) is plan


def test_the_scheme_plans_by_it() -> None:
    scheme = read_scheme("waterline")
    assert scheme.can_be_planned
    assert scheme.can_be_online
    assert not scheme.keeps_keys_whole
    assert scheme.strategy(4) == WaterlineStrategy(4)
    assert scheme.with_capacities([1.0, 2.0], planned=True) is scheme
    assert scheme.strategy(2, [1.0, 2.0]) == WaterlineStrategy(2, [1.0, 2.0])
    for capacities, planned in (([1.0, 2.0], False), ("measured", True)):
        with pytest.raises(ValueError, match=r"^capacities are for planners like 'mixed'"):
            scheme.with_capacities(capacities, planned)
