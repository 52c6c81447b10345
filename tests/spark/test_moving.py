"""States that move, without Spark: random batches, moves, retries and crashes; and their files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from pyspark.sql.streaming.state import GroupStateTimeout

from spark.moves_model import IDS, WORKERS, World, check, histories
from unskew.murmur import homes
from unskew.plan import Plan
from unskew.routers import TableRouter
from unskew.spark.state import move_log


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("timeouts", [False, True])
@given(history=histories())
@settings(max_examples=75, deadline=None)
def test_histories_end_as_plain_ones(
    tmp_path_factory: pytest.TempPathFactory, history: Any, timeouts: bool, elastic: bool
) -> None:
    root = tmp_path_factory.mktemp("moves")
    check(root, history, timeouts, elastic)
    shutil.rmtree(root)


def objects(root: Path) -> list[str]:
    """Return the objects with states, and the other files under moves."""
    return sorted(str(p.relative_to(root)) for p in (root / "states/moves").rglob("*.*"))


def test_the_home_of_a_key_is_where_spark_puts_it() -> None:
    keys = np.random.default_rng(1).integers(0, 2**64, 1000, np.uint64)
    for n_workers in (1, 3, 8, 200):
        router = TableRouter.of(Plan((1.0,) * n_workers, fallback="spark"))
        assert np.array_equal(homes(keys, n_workers), router.route(keys))


def home(key: int) -> int:
    return int(homes(np.array([IDS[key]]).view(np.uint64), WORKERS)[0])


def test_objects_go_when_their_states_have_come(tmp_path: Path) -> None:
    world = World(tmp_path, GroupStateTimeout.NoTimeout, False)
    world.run(0, {2: ["a"]})
    world.want({IDS[2]: (home(2) + 1) % WORKERS})
    world.run(1, {2: ["a"]})
    assert world.log.sizes(1)[0] == 1
    for batch in range(2, 5):
        world.run(batch, {2: ["a"]})
    sizes = {p.name.split(".")[2] for p in (tmp_path / "states/moves").rglob("*.*")}
    assert sizes == {"0"}  # objects of the last two batches, without states
    assert world.states(5) == {2: (home(2) + 1) % WORKERS}


def test_keys_start_where_a_first_plan_puts_them(tmp_path: Path) -> None:
    world, there = World(tmp_path, GroupStateTimeout.NoTimeout, False), (home(2) + 1) % WORKERS
    world.want({IDS[2]: there})
    world.run(0, {2: ["a"]})
    assert world.log.sizes(0)[0] == 0
    assert world.states(1) == {2: there}
    assert world.run(1, {2: ["s"]}) == [(1, 2, 2, "as")]


def test_a_key_without_rows_keeps_its_state_and_no_others(tmp_path: Path) -> None:
    world = World(tmp_path, GroupStateTimeout.NoTimeout, False)
    away = {
        number: (int(homes(np.array([number]).view(np.uint64), 3)[0]) + 1) % 3 for number in IDS
    }
    world.run(0, {key: ["a"] for key in range(3)})
    world.want(away)
    world.run(1, {key: ["a"] for key in range(4)})
    for batch in range(2, 40):  # key 3 has no more rows
        world.run(batch, {0: ["a"], 1: ["a"], 2: ["a"]})
    (kept,) = [name for name in objects(tmp_path) if ".0.0" not in name]
    assert "carried" in kept or kept.split(".")[2] == "1"
    world.run(40, {3: ["s"]})
    assert world.run(41, {3: ["a"]}) == [(41, 3, 3, "asa")]
    for batch in range(42, 45):
        world.run(batch, {3: ["a"]})
    assert all(name.endswith(".0.0") for name in objects(tmp_path))
    assert len([*(tmp_path / "states/orders").iterdir()]) <= 21


def test_many_changes_are_put_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_log, "MAX_CHANGES", 1)
    rng = np.random.default_rng(3)
    rows = ["a", "s", "gone"]
    history: list[Any] = [
        {
            "plan": {number: int(rng.integers(WORKERS)) for number in IDS},
            "active": None if rng.random() < 0.7 else {int(rng.integers(WORKERS))},
            "rows": {int(key): [str(rng.choice(rows))] for key in rng.permutation(4)[:3]},
            "tries": [],
        }
        for _ in range(30)
    ]
    check(tmp_path, history, timeouts=False, elastic=True)
    assert 1 <= len([*(tmp_path / "states/places").iterdir()]) <= 25


def test_a_new_key_is_born_where_it_belongs(tmp_path: Path) -> None:
    world = World(tmp_path, GroupStateTimeout.NoTimeout, True)
    gone = home(2)
    world.run(0, {0: ["a"]})
    world.log.activate({*range(WORKERS)} - {gone})
    world.run(1, {2: ["a"]})
    assert world.states(2)[2] != gone
