"""Spark's applyInPandasWithState over keys that move between workers with their state."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import LongType, StringType, StructField, StructType

from unskew.spark.costs import COST, Cost, Meter, with_costs
from unskew.spark.keys import ColumnOrName
from unskew.spark.moving import ARRIVED, Held, Orders, Transfer
from unskew.spark.planned import PlannedRoute
from unskew.spark.tasks import micro_batch, partition_and_batch
from unskew.spark.whereabouts import MoveLog

OURS = 2
"""The last columns of the rows that an operator is given: orders and the slot."""
OF_EXPECTED = ("__unskew_expected", "__unskew_plan_key")
"""Of the state of a key that will come: null if it has."""

Function = Callable[[Any, Iterator[pd.DataFrame], Any], Iterable[pd.DataFrame]]


@dataclass
class KeyState:
    """The state of a key as the user's function sees it: as Spark's GroupState.

    Parameters
    ----------
    value
        The state, None if there is none.
    hasTimedOut
        Whether the function is called as the key has timed out.
    """

    value: tuple[Any, ...] | None
    hasTimedOut: bool  # noqa: N815
    _group: GroupState
    _timeout: str
    changed: bool = False
    times_out_at: int | None = None
    """When it times out, in milliseconds, as set before it came here or by the function."""

    @property
    def exists(self) -> bool:
        """Whether there is a state."""
        return self.value is not None

    @property
    def get(self) -> tuple[Any, ...]:
        """The state, if there is one."""
        if self.value is None:
            raise ValueError("the key has no state: look at state.exists first")
        return self.value

    @property
    def getOption(self) -> tuple[Any, ...] | None:  # noqa: N802
        """The state, or None."""
        return self.value

    def update(self, newValue: Sequence[Any]) -> None:  # noqa: N803
        """Set the state."""
        if newValue is None:
            raise TypeError("a state cannot be None: use state.remove()")
        self.value, self.changed = tuple(newValue), True

    def remove(self) -> None:
        """Have no state any more."""
        self.value, self.changed = None, True

    def setTimeoutDuration(self, durationMs: int) -> None:  # noqa: N802, N803
        """Time out when the key gets no rows for this long."""
        if self._timeout != GroupStateTimeout.ProcessingTimeTimeout:
            _refuse("a duration", "ProcessingTimeTimeout")
        self.times_out_at = self._group.getCurrentProcessingTimeMs() + _positive(durationMs)

    def setTimeoutTimestamp(self, timestampMs: int) -> None:  # noqa: N802, N803
        """Time out when the watermark passes a time."""
        if self._timeout != GroupStateTimeout.EventTimeTimeout:
            _refuse("a timestamp", "EventTimeTimeout")
        self.times_out_at = _positive(timestampMs)

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802
        """Return the time of the micro-batch."""
        return self._group.getCurrentProcessingTimeMs()

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802
        """Return the watermark."""
        return self._group.getCurrentWatermarkMs()


def _refuse(what: str, needed: str) -> NoReturn:
    raise ValueError(f"{what} as timeout needs timeout=GroupStateTimeout.{needed}")


def _positive(given: int) -> int:
    if int(given) <= 0:
        raise ValueError(f"a timeout must be above 0 ms, got {given}")
    return int(given)


@dataclass(frozen=True)
class Operator:
    """The user's function, wrapped so that keys can move.

    Parameters
    ----------
    function, output, state, timeout
        The user's, as for Spark's applyInPandasWithState.
    log
        Where states are on their way.
    """

    function: Function
    output: StructType
    state: StructType
    timeout: str
    log: MoveLog

    @property
    def times_out(self) -> bool:
        """Whether states can time out, also on their way."""
        return self.timeout != GroupStateTimeout.NoTimeout

    def apply(
        self, rows: DataFrame, keys: Sequence[ColumnOrName], slot: str, mode: str
    ) -> DataFrame:
        """Return the results, with what keys cost in rows of their own, in the column `COST`."""
        out = StructType([*map(nullable, self.output), StructField(COST, StringType())])
        kept = StructType([*map(nullable, self.state)])
        for name in OF_EXPECTED if self.times_out else ():
            kept.add(name, LongType())
        grouped = rows.groupBy(*keys, slot)
        return grouped.applyInPandasWithState(self.run, out, kept, mode, self.timeout)

    def run(
        self, grouping: tuple[Any, ...], chunks: Iterator[pd.DataFrame], group: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Do what a micro-batch brings to a key at this worker."""
        key, (worker, batch) = grouping[:-1], (partition_and_batch()[0], micro_batch())
        held, plan_key = self._held(group)
        orders: Orders = Orders()
        rows: Iterator[pd.DataFrame] = iter(())
        if not group.hasTimedOut:
            plan_key, orders, rows = taken_orders(chunks)
        woken = group.hasTimedOut and held.expected != ARRIVED
        meter, seen = Meter(), KeyState(None, group.hasTimedOut, group, self.timeout)

        def export(to: int, state: Any) -> None:
            found = None if state is None else pickle.dumps((state, seen.times_out_at))
            self.log.export(batch, plan_key, key, to, found)

        def fetch(since: int) -> Any:
            found = self.log.fetch(batch, plan_key, key, worker, since)
            state, at = (None, None) if found is None else pickle.loads(found)
            seen.changed, seen.times_out_at = True, at
            return state

        def process() -> Iterator[pd.DataFrame]:
            seen.value = held.state
            if not woken:
                seen.times_out_at = None
                yield from meter.timed(self.function(key, meter.counted(rows), seen))
                held.state = seen.value

        def finish() -> str | None:
            self._keep(group, held, seen, plan_key)
            if not meter.matters:
                return None
            size = len(pickle.dumps((seen.value, seen.times_out_at)))
            return Cost(meter.records, meter.seconds, size, worker).text(plan_key)

        results = Transfer(export, fetch).step(held, batch, orders, process)
        return with_costs(results, self.output.names, finish)

    def _held(self, group: GroupState) -> tuple[Held, int]:
        if not group.exists:
            return Held(), 0
        if not self.times_out:
            return Held(group.get), 0
        *value, expected, plan_key = group.get
        return (Held(tuple(value)), 0) if expected is None else (Held(None, expected), plan_key)

    def _keep(self, group: GroupState, held: Held, seen: KeyState, plan_key: int) -> None:
        if held.expected != ARRIVED:
            group.update((*[None] * len(self.state), held.expected, plan_key))
            # To be woken in the next batch: by the watermark, as soon as that moves.
            self._set_timeout(group, 0)
        elif held.state is None:
            group.remove()
        else:
            if seen.changed:
                group.update((*held.state, None, None) if self.times_out else held.state)
            if (at := seen.times_out_at) is not None:
                self._set_timeout(group, at)

    def _set_timeout(self, group: GroupState, at: int) -> None:
        """Set a timeout to a time, or to the next that is possible."""
        if self.timeout == GroupStateTimeout.EventTimeTimeout:
            group.setTimeoutTimestamp(max(at, group.getCurrentWatermarkMs() + 1, 1))
        else:
            group.setTimeoutDuration(max(1, at - group.getCurrentProcessingTimeMs()))


