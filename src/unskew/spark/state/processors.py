"""Spark's transformWithStateInPandas for keys that move between workers with their state.

All states that a processor gets from its handle move with the key, and its timers. The time to live
of a state starts again at the new worker.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    ListState,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)
from pyspark.sql.types import DataType, FractionalType, StructType

from unskew.spark.placement.keys import ColumnOrName
from unskew.spark.runtime.tasks import freeze_imports, micro_batch, partition_and_batch
from unskew.spark.state.chunks import Rows
from unskew.spark.state.costs import Cost, Meter
from unskew.spark.state.exports import GONE, HERE, MOVED, StateChange, type_bytes
from unskew.spark.state.operator import KeyOrders
from unskew.spark.state.protocol import ANNOUNCED, STAY
from unskew.spark.state.reports import Reporter
from unskew.spark.state.types import StateType

HIDDEN_STATE = "__unskew_facts"
"""The name of the state that stores the orders of a key, and the timer that wakes it."""
NO_TIMER = -1


class TrackingHandle:
    """A handle that keeps track of the processor's states, so that they can move with a key."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._values: dict[str, ValueState] = {}
        self._lists: dict[str, ListState] = {}
        self._maps: dict[str, MapState] = {}

    def getValueState(self, stateName: str, *args: Any, **options: Any) -> ValueState:  # noqa: N802, N803
        """Return a state of one value."""
        state = self._handle.getValueState(stateName, *args, **options)
        self._values[stateName] = state
        return state

    def getListState(self, stateName: str, *args: Any, **options: Any) -> ListState:  # noqa: N802, N803
        """Return a state of several values."""
        state = self._handle.getListState(stateName, *args, **options)
        self._lists[stateName] = state
        return state

    def getMapState(self, stateName: str, *args: Any, **options: Any) -> MapState:  # noqa: N802, N803
        """Return a state of values by keys."""
        state = self._handle.getMapState(stateName, *args, **options)
        self._maps[stateName] = state
        return state

    def deleteIfExists(self, stateName: str) -> None:  # noqa: N802, N803
        """Delete a state."""
        self._handle.deleteIfExists(stateName)
        for states in (self._values, self._lists, self._maps):
            states.pop(stateName, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    @property
    def empty(self) -> bool:
        """Whether the key has none of the states."""
        return not any(state.exists() for state in self._states)

    @property
    def kind(self) -> pa.DataType:
        """The Arrow type of all states and timers together."""
        values = [(f"value {n}", t.arrow) for n, t in self._types(self._values, "value").items()]
        lists = [
            (f"list {n}", pa.large_list(t.arrow))
            for n, t in self._types(self._lists, "list").items()
        ]
        maps = []
        for name, (key, value) in self._map_types().items():
            pair = pa.struct([("key", key.arrow), ("value", value.arrow)])
            maps.append((f"map {name}", pa.large_list(pair)))
        return pa.struct([*values, *lists, *maps, ("timers", pa.large_list(pa.int64()))])

    def unload(self, timers: Sequence[int]) -> dict[str, Any]:
        """Return all states in Arrow's form, with the timers, and clear the states."""
        packed: dict[str, Any] = {"timers": [*timers]}
        for name, kind in self._types(self._values, "value").items():
            current = self._values[name].get() if self._values[name].exists() else None
            packed[f"value {name}"] = None if current is None else kind.packed(current)
        for name, kind in self._types(self._lists, "list").items():
            state = self._lists[name]
            items = [kind.packed(v) for v in state.get()] if state.exists() else None
            packed[f"list {name}"] = items
        for name, (key, value) in self._map_types().items():
            pairs = self._maps[name].iterator() if self._maps[name].exists() else None
            packed[f"map {name}"] = pairs and [
                {"key": key.packed(k), "value": value.packed(v)} for k, v in pairs
            ]
        for each in self._states:
            each.clear()
        return packed

    def load(self, packed: dict[str, Any]) -> None:
        """Set the states to those that another worker unloaded."""
        for name, kind in self._types(self._values, "value").items():
            if (value := packed[f"value {name}"]) is not None:
                self._values[name].update(kind.unpacked(value))
        for name, kind in self._types(self._lists, "list").items():
            if (values := packed[f"list {name}"]) is not None:
                self._lists[name].put([kind.unpacked(value) for value in values])
        for name, (key, kind) in self._map_types().items():
            for pair in packed[f"map {name}"] or ():
                self._maps[name].updateValue(
                    key.unpacked(pair["key"]), kind.unpacked(pair["value"])
                )

    @property
    def _states(self) -> list[ValueState | ListState | MapState]:
        return [*self._values.values(), *self._lists.values(), *self._maps.values()]

    def _types(self, states: Any, kind: str) -> dict[str, StateType]:
        """Return the types of value or list states, as Spark parsed them."""
        clients = {name: getattr(state, f"_{kind}StateClient") for name, state in states.items()}
        return {name: StateType(client.schema) for name, client in clients.items()}

    def _map_types(self) -> dict[str, tuple[StateType, StateType]]:
        clients = {name: state._mapStateClient for name, state in self._maps.items()}
        return {
            name: (StateType(client.user_key_schema), StateType(client.value_schema))
            for name, client in clients.items()
        }


@dataclass
class MovingProcessor(StatefulProcessor):
    """The user's processor, wrapped so that keys can move.

    Parameters
    ----------
    user
        The user's processor.
    time_mode
        The user's time mode.
    schema
        The schema of the key.
    reporter
        Collects the reports of tasks.
    """

    user: StatefulProcessor
    time_mode: str
    schema: StructType
    reporter: Reporter

    @property
    def times_out(self) -> bool:
        """Whether timers can fire, also for states on their way."""
        return self.time_mode.lower() != "none"

    def apply(
        self, rows: DataFrame, keys: Sequence[ColumnOrName], slot: str, mode: str
    ) -> DataFrame:
        """Return the results of the user's processor."""
        output, grouped = self.reporter.output, rows.groupBy(*keys, slot)
        return grouped.transformWithStateInPandas(self, output, mode, self.time_mode)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Initialise the user's processor with a handle that tracks its states."""
        freeze_imports()
        self.handle, self.tracking = handle, TrackingHandle(handle)
        self.fired: set[tuple[str, int]] = set()
        # Spark calls once for each row of a key that is NaN to pandas: null, if it is a number.
        self.imported: set[str] = set()
        self.exported: dict[str, dict[str, Any]] = {}
        self.user.init(cast(StatefulProcessorHandle, self.tracking))
        if self.times_out:
            self.hidden = handle.getValueState(HIDDEN_STATE, "facts string, wakes bigint")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Process the rows or the announcement of a key in a micro-batch."""
        text, _, chunks = Rows.split(rows)
        orders = KeyOrders.read(text)
        if orders.to == ANNOUNCED:
            self._expect(orders, timerValues)
            return
        stored, wake_at = self._stored_orders()
        if wake_at != NO_TIMER:
            self.handle.deleteTimer(wake_at)
        existed = bool(orders.key) and self._exists()
        if orders.key in self.exported:
            self._load(self.exported.pop(orders.key))
        elif orders.object and orders.key not in self.imported:
            self._load(self._fetch(orders))
        meter, change = Meter(), None
        results = self.user.handleInputRows(key[:-1], meter.counted(chunks), timerValues)
        yield from meter.timed(results)
        if orders.to != STAY:
            yield from self._fire_due(key, timerValues, self._timers())
            change = self._export(orders)
        elif orders.key:
            change = self._local_change(orders, existed)
        if self.times_out:
            self._store_orders(orders, stored, wake_at)
        cost = None
        if meter.worth_reporting:
            worker = partition_and_batch()[0]
            cost = Cost(meter.records, meter.seconds, 1, worker).text(orders.id)
        self.reporter.report(cost, change)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Import a state that was announced, or let the user's processor handle its timer."""
        if (repr(tuple(key)), expiredTimerInfo.getExpiryTimeInMs()) in self.fired:
            return  # Spark may have listed it before it was deleted
        orders, wake_at = self._stored_orders()
        if wake_at != NO_TIMER:
            yield from self._wake(key, timerValues, orders, wake_at)
            return
        existed = bool(orders.key) and self._exists()
        yield from self.user.handleExpiredTimer(self._row(key), timerValues, expiredTimerInfo)
        if orders.key:
            fired = expiredTimerInfo.getExpiryTimeInMs()
            self.reporter.report(None, self._local_change(orders, existed, fired))
            if not self._exists(fired):
                self.hidden.clear()

    def _wake(
        self, key: tuple[Any, ...], values: TimerValues, orders: KeyOrders, wake_at: int
    ) -> Iterator[pd.DataFrame]:
        """Import a state that was announced, if it was exported, and fire its due timers."""
        self.hidden.clear()
        self.handle.deleteTimer(wake_at)
        record = self.reporter.log.orders(micro_batch()).record
        location = record.location(orders.id, orders.key, partition_and_batch()[0])
        if not location:
            return
        arrived = orders._replace(object=location)
        self._load(self._fetch(arrived))
        yield from self._fire_due(key, values, self._timers())
        self.reporter.report(None, self._local_change(arrived, existed=False))
        self._store_orders(orders, KeyOrders(), NO_TIMER)

    def close(self) -> None:
        """Close the user's processor."""
        self.user.close()

    def _expect(self, orders: KeyOrders, values: TimerValues) -> None:
        """Wake the key in the next batch, by a timer."""
        wake_at = self._now(values) + 1
        self.hidden.update((orders.text, wake_at))
        self.handle.registerTimer(wake_at)

    def _fetch(self, orders: KeyOrders) -> dict[str, Any]:
        """Return a state that was exported for this worker."""
        log, worker = self.reporter.log, partition_and_batch()[0]
        packed, _ = log.fetch(orders.object, orders.key, worker, self.tracking.kind)
        self.imported.add(orders.key)
        return cast("dict[str, Any]", packed)

    def _load(self, packed: dict[str, Any]) -> None:
        """Set the states of the key, and register its timers."""
        self.tracking.load(packed)
        for at in packed["timers"]:
            self.handle.registerTimer(at)

    def _export(self, orders: KeyOrders) -> StateChange:
        timers = self._timers()
        if self.tracking.empty and not timers:
            return StateChange(GONE, orders.id, orders.key, orders.to)
        kind, packed = self.tracking.kind, self.tracking.unload(timers)
        for timer in timers:
            self.handle.deleteTimer(timer)
        self.exported[orders.key] = packed
        place, size = (MOVED, orders.id, orders.key, orders.to), len(pickle.dumps(packed))
        return StateChange(*place, packed, None, type_bytes(kind), size)

    def _local_change(
        self, orders: KeyOrders, existed: bool, fired: int | None = None
    ) -> StateChange | None:
        """Return the change of a state that stays here; None if there is none."""
        place = orders.id, orders.key, partition_and_batch()[0]
        if not self._exists(fired):
            return StateChange(GONE, *place) if existed or orders.object else None
        return StateChange(HERE, *place) if orders.object or not existed else None

    def _fire_due(
        self, key: tuple[Any, ...], values: TimerValues, timers: Sequence[int]
    ) -> Iterator[pd.DataFrame]:
        """Let the user's processor handle the due timers of a key, as Spark would."""
        for at in sorted(timers):
            if at <= self._now(values):
                yield from self.user.handleExpiredTimer(
                    self._row(key), values, ExpiredTimerInfo(at)
                )
                self.fired.add((repr(tuple(key)), at))
                self.handle.deleteTimer(at)

    def _row(self, key: tuple[Any, ...]) -> Row:
        """Return a key as Spark passes it to timer handlers: a row with field names."""
        return cast(Row, _with_names(key[:-1], self.schema))

    def _exists(self, fired: int | None = None) -> bool:
        """Return whether the key has a state, or a timer other than the one that fires now."""
        return not self.tracking.empty or any(at != fired for at in self._timers())

    def _timers(self) -> list[int]:
        return [*self.handle.listTimers()] if self.times_out else []

    def _stored_orders(self) -> tuple[KeyOrders, int]:
        """Return the stored orders of a key, and the timer that wakes it."""
        row = self.hidden.get() if self.times_out and self.hidden.exists() else None
        return (KeyOrders(), NO_TIMER) if row is None else (KeyOrders.read(row[0]), int(row[1]))

    def _store_orders(self, orders: KeyOrders, stored: KeyOrders, wake_at: int) -> None:
        """Store the orders of a key for when its timers fire, without a timer that wakes it."""
        stays = orders.key and orders.to == STAY and self._exists()
        if stays and (stored.text != orders.text or wake_at != NO_TIMER):
            self.hidden.update((orders.text, NO_TIMER))
        elif not stays and self.hidden.exists():
            self.hidden.clear()

    def _now(self, values: TimerValues) -> int:
        if self.time_mode.lower() == "eventtime":
            return max(0, values.getCurrentWatermarkInMs())
        return values.getCurrentProcessingTimeInMs()


def _with_names(value: Any, kind: DataType) -> Any:
    """Return a key's value that comes from pandas in the form in which Spark passes it."""
    if isinstance(kind, StructType) and value is not None:
        parts = value.values() if isinstance(value, dict) else value
        return Row(*kind.names)(
            *(_with_names(part, field.dataType) for part, field in zip(parts, kind, strict=True))
        )
    if isinstance(value, float) and value != value and not isinstance(kind, FractionalType):
        return None
    return value.item() if isinstance(value, np.generic) else value
