"""Spark's applyInPandasWithState over keys that move between workers with their state."""

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
from unskew.spark.runtime.tasks import micro_batch, partition_and_batch
from unskew.spark.state.chunks import Rows, users
from unskew.spark.state.costs import Cost, Meter
from unskew.spark.state.exports import GONE, HERE, MOVED, Note, type_bytes
from unskew.spark.state.key_state import KeyState
from unskew.spark.state.protocol import ANNOUNCED, STAY
from unskew.spark.state.reports import Report, Reporter, nullable
from unskew.spark.state.types import StateType, arrow_type

EXPECTED, TIMER = 1, 2
"""A row of Spark's store that is no state: one that will come; a timeout alone."""

Function = Callable[[Any, Iterator[pd.DataFrame], Any], Iterable[pd.DataFrame]]


class KeyOrders(NamedTuple):
    """What the rows of a key say about it, all of them the same in a batch.

    Parameters
    ----------
    id, key
        As plans know it, and its text; no text if there is nothing to tell of it.
    to
        The worker that its state should go to, `STAY`, or `ANNOUNCED`: it will come here.
    object
        Where its state is, if it was exported for this worker.
    """

    id: int = 0
    to: int = STAY
    object: str = ""
    key: str = ""

    @classmethod
    def read(cls, text: str) -> KeyOrders:
        """Read what a row says.

        Examples
        --------
        >>> KeyOrders.read("7,-1,,{'a,b'}")
        KeyOrders(id=7, to=-1, object='', key="{'a,b'}")
        """
        number, to, where, key = text.split(",", 3)
        return cls(int(number), int(to), where, key)

    @property
    def text(self) -> str:
        """What to remember of a key: all but what to do with it."""
        return f"{self.id},{STAY},,{self.key}"


@dataclass
class LocalState:
    """What a worker holds of a key in Spark's store.

    Parameters
    ----------
    value
        Its state.
    kind
        0, `EXPECTED` or `TIMER`.
    facts
        What is remembered of the key.
    times_out_at
        When it times out: Spark does not tell.
    """

    value: tuple[Any, ...] | None = None
    kind: int = 0
    facts: KeyOrders | None = None
    times_out_at: int | None = None

    @property
    def exists(self) -> bool:
        """Whether there is a state or a timeout."""
        return self.value is not None or self.kind == TIMER