def with_orders(rows: DataFrame, route: PlannedRoute) -> DataFrame:
    """Return rows as operators are given them: the user's columns, then `OURS`.

    Few, as each column takes time in each group.
    """
    facts = [route.names(what) for what in ("id", "to", "since")]
    dropped = [route.names(what) for what in ("drawn", "announced")]
    orders, slot = route.names("orders"), route.names("place")
    last = {orders: F.concat_ws(",", *facts), slot: F.col(route.slot)}
    return (
        rows.withColumns(last)
        .drop(*facts, *dropped, route.slot)
        .withColumnRenamed(slot, route.slot)
    )


def taken_orders(
    chunks: Iterator[pd.DataFrame],
) -> tuple[int, Orders, Iterator[pd.DataFrame]]:
    """Return the key of plans and the orders that rows bring, and the user's columns of them."""
    first = next(chunks)
    # By position: Spark renames columns that begin with an underscore.
    plan_key, to, since = map(int, first.iat[0, -OURS].split(","))
    users = (chunk.iloc[:, :-OURS] for chunk in chain([first], chunks))
    return plan_key, Orders(to, since), users


def nullable(field: StructField) -> StructField:
    """Return a field that may be null: rows with costs have nothing else."""
    return StructField(field.name, field.dataType, True, field.metadata)


def as_struct(given: StructType | str) -> StructType:
    """Return a schema that may be given as text."""
    found = StructType.fromDDL(given) if isinstance(given, str) else given
    if not isinstance(found, StructType):
        raise TypeError(
            f"a schema has names and types, as in 'key string, n bigint', got {given!r}"
        )
    return found
