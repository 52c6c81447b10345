"""Planning for keys that stay whole, by their costs and for workers of different speeds."""

from __future__ import annotations

import pickle
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.murmur import homes
from unskew.planners import Mixed
from unskew.spark import Balancer
from unskew.spark.control.moves import KeyCosts, MoveController
from unskew.spark.control.observed import BatchObservation
from unskew.spark.control.planning import KeyHistory
from unskew.spark.control.schemes import MEASURED
from unskew.spark.plans.split_plan import PlanFolder
from unskew.spark.runtime.places import Place
from unskew.spark.state.costs import Cost, Meter
from unskew.spark.state.exports import HERE, MOVED, StateChange
from unskew.spark.state.move_log import MoveLog
from unskew.spark.state.reports import KeyReport, ReportFile

N = 4
KEYS = np.random.default_rng(3).integers(0, 2**63, 200, np.uint64)
HOMES = dict(zip(KEYS.tolist(), homes(KEYS, N).tolist(), strict=True))


def observed(costs: dict[int, Cost], number: int = 0) -> BatchObservation:
    """Return a batch in which each key has ten records."""
    at_home = np.array([10.0 * [*HOMES.values()].count(worker) for worker in range(N)])
    hot = dict.fromkeys(HOMES, 10.0)
    return BatchObservation(10 * len(KEYS), hot, at_home, at_home, {}, number, costs)


def moving(folder: Path, capacities: list[float] | str | None = None) -> MoveController:
    log = MoveLog(Place(str(folder), str(folder), "owner"), N)
    plans = PlanFolder(str(folder / "plans"))
    return MoveController(Mixed(theta_max=0.05), plans, log, KeyHistory(N, 0.5), capacities)


def places(controller: MoveController) -> dict[int, int]:
    """Return the workers of keys under the newest plan."""
    entries = zip(
        controller.current.keys.tolist(), controller.current.workers.tolist(), strict=True
    )
    return HOMES | dict(entries)


def loads(controller: MoveController, price: dict[int, float]) -> NDArray[np.float64]:
    found = places(controller)
    done = np.bincount([found[key] for key in price], [*price.values()], minlength=N)
    return done.astype(np.float64)


def test_keys_are_weighed_by_seconds(tmp_path: Path) -> None:
    price = {key: 1.0 if home == 0 else 0.2 for key, home in HOMES.items()}
    controller = moving(tmp_path)
    controller.learn(observed({key: Cost(10, price[key], 100, HOMES[key]) for key in HOMES}))
    done = loads(controller, price)
    assert done.max() <= 1.06 * done.mean()
    assert controller.current.version == 1
    saved = PlanFolder(str(tmp_path / "plans")).latest()
    assert saved is not None
    assert saved.same_pairs(controller.current)  # what the next batch reads


@pytest.mark.parametrize("capacities", [[0.5, 0.5, 1.0, 1.0], MEASURED])
def test_slow_workers_get_less(tmp_path: Path, capacities: list[float] | str) -> None:
    speed, controller = np.array([0.5, 0.5, 1.0, 1.0]), moving(tmp_path, capacities)
    for number in range(4):
        place = places(controller)
        costs = {key: Cost(10, 0.1 / speed[place[key]], 100, place[key]) for key in place}
        controller.learn(observed(costs, number))
    took = loads(controller, dict.fromkeys(HOMES, 1.0)) / speed
    assert took.max() <= 1.08 * took.mean()


def test_state_is_weighed_by_bytes() -> None:
    key_costs = KeyCosts(0.5, np.ones(N))
    key_costs.add({5: Cost(10, 1.0, 1000, 0), 6: Cost(10, 1.0, 10, 0)}, {5, 6})
    history = KeyHistory(N, 0.5)
    history.add(BatchObservation(30, {5: 10.0, 6: 10.0, 7: 10.0}, np.ones(N), np.ones(N), {}))
    found = key_costs.statistics(history.measured())
    sizes = dict(zip(found.keys.tolist(), found.state_bytes.tolist(), strict=True))
    assert sizes == {5: 1000.0, 6: 10.0, 7: 505.0}
    key_costs.add({}, {6})
    assert [*key_costs.spent] == [6]


def test_reports_are_appended_by_one_process_and_taken_by_another(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    assert ReportFile(path).take() == []
    cost, state = Cost(3, 0.5, 9, 1).text(7), {"0": Decimal("1.50"), "1": [b"x", None]}
    moved = StateChange(MOVED, 7, "{'a'}", 2, state, 5, b"type", 9)
    here = StateChange(HERE, 8, "{'b'}", 1)
    written = [KeyReport(cost), KeyReport(change=moved), KeyReport(cost, here)]
    file = ReportFile(path)
    for report in written:
        file.append(report)
    file.close()
    assert path.stat().st_mode & 0o077 == 0
    assert ReportFile(path).take() == written
    assert not path.exists()


def test_reports_cannot_have_code_run(tmp_path: Path) -> None:
    path = tmp_path / "reports"
    path.write_bytes(pickle.dumps((print, None)))
    with pytest.raises(pickle.UnpicklingError, match="not a plain value"):
        ReportFile(path).take()


def test_a_meter_counts_what_a_function_is_given() -> None:
    meter = Meter()
    assert [*meter.timed(map(len, meter.counted([[1, 2], [3]])))] == [2, 1]
    assert meter.records == 3
    assert meter.seconds > 0


@pytest.mark.parametrize(
    ("capacities", "scheme", "message"),
    [
        ([1.0, 0.0], "mixed", "capacities must be above 0 and finite"),
        ("guessed", "mixed", "capacities must be numbers or 'measured', got 'guessed'"),
        (
            [1.0, 1.0],
            "w-choices",
            "'fish' and 'consistent' in routing='online', not for w-choices",
        ),
    ],
)
def test_bad_capacities(capacities: list[float] | str, scheme: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Balancer(scheme, capacities=capacities)
