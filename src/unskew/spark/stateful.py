"""Spark's applyInPandasWithState over keys that move between workers with their state."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, NoReturn

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from unskew.spark.costs import COST, Cost, Meter
from unskew.spark.exports import Exports
from unskew.spark.moving import MOVE, Held, Phase, Row, Transfer
from unskew.spark.observed import ID
from unskew.spark.placement import SLOT
from unskew.spark.tasks import micro_batch, partition_and_batch

PRESENT, SINCE, ROWS = "__unskew_present", "__unskew_since", "__unskew_rows"

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
    timeout_ms: int | None = None

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
        self.timeout_ms = _positive(durationMs)

    def setTimeoutTimestamp(self, timestampMs: int) -> None:  # noqa: N802, N803
        """Time out when the watermark passes a time."""
        if self._timeout != GroupStateTimeout.EventTimeTimeout:
            _refuse("a timestamp", "EventTimeTimeout")
        self.timeout_ms = _positive(timestampMs)

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


class Calls:
    """The calls of the user's function for one key in one micro-batch."""

    def __init__(self, call: Callable[[Iterator[pd.DataFrame], KeyState], Any]) -> None:
        self.call, self.meter = call, Meter()
        self.last: KeyState | None = None
        self.changed = False

    def process(
        self, held: Held, rows: Iterator[pd.DataFrame], state: KeyState
    ) -> Iterator[pd.DataFrame]:
        """Call the function with rows, and keep what it makes of the state."""
        yield from self.meter.timed(self.call(self.meter.counted(rows), state))
        held.state, self.last = state.value, state
        self.changed |= state.changed


@dataclass(frozen=True)
class Operator:
    """The user's function, wrapped so that keys can move.

    Parameters
    ----------
    function, output, state
        The user's, as for Spark's applyInPandasWithState.
    timeout
        The user's; where there is none, processing time wakes keys that wait.
    exports
        Where states are on their way.
    """

    function: Function
    output: StructType
    state: StructType
    timeout: str
    exports: Exports

    def apply(self, rows: DataFrame, keys: Sequence[str], mode: str) -> DataFrame:
        """Return the results, with what keys cost in rows of their own, in the column `COST`."""
        out = StructType([*map(_nullable, self.output), StructField(COST, StringType())])
        kept = [
            *map(_nullable, self.state),
            StructField(PRESENT, BooleanType()),
            StructField(SINCE, LongType()),
            StructField(ROWS, BinaryType()),
        ]
        timeout = self.timeout if self._by_watermark else GroupStateTimeout.ProcessingTimeTimeout
        return rows.groupBy(*keys, SLOT).applyInPandasWithState(
            self.run, out, StructType(kept), mode, timeout
        )

    def run(
        self, grouping: tuple[Any, ...], chunks: Iterator[pd.DataFrame], group: GroupState
    ) -> Iterator[pd.DataFrame]:
        """Do what a micro-batch brings to a key at this worker."""
        key = grouping[:-1]
        held = self._held(group)
        before, timed_out = held.phase, False
        kind, plan_key, rows = None, 0, iter(())
        if not group.hasTimedOut:
            first = next(chunks)
            kind, plan_key = Row(first[MOVE].iat[0]), int(first[ID].iat[0])
            rows = (chunk.drop(columns=[SLOT, ID, MOVE]) for chunk in chain([first], chunks))
        elif before is Phase.HERE:
            kind, timed_out = Row.PLAIN, True
        calls = Calls(lambda rows, state: self.function(key, rows, state))
        transfer = Transfer(
            partial(self._export, plan_key, key), lambda batch: self.exports.read(batch, key)
        )

        def process(held: Held, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            return calls.process(held, rows, KeyState(held.state, timed_out, group, self.timeout))

        for result in transfer.step(held, micro_batch(), kind, rows, process):
            yield result.assign(**{COST: None})
        if calls.changed or held.phase is not before or held.phase is Phase.ABSENT:
            self._keep(group, held, kind)
        self._set_timeout(group, held, calls.last)
        if plan_key and calls.meter.matters:
            size = len(pickle.dumps(held.state))
            cost = Cost(calls.meter.records, calls.meter.seconds, size).text(plan_key)
            yield pd.DataFrame({**{name: [None] for name in self.output.names}, COST: [cost]})

    def _export(self, plan_key: int, key: tuple[Any, ...], batch: int, state: bytes | None) -> None:
        self.exports.write(batch, plan_key, key, partition_and_batch()[0], state)

    def _held(self, group: GroupState) -> Held:
        if not group.exists:
            return Held()
        *value, present, since, rows = group.get
        state = tuple(value) if present else None
        if since is None:
            return Held(Phase.HERE, state)
        return Held(Phase.WAITING, state, since, bytes(rows))

    def _keep(self, group: GroupState, held: Held, kind: Row | None) -> None:
        waiting = held.phase is Phase.WAITING
        # A key on the move is known to be here even if the user keeps nothing of it.
        if held.phase is Phase.ABSENT or (held.state is None and kind is Row.PLAIN):
            group.remove()
            return
        value = (None,) * len(self.state) if held.state is None else held.state
        since, rows = (held.since, held.rows) if waiting else (None, None)
        group.update((*value, held.state is not None, since, rows))

    def _set_timeout(self, group: GroupState, held: Held, last: KeyState | None) -> None:
        wanted = None if last is None or held.phase is Phase.ABSENT else last.timeout_ms
        if held.phase is Phase.WAITING:
            # To be woken in the next batch: by the watermark, as soon as that moves.
            wanted = max(0, group.getCurrentWatermarkMs()) + 1 if self._by_watermark else 1
        if wanted is not None:
            (group.setTimeoutTimestamp if self._by_watermark else group.setTimeoutDuration)(wanted)

    @property
    def _by_watermark(self) -> bool:
        return self.timeout == GroupStateTimeout.EventTimeTimeout


def _nullable(field: StructField) -> StructField:
    return StructField(field.name, field.dataType, True, field.metadata)


def without_costs(results: DataFrame) -> DataFrame:
    """Return the user's results only."""
    return results.filter(F.col(COST).isNull()).drop(COST)
