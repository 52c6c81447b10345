"""Spark's transformWithStateInPandas over keys that move between workers with their state.

All states that a processor asks its handle for are carried over, and its timers. A state with a
time to live starts anew where it comes to.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    ListState,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)
from pyspark.sql.types import StringType, StructField, StructType

from unskew.spark.costs import COST, Cost, Meter, with_costs
from unskew.spark.keys import ColumnOrName
from unskew.spark.moving import ARRIVED, HERALD, Held, Transfer
from unskew.spark.stateful import nullable, taken_orders
from unskew.spark.tasks import micro_batch, partition_and_batch
from unskew.spark.whereabouts import MoveLog

EXPECTED = "__unskew_expected"
HERE = object()
"""Stands for whatever the states of a processor hold."""


class Carrier:
    """A handle that remembers the states it gave out, so that they can be carried over."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._values: dict[str, ValueState] = {}
        self._lists: dict[str, ListState] = {}
        self._maps: dict[str, MapState] = {}

    def getValueState(self, stateName: str, *args: Any, **options: Any) -> ValueState:  # noqa: N802, N803
        """Return a state of one value."""
        found = self._handle.getValueState(stateName, *args, **options)
        self._values[stateName] = found
        return found

    def getListState(self, stateName: str, *args: Any, **options: Any) -> ListState:  # noqa: N802, N803
        """Return a state of several values."""
        found = self._handle.getListState(stateName, *args, **options)
        self._lists[stateName] = found
        return found

    def getMapState(self, stateName: str, *args: Any, **options: Any) -> MapState:  # noqa: N802, N803
        """Return a state of values by keys."""
        found = self._handle.getMapState(stateName, *args, **options)
        self._maps[stateName] = found
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to carry."""
        return not any(state.exists() for state in self._states)

    def unload(self, timers: bool) -> bytes:
        """Return all states and timers, and clear them."""
        held: dict[str, Any] = {
            "values": {n: s.get() for n, s in self._values.items() if s.exists()},
            "lists": {n: [*s.get()] for n, s in self._lists.items() if s.exists()},
            "maps": {n: [*s.iterator()] for n, s in self._maps.items() if s.exists()},
            "timers": [*self._handle.listTimers()] if timers else [],
        }
        for state in self._states:
            state.clear()
        for timer in held["timers"]:
            self._handle.deleteTimer(timer)
        return pickle.dumps(held)

    @property
    def _states(self) -> list[ValueState | ListState | MapState]:
        return [*self._values.values(), *self._lists.values(), *self._maps.values()]

    def load(self, data: bytes) -> None:
        """Take in what was unloaded elsewhere."""
        held = pickle.loads(data)
        for name, value in held["values"].items():
            self._values[name].update(value)
        for name, values in held["lists"].items():
            self._lists[name].put(values)
        for name, pairs in held["maps"].items():
            for key, value in pairs:
                self._maps[name].updateValue(key, value)
        for timer in held["timers"]:
            self._handle.registerTimer(timer)


@dataclass
class MovingProcessor(StatefulProcessor):
    """The user's processor, wrapped so that keys can move.

    Parameters
    ----------
    user
        The user's processor.
    output
        The schema of its results.
    time_mode
        The user's.
    log
        Where states are on their way.
    """

    user: StatefulProcessor
    output: StructType
    time_mode: str
    log: MoveLog

    @property
    def times_out(self) -> bool:
        """Whether there are timers, also for states on their way."""
        return self.time_mode.lower() != "none"

    def apply(
        self, rows: DataFrame, keys: Sequence[ColumnOrName], slot: str, mode: str
    ) -> DataFrame:
        """Return the results, with what keys cost in rows of their own, in the column `COST`."""
        out = StructType([*map(nullable, self.output), StructField(COST, StringType())])
        grouped = rows.groupBy(*keys, slot)
        return grouped.transformWithStateInPandas(self, out, mode, self.time_mode)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Let the user's processor ask for its states."""
        self.handle, self.carrier = handle, Carrier(handle)
        self.user.init(cast(StatefulProcessorHandle, self.carrier))
        if self.times_out:
            self.expected = handle.getValueState(EXPECTED, "since bigint, plan_key bigint")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Do what a micro-batch brings to a key at this worker."""
        plan_key, orders, chunks = taken_orders(rows)
        meter = Meter()
        known = orders.since == ARRIVED or not self.carrier.empty
        held = Held(HERE if known and orders.to != HERALD else None, self._since())
        transfer, batch = self._transfer(key[:-1], plan_key), micro_batch()

        def process() -> Iterator[pd.DataFrame]:
            users = self.user.handleInputRows(key[:-1], meter.counted(chunks), timerValues)
            return meter.timed(users)

        def finish() -> str | None:
            if held.expected != ARRIVED:
                self.expected.update((held.expected, plan_key))
                self.handle.registerTimer(self._now(timerValues) + 1)
            elif self.times_out and self.expected.exists():
                self.expected.clear()
            if not meter.matters:
                return None
            worker, _ = partition_and_batch()
            return Cost(meter.records, meter.seconds, 1, worker).text(plan_key)

        results = transfer.step(held, batch, orders, process)
        return with_costs(results, self.output.names, finish)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Take in a state that was announced, or let the user's processor handle its timer."""
        if (since := self._since()) == ARRIVED:
            users = self.user.handleExpiredTimer(key[:-1], timerValues, expiredTimerInfo)
            yield from with_costs(users, self.output.names, lambda: None)
        elif since < micro_batch():
            (_, plan_key) = self.expected.get() or (0, 0)
            self._transfer(key[:-1], plan_key).fetch(since)
            self.expected.clear()
        else:
            self.handle.registerTimer(self._now(timerValues) + 1)

    def close(self) -> None:
        """Close the user's processor."""
        self.user.close()

    def _transfer(self, key: tuple[Any, ...], plan_key: int) -> Transfer:
        worker, batch = partition_and_batch()[0], micro_batch()

        def export(to: int, _: Any) -> None:
            data = None if self.carrier.empty else self.carrier.unload(self.times_out)
            self.log.export(batch, plan_key, key, to, data)

        def fetch(since: int) -> Any:
            data = self.log.fetch(batch, plan_key, key, worker, since)
            if data is not None:
                self.carrier.load(data)
            return HERE

        return Transfer(export, fetch)

    def _since(self) -> int:
        if not (self.times_out and self.expected.exists()):
            return ARRIVED
        (since, _) = self.expected.get() or (ARRIVED, 0)
        return int(since)

    def _now(self, values: TimerValues) -> int:
        if self.time_mode.lower() == "eventtime":
            return max(0, values.getCurrentWatermarkInMs())
        return values.getCurrentProcessingTimeInMs()
