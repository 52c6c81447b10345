"""Spark's transformWithStateInPandas over keys that move between workers with their state.

All states that a processor asks its handle for are carried over, and its timers. A state with a
time to live starts anew where it comes to.
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
from unskew.spark.runtime.tasks import micro_batch, partition_and_batch
from unskew.spark.state.chunks import Rows
from unskew.spark.state.costs import Cost, Meter
from unskew.spark.state.exports import GONE, HERE, MOVED, Note, type_bytes
from unskew.spark.state.operator import KeyOrders
from unskew.spark.state.protocol import ANNOUNCED, STAY
from unskew.spark.state.reports import Reporter
from unskew.spark.state.types import StateType

HIDDEN = "__unskew_facts"
"""The state in which is remembered what rows said of a key, and the timer that wakes it."""
ASLEEP = -1


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

    def deleteIfExists(self, stateName: str) -> None:  # noqa: N802, N803
        """Forget a state."""
        self._handle.deleteIfExists(stateName)
        for known in (self._values, self._lists, self._maps):
            known.pop(stateName, None)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    @property
    def empty(self) -> bool:
        """Whether there is no state to carry."""
        return not any(state.exists() for state in self._states)

    @property
    def kind(self) -> pa.DataType:
        """The type of all states together, as Arrow has it."""
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
        """Return all states, in the form of Arrow, with timers, and clear them."""
        held: dict[str, Any] = {"timers": [*timers]}
        for name, kind in self._types(self._values, "value").items():
            found = self._values[name].get() if self._values[name].exists() else None
            held[f"value {name}"] = None if found is None else kind.packed(found)
        for name, kind in self._types(self._lists, "list").items():
            state = self._lists[name]
            some = [kind.packed(v) for v in state.get()] if state.exists() else None
            held[f"list {name}"] = some
        for name, (key, value) in self._map_types().items():
            pairs = self._maps[name].iterator() if self._maps[name].exists() else None
            held[f"map {name}"] = pairs and [
                {"key": key.packed(k), "value": value.packed(v)} for k, v in pairs
            ]
        for each in self._states:
            each.clear()
        return held

    def load(self, held: dict[str, Any]) -> None:
        """Take in the states that were unloaded elsewhere."""
        for name, kind in self._types(self._values, "value").items():
            if (value := held[f"value {name}"]) is not None:
                self._values[name].update(kind.unpacked(value))
        for name, kind in self._types(self._lists, "list").items():
            if (values := held[f"list {name}"]) is not None:
                self._lists[name].put([kind.unpacked(value) for value in values])
        for name, (key, kind) in self._map_types().items():
            for pair in held[f"map {name}"] or ():
                self._maps[name].updateValue(
                    key.unpacked(pair["key"]), kind.unpacked(pair["value"])
                )

    @property
    def _states(self) -> list[ValueState | ListState | MapState]:
        return [*self._values.values(), *self._lists.values(), *self._maps.values()]

    def _types(self, states: Any, kind: str) -> dict[str, StateType]:
        """Return the types of values or lists; Spark has parsed what the user gave."""
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
        The user's.
    schema
        Of the key.
    reporter
        Takes what tasks report.
    """

    user: StatefulProcessor
    time_mode: str
    schema: StructType
    reporter: Reporter

    @property
    def times_out(self) -> bool:
        """Whether there are timers, also for states on their way."""
        return self.time_mode.lower() != "none"

    def apply(
        self, rows: DataFrame, keys: Sequence[ColumnOrName], slot: str, mode: str
    ) -> DataFrame:
        """Return the results."""
        output, grouped = self.reporter.output, rows.groupBy(*keys, slot)
        return grouped.transformWithStateInPandas(self, output, mode, self.time_mode)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Let the user's processor ask for its states."""
        self.handle, self.carrier = handle, Carrier(handle)
        self.fired: set[tuple[str, int]] = set()
        # Spark calls once for each row of a key that pandas takes for NaN: null, if it is a number.
        self.imported: set[str] = set()
        self.exported: dict[str, dict[str, Any]] = {}
        self.user.init(cast(StatefulProcessorHandle, self.carrier))
        if self.times_out:
            self.hidden = handle.getValueState(HIDDEN, "facts string, wakes bigint")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Do what a micro-batch brings to a key at this worker."""
        orders, _, chunks = Rows.split(rows)
        facts = KeyOrders.read(orders)
        if facts.to == ANNOUNCED:
            self._expect(facts, timerValues)
            return
        known, wakes = self._remembered()
        if wakes != ASLEEP:
            self.handle.deleteTimer(wakes)
        before = bool(facts.key) and self._exists()
        if facts.key in self.exported:
            self._load(self.exported.pop(facts.key))
        elif facts.object and facts.key not in self.imported:
            self._load(self._fetched(facts))
        meter, note = Meter(), None
        users = self.user.handleInputRows(key[:-1], meter.counted(chunks), timerValues)
        yield from meter.timed(users)
        if facts.to != STAY:
            yield from self._fire(key, timerValues, self._timers())
            note = self._export(facts)
        elif facts.key:
            note = self._stays(facts, before)
        if self.times_out:
            self._remember(facts, known, wakes)
        cost = None
        if meter.matters:
            worker = partition_and_batch()[0]
            cost = Cost(meter.records, meter.seconds, 1, worker).text(facts.id)
        self.reporter.report(cost, note)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Take in a state that was announced, or let the user's processor handle its timer."""
        if (repr(tuple(key)), expiredTimerInfo.getExpiryTimeInMs()) in self.fired:
            return  # Spark may have seen it before it was deleted
        facts, wakes = self._remembered()
        if wakes != ASLEEP:
            yield from self._woken(key, timerValues, facts, wakes)
            return
        before = bool(facts.key) and self._exists()
        yield from self.user.handleExpiredTimer(self._row(key), timerValues, expiredTimerInfo)
        if facts.key:
            fired = expiredTimerInfo.getExpiryTimeInMs()
            self.reporter.report(None, self._stays(facts, before, fired))
            if not self._exists(fired):
                self.hidden.clear()

    def _woken(
        self, key: tuple[Any, ...], values: TimerValues, facts: KeyOrders, wakes: int
    ) -> Iterator[pd.DataFrame]:
        """Take in a state that was announced, if it has come."""
        self.hidden.clear()
        self.handle.deleteTimer(wakes)
        orders = self.reporter.log.orders(micro_batch())
        where = orders.record.where(facts.id, facts.key, partition_and_batch()[0])
        if not where:
            return
        arrived = facts._replace(object=where)
        self._load(self._fetched(arrived))
        yield from self._fire(key, values, self._timers())
        self.reporter.report(None, self._stays(arrived, before=False))
        self._remember(facts, KeyOrders(), ASLEEP)

    def close(self) -> None:
        """Close the user's processor."""
        self.user.close()

    def _expect(self, facts: KeyOrders, values: TimerValues) -> None:
        """Have the key woken in the next batch."""
        wakes = self._now(values) + 1
        self.hidden.update((facts.text, wakes))
        self.handle.registerTimer(wakes)

    def _fetched(self, facts: KeyOrders) -> dict[str, Any]:
        """Return a state that was exported for this worker."""
        log, worker = self.reporter.log, partition_and_batch()[0]
        held, _ = log.fetch(facts.object, facts.key, worker, self.carrier.kind)
        self.imported.add(facts.key)
        return cast("dict[str, Any]", held)

    def _load(self, held: dict[str, Any]) -> None:
        """Take in a state, and its timers."""
        self.carrier.load(held)
        for at in held["timers"]:
            self.handle.registerTimer(at)

    def _export(self, facts: KeyOrders) -> Note:
        timers = self._timers()
        if self.carrier.empty and not timers:
            return Note(GONE, facts.id, facts.key, facts.to)
        kind, held = self.carrier.kind, self.carrier.unload(timers)
        for timer in timers:
            self.handle.deleteTimer(timer)
        self.exported[facts.key] = held
        place, size = (MOVED, facts.id, facts.key, facts.to), len(pickle.dumps(held))
        return Note(*place, held, None, type_bytes(kind), size)

    def _stays(self, facts: KeyOrders, before: bool, fired: int | None = None) -> Note | None:
        """Return what to tell of a state that does not leave."""
        place = facts.id, facts.key, partition_and_batch()[0]
        if not self._exists(fired):
            return Note(GONE, *place) if before or facts.object else None
        return Note(HERE, *place) if facts.object or not before else None

    def _fire(
        self, key: tuple[Any, ...], values: TimerValues, timers: Sequence[int]
    ) -> Iterator[pd.DataFrame]:
        """Let the user's processor handle the timers of a key that are due, as Spark would."""
        for at in sorted(timers):
            if at <= self._now(values):
                yield from self.user.handleExpiredTimer(
                    self._row(key), values, ExpiredTimerInfo(at)
                )
                self.fired.add((repr(tuple(key)), at))
                self.handle.deleteTimer(at)

    def _row(self, key: tuple[Any, ...]) -> Row:
        """Return a key as Spark hands it to handlers of timers: with names."""
        return cast(Row, _with_names(key[:-1], self.schema))

    def _exists(self, fired: int | None = None) -> bool:
        """Say whether there is a state or a timer, other than one that fires right now."""
        return not self.carrier.empty or any(at != fired for at in self._timers())

    def _timers(self) -> list[int]:
        return [*self.handle.listTimers()] if self.times_out else []

    def _remembered(self) -> tuple[KeyOrders, int]:
        """Return what is known of a key, and the timer that is to wake it."""
        found = self.hidden.get() if self.times_out and self.hidden.exists() else None
        return (KeyOrders(), ASLEEP) if found is None else (KeyOrders.read(found[0]), int(found[1]))

    def _remember(self, facts: KeyOrders, known: KeyOrders, wakes: int) -> None:
        """Keep what is to be told of a key when a timer of it fires; wake it no more."""
        stays = facts.key and facts.to == STAY and self._exists()
        if stays and (known.text != facts.text or wakes != ASLEEP):
            self.hidden.update((facts.text, ASLEEP))
        elif not stays and self.hidden.exists():
            self.hidden.clear()

    def _now(self, values: TimerValues) -> int:
        if self.time_mode.lower() == "eventtime":
            return max(0, values.getCurrentWatermarkInMs())
        return values.getCurrentProcessingTimeInMs()


def _with_names(value: Any, kind: DataType) -> Any:
    """Return a value of a key that pandas had as Spark itself hands it over."""
    if isinstance(kind, StructType) and value is not None:
        parts = value.values() if isinstance(value, dict) else value
        return Row(*kind.names)(
            *(_with_names(part, field.dataType) for part, field in zip(parts, kind, strict=True))
        )
    if isinstance(value, float) and value != value and not isinstance(kind, FractionalType):
        return None
    return value.item() if isinstance(value, np.generic) else value
