"""Spark's applyInPandasWithState for keys that move between workers with their state."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from unskew.spark.placement.keys import ColumnOrName
from unskew.spark.placement.names import Names
from unskew.spark.runtime.tasks import freeze_imports, micro_batch, partition_and_batch
from unskew.spark.state.chunks import Rows, user_columns
from unskew.spark.state.costs import Cost, Meter
from unskew.spark.state.exports import GONE, HERE, MOVED, StateChange, type_bytes
from unskew.spark.state.key_state import KeyState
from unskew.spark.state.protocol import ANNOUNCED, STAY
from unskew.spark.state.reports import KeyReport, Reporter, nullable
from unskew.spark.state.types import StateType, arrow_type

EXPECTED, TIMER = 1, 2
"""Rows of Spark's store without a state: one that is announced; a timeout alone."""

Function = Callable[[Any, Iterator[pd.DataFrame], Any], Iterable[pd.DataFrame]]


class KeyOrders(NamedTuple):
    """The orders of a batch for one key; all its rows carry the same.

    Parameters
    ----------
    id, key
        The key's id in plans, and its text; the text is empty if its state needs no report.
    to
        The worker that its state should go to, `STAY`, or `ANNOUNCED`: it will arrive here.
    object
        The location of its state, if that was exported for this worker.
    """

    id: int = 0
    to: int = STAY
    object: str = ""
    key: str = ""

    @classmethod
    def read(cls, text: str) -> KeyOrders:
        """Return the orders that a row carries.

        Examples
        --------
        >>> KeyOrders.read("7,-1,,{'a,b'}")
        KeyOrders(id=7, to=-1, object='', key="{'a,b'}")
        """
        number, to, location, key = text.split(",", 3)
        return cls(int(number), int(to), location, key)

    @property
    def text(self) -> str:
        """The id and the text of the key as orders to stay, to be stored with its state."""
        return f"{self.id},{STAY},,{self.key}"


@dataclass
class LocalState:
    """The row of a key in Spark's store at a worker.

    Parameters
    ----------
    value
        The state of the key.
    kind
        0, `EXPECTED` or `TIMER`.
    orders
        The orders that were stored with the state.
    times_out_at
        When the key times out, which Spark's API does not report.
    """

    value: tuple[Any, ...] | None = None
    kind: int = 0
    orders: KeyOrders | None = None
    times_out_at: int | None = None

    @property
    def exists(self) -> bool:
        """Whether the key has a state or a timeout."""
        return self.value is not None or self.kind == TIMER


