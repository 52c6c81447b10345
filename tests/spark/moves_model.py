"""States that move, without Spark: random batches, moves, retries, crashes and lost files.

The operator itself, its calls and its log run here; only Spark is simulated: its stores, its
shuffle by the orders of a batch, and its micro-batches. Beside it the same function runs over a
plain dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import LongType, Row, StringType, StructType

from unskew.spark.placement.names import Names
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan
from unskew.spark.runtime.places import Place
from unskew.spark.state import move_log
from unskew.spark.state.exports import StateChange
from unskew.spark.state.move_log import MoveLog
from unskew.spark.state.operator import EXPECTED, KeyOrders, Operator
from unskew.spark.state.protocol import ANNOUNCED, STAY
from unskew.spark.state.reports import Reporter

WORKERS = 3
IDS = [5, 5, -(2**40) + 7, 2**50 + 3]
"""The hashes of the keys; two of them are equal."""
STATE = StructType().add("n", LongType()).add("rows", StringType())

Results = list[tuple[Any, ...]]


def fold(
    key: tuple[Any, ...], rows: Iterator[str], state: Any, times_out: bool
) -> Iterator[tuple[Any, ...]]:
    """Fold rows in order; their values also select what happens to the state."""
    value = state.getOption
    n, text = value or (0, "")
    if state.hasTimedOut:
        yield *key, n, f"{text} timed out"
        if "s" not in text:  # otherwise it does not change
            state.remove()
        return
    given = [*rows]
    if "look" in given:  # and change nothing
        yield *key, n, text
        return
    for row in given:
        n, text = (0, "") if row == "gone" else (n + 1, text + row)
    yield *key, n, text
    if n:
        state.update((n, text))
    elif value is not None:
        state.remove()
    if times_out and given[-1] in ("soon", "later"):  # in the next batch, or in the one after
        state.setTimeoutDuration(5 if given[-1] == "soon" else 15)


Store = dict[int, tuple[Any, int]]
"""Spark's state store: the values of keys, and when they time out."""


def group(held: tuple[Any, int] | None, now: int, timed_out: bool, timeout: str) -> GroupState:
    """Return the state of a key as Spark passes it to functions."""
    value = held[0] if held else None
    return GroupState(
        optionalValue=None if value is None else Row(*value),  # type: ignore[arg-type]
        batchProcessingTimeMs=now,
        eventTimeWatermarkMs=-1,
        timeoutConf=timeout,
        hasTimedOut=timed_out,
        watermarkPresent=False,
        defined=value is not None,
        updated=False,
        removed=False,
        timeoutTimestamp=-1,  # even if it has one
        keyAsUnsafe=b"",
        valueSchema=STATE,
    )


def put(store: Store, key: int, state: GroupState) -> None:
    """Store the state of a key as Spark does, which ignores a state without changes."""
    at = state._timeout_timestamp
    if not (state._updated or state._removed or at != -1):
        return
    if state.exists or at != -1:
        store[key] = (tuple(state.get) if state.exists else None, at)
    else:
        store.pop(key, None)