@dataclass(frozen=True)
class Operator:
    """The user's function, wrapped so that keys can move.

    Parameters
    ----------
    function, state, timeout
        The user's, as for Spark's applyInPandasWithState.
    reporter
        Takes what tasks report.
    """

    function: Function
    state: StructType
    timeout: str
    reporter: Reporter

    @property
    def times_out(self) -> bool:
        """Whether states can time out, also on their way."""
        return self.timeout != GroupStateTimeout.NoTimeout

    @cached_property
    def kind(self) -> StateType:
        """The type of the state."""
        return StateType(StructType([*map(nullable, self.state)]))

    def apply(
        self, rows: DataFrame, keys: Sequence[ColumnOrName], slot: str, mode: str
    ) -> DataFrame:
        """Return the results."""
        kept = StructType([*map(nullable, self.state)])
        arrow_type(self.state)  # refuses what cannot move
        if self.times_out:
            names = Names.of(self.state.names)
            kept.add(names("kind"), IntegerType()).add(names("facts"), StringType())
            kept.add(names("times_out_at"), LongType())
        output, grouped = self.reporter.output, rows.groupBy(*keys, slot)
        return grouped.applyInPandasWithState(self.run, output, kept, mode, self.timeout)

    def run(
        self, grouping: tuple[Any, ...], chunks: Iterator[pd.DataFrame], group: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Do what a micro-batch brings to a key at this worker."""
        key, worker, batch = grouping[:-1], partition_and_batch()[0], micro_batch()
        if group.hasTimedOut:
            call, rows = self.called(key, group, None, worker, batch), users(chunks)
            yield from call.results(rows, lambda: rows)
        else:
            taken = Rows.split(chunks)
            call = self.called(key, group, KeyOrders.read(taken.orders), worker, batch)
            yield from call.results(taken.chunks, taken.none)
        self.reporter.report(*call.finish())

    def called(
        self,
        key: tuple[Any, ...],
        group: GroupState,
        facts: KeyOrders | None,
        worker: int,
        batch: int,
    ) -> Call:
        """Return a call for a key of which rows say something, or which has timed out."""
        held = self._held(group)
        if facts is None:
            facts = held.facts or KeyOrders()
            if held.kind == EXPECTED:
                where = self.reporter.log.orders(batch).record.where(facts.id, facts.key, worker)
                facts = facts._replace(object=where)
        return Call(self, key, group, held, facts, worker)

    def _held(self, group: GroupState) -> LocalState:
        if not group.exists:
            return LocalState()
        if not self.times_out:
            return LocalState(group.get)
        *value, kind, text, at = group.get
        facts = None if text is None else KeyOrders.read(text)
        return LocalState(None if kind else tuple(value), kind or 0, facts, at)


@dataclass
class Call:
    """One call for a key: with rows, as it has timed out, or as its state is to come.

    Parameters
    ----------
    operator
        What is called.
    key, group, held, facts, worker
        The key, its state in Spark's store, what its rows say, and where it is.
    """

    operator: Operator
    key: tuple[Any, ...]
    group: GroupState
    held: LocalState
    facts: KeyOrders
    worker: int
    meter: Meter = field(default_factory=Meter)
    imported: bool = False
    touched: bool = False
    times_out_at: int | None = None

    def __post_init__(self) -> None:
        self.seen = KeyState(self.held.value, False, self.group, self.operator.timeout)

    def results(
        self, rows: Iterator[pd.DataFrame], none: Callable[[], Iterator[pd.DataFrame]]
    ) -> Iterator[pd.DataFrame]:
        """Call the user's function, if it is to be called, with rows or with none."""
        if self.facts.to == ANNOUNCED:
            return
        self.times_out_at = self.held.times_out_at
        if self.facts.object:
            self._import()
        if self.group.hasTimedOut:
            if self.held.kind != EXPECTED or self._due:
                yield from self._call(rows, timed_out=True)
            return
        yield from self._call(rows, timed_out=False)
        # What Spark would do after all rows, if a key that had some has kept its old timeout.
        if self._due and (self.imported or self.facts.to != STAY):
            yield from self._call(none(), timed_out=True)

    def _call(self, rows: Iterator[pd.DataFrame], timed_out: bool) -> Iterator[pd.DataFrame]:
        """Call the function; a timeout stays as it is if the function does nothing at all."""
        seen = self.seen
        seen.hasTimedOut, seen.touched, seen.times_out_at = timed_out, False, None
        yield from self.meter.timed(
            self.operator.function(self.key, self.meter.counted(rows), seen)
        )
        if seen.touched:
            self.touched, self.times_out_at = True, seen.times_out_at

    def finish(self) -> Report:
        """Keep, or export, what is left; return what is to be reported."""
        if self.facts.to == ANNOUNCED:
            if not self.held.exists:
                self._expect()
            return Report()
        note = self._note()
        if note is None or note.kind != MOVED:
            self._keep()
        else:
            self.group.remove()
        return Report(self._cost(), note)

    @property
    def _exists(self) -> bool:
        return self.seen.value is not None or self.times_out_at is not None

    @property
    def _due(self) -> bool:
        at = self.times_out_at
        if at is None:
            return False
        if self.operator.timeout == GroupStateTimeout.EventTimeTimeout:
            return at < self.group.getCurrentWatermarkMs()
        return at < self.group.getCurrentProcessingTimeMs()

    def _import(self) -> None:
        kind, log = self.operator.kind, self.operator.reporter.log
        packed, at = log.fetch(self.facts.object, self.facts.key, self.worker, kind.arrow)
        self.seen.value = None if packed is None else kind.unpacked(packed)
        self.times_out_at, self.imported = at, True

    def _note(self) -> Note | None:
        """Return what to tell of the state."""
        number, to, _, key = self.facts
        if not key:
            return None
        before = self.held.exists or self.imported
        if to == STAY:
            if not self._exists:
                return Note(GONE, number, key, self.worker) if before else None
            born = self.imported or not self.held.exists
            return Note(HERE, number, key, self.worker) if born else None
        if not self._exists:
            return Note(GONE, number, key, to)
        kind, value = self.operator.kind, self.seen.value
        packed = None if value is None else kind.packed(value)
        at = self.times_out_at
        return Note(MOVED, number, key, to, packed, at, type_bytes(kind.arrow), self._size)

    @property
    def _size(self) -> int:
        return len(pickle.dumps((self.seen.value, self.times_out_at)))

    def _cost(self) -> str | None:
        if not self.meter.matters:
            return None
        cost = Cost(self.meter.records, self.meter.seconds, self._size, self.worker)
        return cost.text(self.facts.id)

    def _expect(self) -> None:
        """Have the key woken in the next batch: by the watermark, as soon as that moves."""
        none = [None] * len(self.operator.state)
        self.group.update((*none, EXPECTED, self.facts.text, None))
        self._set_timeout(0)

    def _keep(self) -> None:
        value, at, group = self.seen.value, self.times_out_at, self.group
        if not (self.touched or self.imported or self.held.kind == EXPECTED):
            return  # as Spark does
        text = self.facts.text if self.facts.key else None
        if not self._exists:
            group.remove()
        elif not self.operator.times_out:
            assert value is not None
            group.update(value)
        else:
            none, kind = [None] * len(self.operator.state), None if value is not None else TIMER
            group.update((*(none if value is None else value), kind, text, at))
            if at is not None:
                self._set_timeout(at)

    def _set_timeout(self, at: int) -> None:
        """Set a timeout to a time, or to the next that is possible."""
        group = self.group
        if self.operator.timeout == GroupStateTimeout.EventTimeTimeout:
            group.setTimeoutTimestamp(max(at, group.getCurrentWatermarkMs(), 1))
        else:
            group.setTimeoutDuration(max(1, at - group.getCurrentProcessingTimeMs()))
