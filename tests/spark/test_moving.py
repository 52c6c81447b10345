"""Keys that move: nothing lost, nothing doubled, order kept, no row waits, whatever the plans."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.murmur import homes
from unskew.plan import Plan
from unskew.routers import TableRouter
from unskew.spark.moving import ARRIVED, HERALD, STAY, Held, Orders, Transfer
from unskew.spark.whereabouts import LostStateError, MoveLog, Order

WORKERS = 4
KEY = 2**63 + 5
HOME = int(homes(np.array([KEY], np.uint64), WORKERS)[0])


class World:
    """The workers of one key over a real log of moves; heralds wake keys that are expected."""

    def __init__(self, root: str, heralds: bool) -> None:
        self.log, self.heralds = MoveLog(root), heralds
        self.held = [Held() for _ in range(WORKERS)]
        self.wanted: dict[int, int] = {}
        self.results: list[tuple[int, int]] = []

    def run(self, batch: int, rows: list[int]) -> None:
        """Run a micro-batch: rows go where the state is, keys that are expected are woken."""
        found, _ = self.log.orders(batch, lambda: self.wanted, WORKERS)
        order = found.get(KEY, Order(KEY, HOME))
        for worker, held in enumerate(self.held):
            if rows and worker == order.worker:
                self.step(worker, batch, Orders(order.to, order.since), rows)
            elif rows and self.heralds and worker == order.to:
                self.step(worker, batch, Orders(HERALD, order.since), [])
            elif held.expected != ARRIVED and held.expected < batch:
                self.step(worker, batch, Orders(), [])

    def step(self, worker: int, batch: int, orders: Orders, rows: list[int]) -> None:
        held = self.held[worker]

        def export(to: int, state: Any) -> None:
            data = None if state is None else pickle.dumps(state)
            self.log.export(batch, KEY, ("k",), to, data)

        def fetch(since: int) -> Any:
            found = self.log.fetch(batch, KEY, ("k",), worker, since)
            return None if found is None else pickle.loads(found)

        def process() -> Iterator[tuple[int, int]]:
            for row in rows:
                held.state = (*(held.state or ()), row)
                yield row, batch

        self.results += Transfer(export, fetch).step(held, batch, orders, process)


steps = st.lists(
    st.tuples(
        st.integers(0, WORKERS - 1) | st.none(),  # a new place
        st.integers(0, 3),  # rows
        st.booleans(),  # the batch is tried twice, with a new plan in between
    ),
    max_size=30,
)


@given(steps=steps, heralds=st.booleans())
@settings(max_examples=200, deadline=None)
def test_nothing_is_lost_or_doubled_and_order_is_kept(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], heralds: bool
) -> None:
    world = World(str(tmp_path_factory.mktemp("moves")), heralds)
    sent: list[int] = []
    for batch, (place, count, twice) in enumerate(steps):
        if place is not None:
            world.wanted = {} if place == HOME else {KEY: place}
        rows = [*range(len(sent), len(sent) + count)]
        sent += [batch] * count
        if twice:
            before = deepcopy((world.held, world.results))
            world.run(batch, rows)  # fails at its end: states and results are gone, files are not
            world.held, world.results = before
            world.wanted = {KEY: batch % WORKERS}
        world.run(batch, rows)
        here = [held.state for held in world.held if held.state is not None]
        assert len(here) <= 1
    assert world.results == [*enumerate(sent)]
    for batch in range(len(steps), len(steps) + 3):  # to where it should be
        world.run(batch, [len(world.results)])
    wanted = world.wanted.get(KEY, HOME)
    assert [held.state is not None for held in world.held] == [n == wanted for n in range(WORKERS)]
    assert world.held[wanted].state == tuple(range(len(sent) + 3))


def test_the_home_of_a_key_is_where_spark_puts_it() -> None:
    keys = np.random.default_rng(1).integers(0, 2**64, 1000, np.uint64)
    for n_workers in (1, 3, 8, 200):
        router = TableRouter.of(Plan((1.0,) * n_workers, fallback="spark"))
        assert np.array_equal(homes(keys, n_workers), router.route(keys))


def test_a_key_without_rows_stays_where_it_is(tmp_path: Path) -> None:
    world = World(str(tmp_path), heralds=False)
    world.run(0, [0])
    for batch, place in enumerate([1, 2, 3, 1], start=1):
        world.wanted = {KEY: place}
        world.run(batch, [])
    assert world.held[HOME].state == (0,)
    world.wanted = {KEY: (HOME + 1) % WORKERS}
    world.run(5, [1])
    assert [held.state for held in world.held] == [None] * WORKERS  # on its way
    world.run(6, [2])
    assert world.held[(HOME + 1) % WORKERS].state == (0, 1, 2)


def test_heralded_states_come_without_rows(tmp_path: Path) -> None:
    world = World(str(tmp_path), heralds=True)
    world.wanted = {KEY: (HOME + 1) % WORKERS}
    world.run(0, [0])
    world.run(1, [])
    assert world.held[(HOME + 1) % WORKERS].state == (0,)


def test_old_files_are_removed_but_not_those_that_are_awaited(tmp_path: Path) -> None:
    world = World(str(tmp_path), heralds=False)
    world.wanted = {KEY: (HOME + 1) % WORKERS}
    world.run(0, [0])
    for batch in range(1, 60):
        world.run(batch, [])
    assert [path.name for path in (tmp_path / "moves").iterdir()] == ["0"]
    world.run(60, [1])
    for batch in range(61, 120):
        world.run(batch, [batch])
    assert [*(tmp_path / "moves").iterdir()] == []
    assert len([*(tmp_path / "whereabouts").iterdir()]) <= 25
    assert world.held[(HOME + 1) % WORKERS].state == (0, 1, *range(61, 120))


def test_orders_stay_those_of_the_first_try(tmp_path: Path) -> None:
    log = MoveLog(str(tmp_path))
    away = (HOME + 1) % WORKERS
    first, _ = log.orders(3, lambda: {KEY: away}, WORKERS)
    assert first == {KEY: Order(KEY, HOME, to=away)}
    assert log.orders(3, lambda: {}, WORKERS)[0] == first
    assert log.orders(4, lambda: {}, WORKERS)[0] == {}
    log.export(4, KEY, ("k",), away, b"state")
    assert log.orders(5, lambda: {}, WORKERS)[0] == {KEY: Order(KEY, away, to=HOME, since=4)}
    assert log.sizes(4)[0] == 1
    assert log.orders(6, lambda: {KEY: away}, WORKERS)[0][KEY].to == STAY


@pytest.mark.parametrize("broken", ["lost", "cut", "whereabouts"])
def test_broken_files_are_told_and_nothing_is_guessed(tmp_path: Path, broken: str) -> None:
    world = World(str(tmp_path), heralds=False)
    world.wanted = {KEY: (HOME + 1) % WORKERS}
    world.run(0, [0])
    world.run(1, [])
    path = tmp_path / "whereabouts" / "1"
    if broken != "whereabouts":
        (path,) = (tmp_path / "moves" / "0").iterdir()
    if broken == "lost":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(LostStateError, match="restore that file, and start the query again"):
        world.run(2, [1])