@dataclass
class World:
    """The workers of a query over a real log, and a plain query."""

    root: Path
    timeout: str
    elastic: bool
    stores: list[Store] = field(default_factory=lambda: [{} for _ in range(WORKERS)])
    plain: Store = field(default_factory=dict)
    version: int = 0

    def __post_init__(self) -> None:
        place = Place(str(self.root / "states"), str(self.root), "owner")
        self.log = MoveLog(place, WORKERS, self.elastic)
        reporter = Reporter(Names(), STATE, self.log)
        self.fold: Any = partial(fold, times_out=self.timeout != GroupStateTimeout.NoTimeout)
        self.operator = Operator(self.fold, STATE, self.timeout, reporter)
        if self.elastic:
            self.log.activate(range(WORKERS))

    def want(self, place: dict[int, int]) -> None:
        """Make a plan."""
        self.version += 1
        keys = np.array(sorted({*place}), np.int64).view(np.uint64)
        order = np.argsort(keys)
        workers = np.array([place[key] for key in sorted({*place})], np.int32)
        plan = SplitPlan(WORKERS, keys[order], workers[order], self.version, "model")
        PlanFolder(self.log.place.plans).save(plan)

    def run(self, batch: int, rows: dict[int, list[str]], tasks: int = WORKERS) -> Results:
        """Run a micro-batch, or only some of its tasks, after which the driver dies."""
        move_log._ORDERS.clear()
        move_log._BLOCKS.clear()
        now, found = 10 * (batch + 1), []
        sent = self._sent(batch, rows)
        for worker, store in enumerate(self.stores[:tasks]):
            changes: list[StateChange] = []
            called = [(key, orders, False) for key, orders in sent.get(worker, {}).items()]
            for key, orders, timed_out in called:
                found += self._call(store, worker, batch, key, orders, rows, timed_out, changes)
            if self.timeout != GroupStateTimeout.NoTimeout:
                for key, (_, at) in sorted(store.items()):
                    if at != -1 and at < now:
                        found += self._call(store, worker, batch, key, None, rows, True, changes)
            self.log.write_object(batch, worker, changes)
        return found

    def _call(
        self,
        store: Store,
        worker: int,
        batch: int,
        key: int,
        orders: KeyOrders | None,
        rows: dict[int, list[str]],
        timed_out: bool,
        changes: list[StateChange],
    ) -> Results:
        state = group(store.get(key), 10 * (batch + 1), timed_out, self.timeout)
        call = self.operator.call((key,), state, orders, worker, batch)
        given = iter([] if timed_out else rows[key])
        found = [(batch, *row) for row in call.results(given, lambda: iter(()))]
        if (change := call.finish().change) is not None:
            changes.append(change)
        put(store, key, state)
        return found

    def _sent(self, batch: int, rows: dict[int, list[str]]) -> dict[int, dict[int, KeyOrders]]:
        """Return the keys and orders that a query sends to each worker; announcements last."""
        orders = self.log.orders(batch)
        by_id = {row["id"]: row for row in orders.by_id().to_pylist()}
        sent: dict[int, dict[int, KeyOrders]] = {}
        for key in rows:
            number, text = IDS[key], f"k{key}"
            row = by_id.get(number)
            told = self.elastic or row is not None
            mine = next((k for k in (row or {}).get("known", ()) if k["key"] == text), row)
            if mine is None:
                worker = int(orders.owners.of(np.array([number]))[0])
                mine = {"target": worker << 32, "to": STAY, "announced": None}
            own = KeyOrders(number, mine["to"], mine.get("object") or "", text if told else "")
            sent.setdefault(mine["target"] >> 32, {})[key] = own
            if mine["announced"] is not None and self.operator.times_out:
                announcement = own._replace(to=ANNOUNCED, object="")
                sent.setdefault(mine["announced"] >> 32, {})[key] = announcement
        return sent

    def run_plain(self, batch: int, rows: dict[int, list[str]]) -> Results:
        """Run a micro-batch of the plain query."""
        now, found = 10 * (batch + 1), []
        for key in rows:
            state = group(self.plain.get(key), now, False, self.timeout)
            found += [(batch, *row) for row in self.fold((key,), iter(rows[key]), state)]
            put(self.plain, key, state)
        for key, (_, at) in sorted(self.plain.items()) if self.operator.times_out else ():
            if at != -1 and at < now:
                state = group(self.plain[key], now, True, self.timeout)
                found += [(batch, *row) for row in self.fold((key,), iter(()), state)]
                put(self.plain, key, state)
        return found

    def states(self, batch: int) -> dict[int, Any]:
        """Return where the state of each key is: on a worker or in transit (law 1)."""
        found: dict[int, Any] = {}
        for worker, store in enumerate(self.stores):
            for key, (value, _) in store.items():
                if self.operator.times_out and value[-3] == EXPECTED:
                    continue
                assert key not in found, f"two states of key {key}"
                found[key] = worker
        for number, text in self.log.orders(batch).record.in_transit:
            key = int(text[1:])
            assert IDS[key] == number
            assert key not in found, f"a state of key {key} is on its way, and another is here"
            found[key] = "on its way"
        return found


ROW = st.sampled_from(["a", "s", "gone", "soon", "later", "look"])


@st.composite
def histories(draw: st.DrawFn) -> Any:
    """Return batches: the plan before it, the active workers, the rows, and the attempts."""
    step = st.fixed_dictionaries(
        {
            "plan": st.none() | st.dictionaries(st.sampled_from(IDS), st.integers(0, WORKERS - 1)),
            "active": st.none() | st.sets(st.integers(0, WORKERS - 1), min_size=1),
            "rows": st.dictionaries(st.integers(0, 3), st.lists(ROW, min_size=1, max_size=3)),
            "tries": st.lists(st.integers(0, WORKERS), max_size=2),
        }
    )
    return draw(st.lists(step, min_size=1, max_size=12))


def check(root: Path, history: Any, timeouts: bool, elastic: bool) -> None:
    """Run a history, and compare it with the plain query after each batch."""
    kind = GroupStateTimeout.ProcessingTimeTimeout if timeouts else GroupStateTimeout.NoTimeout
    world = World(root, kind, elastic)
    if history[0]["plan"] is not None:  # a plan made before the query starts
        world.want(history[0]["plan"])
    for batch, step in enumerate(history):
        before = deepcopy(world.stores)
        for tasks in (*step["tries"], WORKERS):
            world.stores = deepcopy(before)
            results = world.run(batch, step["rows"], tasks)
            # Plans and workers may change at any time, also between attempts.
            if step["plan"] is not None:
                world.want(step["plan"])
            if step["active"] is not None and elastic:
                world.log.activate(step["active"])
        assert sorted(results) == sorted(world.run_plain(batch, step["rows"]))
        (root / "commits").mkdir(exist_ok=True)
        (root / "commits" / str(batch)).touch()
    held = world.states(len(history))
    assert held.keys() == world.plain.keys()