@dataclass(frozen=True)
class Operator:
    """The user's function, wrapped so that keys can move.

    Parameters
    ----------
    function, state, timeout
        The user's arguments, as for Spark's applyInPandasWithState.
    reporter
        Collects the reports of tasks.
    """

    function: Function
    state: StructType
    timeout: str
    reporter: Reporter

    @property
    def times_out(self) -> bool:
        """Whether states can time out, also while they are on their way."""
        return self.timeout != GroupStateTimeout.NoTimeout

    @cached_property
    def state_type(self) -> StateType:
        """The type of the state."""
        return StateType(StructType([*map(nullable, self.state)]))

    def apply(
        self, rows: DataFrame, keys: Sequence[ColumnOrName], slot: str, mode: str
    ) -> DataFrame:
        """Return the results of the user's function."""
        stored = StructType([*map(nullable, self.state)])
        arrow_type(self.state)  # refuses types that cannot move
        if self.times_out:
            names = Names.of(self.state.names)
            stored.add(names("kind"), IntegerType()).add(names("facts"), StringType())
            stored.add(names("times_out_at"), LongType())
        output, grouped = self.reporter.output, rows.groupBy(*keys, slot)
        return grouped.applyInPandasWithState(self.run, output, stored, mode, self.timeout)

    def run(
        self, grouping: tuple[Any, ...], chunks: Iterator[pd.DataFrame], group: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Process the rows, the timeout or the announcement of a key in a micro-batch."""
        freeze_imports()
        key, worker, batch = grouping[:-1], partition_and_batch()[0], micro_batch()
        if group.hasTimedOut:
            call, frames = self.call(key, group, None, worker, batch), user_columns(chunks)
            yield from call.results(frames, lambda: frames)
        else:
            rows = Rows.split(chunks)
            call = self.call(key, group, KeyOrders.read(rows.orders), worker, batch)
            yield from call.results(rows.chunks, rows.empty)
        self.reporter.report(*call.finish())

    def call(
        self,
        key: tuple[Any, ...],
        group: GroupState,
        orders: KeyOrders | None,
        worker: int,
        batch: int,
    ) -> Call:
        """Return a call for a key with the orders of its rows, or for one that has timed out."""
        local = self._local_state(group)
        if orders is None:
            orders = local.orders or KeyOrders()
            if local.kind == EXPECTED:
                record = self.reporter.log.orders(batch).record
                orders = orders._replace(object=record.location(orders.id, orders.key, worker))
        return Call(self, key, group, local, orders, worker)

    def _local_state(self, group: GroupState) -> LocalState:
        if not group.exists:
            return LocalState()
        if not self.times_out:
            return LocalState(group.get)
        *value, kind, text, at = group.get
        orders = None if text is None else KeyOrders.read(text)
        return LocalState(None if kind else tuple(value), kind or 0, orders, at)


@dataclass
class Call:
    """One call for a key: with its rows, for its timeout, or for an announcement of its state.

    Parameters
    ----------
    operator
        The operator that is called.
    key, group, local
        The key, Spark's handle of its state, and its row in Spark's store.
    orders, worker
        The orders for the key, and the worker that runs the call.
    """

    operator: Operator
    key: tuple[Any, ...]
    group: GroupState
    local: LocalState
    orders: KeyOrders
    worker: int
    meter: Meter = field(default_factory=Meter)
    imported: bool = False
    touched: bool = False
    times_out_at: int | None = None

    def __post_init__(self) -> None:
        self.key_state = KeyState(self.local.value, False, self.group, self.operator.timeout)

    def results(
        self, rows: Iterator[pd.DataFrame], no_rows: Callable[[], Iterator[pd.DataFrame]]
    ) -> Iterator[pd.DataFrame]:
        """Return the results of the user's function, called for rows and for a due timeout."""
        if self.orders.to == ANNOUNCED:
            return
        self.times_out_at = self.local.times_out_at
        if self.orders.object:
            self._import()
        if self.group.hasTimedOut:
            if self.local.kind != EXPECTED or self._due:
                yield from self._call(rows, timed_out=True)
            return
        yield from self._call(rows, timed_out=False)
        # Spark would do this after all rows, if the key had rows and kept its old timeout.
        if self._due and (self.imported or self.orders.to != STAY):
            yield from self._call(no_rows(), timed_out=True)

    def _call(self, rows: Iterator[pd.DataFrame], timed_out: bool) -> Iterator[pd.DataFrame]:
        """Call the function; the timeout is kept if the function does not touch the state."""
        state = self.key_state
        state.hasTimedOut, state.touched, state.times_out_at = timed_out, False, None
        yield from self.meter.timed(
            self.operator.function(self.key, self.meter.counted(rows), state)
        )
        if state.touched:
            self.touched, self.times_out_at = True, state.times_out_at

    def finish(self) -> KeyReport:
        """Store or export the state, and return the report of the key."""
        if self.orders.to == ANNOUNCED:
            if not self.local.exists:
                self._expect()
            return KeyReport()
        change = self._change()
        if change is None or change.kind != MOVED:
            self._store()
        else:
            self.group.remove()
        return KeyReport(self._cost(), change)

    @property
    def _exists(self) -> bool:
        return self.key_state.value is not None or self.times_out_at is not None

    @property
    def _due(self) -> bool:
        at = self.times_out_at
        if at is None:
            return False
        if self.operator.timeout == GroupStateTimeout.EventTimeTimeout:
            return at < self.group.getCurrentWatermarkMs()
        return at < self.group.getCurrentProcessingTimeMs()

    def _import(self) -> None:
        kind, log = self.operator.state_type, self.operator.reporter.log
        packed, at = log.fetch(self.orders.object, self.orders.key, self.worker, kind.arrow)
        self.key_state.value = None if packed is None else kind.unpacked(packed)
        self.times_out_at, self.imported = at, True

    def _change(self) -> StateChange | None:
        """Return the change of the state to report; None if there is none."""
        number, to, _, key = self.orders
        if not key:
            return None
        existed = self.local.exists or self.imported
        if to == STAY:
            if not self._exists:
                return StateChange(GONE, number, key, self.worker) if existed else None
            is_new = self.imported or not self.local.exists
            return StateChange(HERE, number, key, self.worker) if is_new else None
        if not self._exists:
            return StateChange(GONE, number, key, to)
        kind, value = self.operator.state_type, self.key_state.value
        packed = None if value is None else kind.packed(value)
        at = self.times_out_at
        return StateChange(MOVED, number, key, to, packed, at, type_bytes(kind.arrow), self._size)

    @property
    def _size(self) -> int:
        return len(pickle.dumps((self.key_state.value, self.times_out_at)))

    def _cost(self) -> str | None:
        if not self.meter.worth_reporting:
            return None
        cost = Cost(self.meter.records, self.meter.seconds, self._size, self.worker)
        return cost.text(self.orders.id)

    def _expect(self) -> None:
        """Wake the key in the next batch by a timeout; by event time, when the watermark moves."""
        nulls = [None] * len(self.operator.state)
        self.group.update((*nulls, EXPECTED, self.orders.text, None))
        self._set_timeout(0)

    def _store(self) -> None:
        value, at, group = self.key_state.value, self.times_out_at, self.group
        if not (self.touched or self.imported or self.local.kind == EXPECTED):
            return  # as Spark does
        text = self.orders.text if self.orders.key else None
        if not self._exists:
            group.remove()
        elif not self.operator.times_out:
            assert value is not None
            group.update(value)
        else:
            nulls, kind = [None] * len(self.operator.state), None if value is not None else TIMER
            group.update((*(nulls if value is None else value), kind, text, at))
            if at is not None:
                self._set_timeout(at)

    def _set_timeout(self, at: int) -> None:
        """Set a timeout for a time, or for the earliest that Spark allows."""
        group = self.group
        if self.operator.timeout == GroupStateTimeout.EventTimeTimeout:
            group.setTimeoutTimestamp(max(at, group.getCurrentWatermarkMs(), 1))
        else:
            group.setTimeoutDuration(max(1, at - group.getCurrentProcessingTimeMs()))
