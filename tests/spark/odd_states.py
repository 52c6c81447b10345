"""A function and a processor with states that Spark changes when it stores them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

STATE = (
    "n bigint, s string, f float, d decimal(10,2), h smallint, r struct<a:int,b:string>, "
    "t timestamp, y date, b binary, x double, o boolean"
)
"""Without arrays and maps: Spark 4.3 cannot read such states of functions itself."""
OUTPUT = "key string, what string"


def odd_state(n: int) -> tuple[Any, ...]:
    """Return a state that Spark changes when it stores it."""
    return (
        n,
        f"s{n}" if n % 3 else "",
        n / 7,
        Decimal(n) / 7,
        70_000 + n,
        (n, "b") if n % 4 else None,
        datetime(2020, 1, 1) + timedelta(seconds=n, microseconds=n),
        date(2020, 1, 1) + timedelta(days=n),
        b"\x00" * n,
        n / 9 if n % 5 else n,  # an integer is not a double of Spark
        None if n % 6 == 0 else n % 2 == 0,
    )


def fold(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any, times_out: bool
) -> Iterator[pd.DataFrame]:
    """Emit the state, and set another one."""
    before = repr(state.getOption)
    if state.hasTimedOut:
        yield result_row(key, f"timed out with {before}")
        if state.exists and state.get[0] % 3 == 0:
            state.update(odd_state(state.get[0] + 100))  # keep a state
        elif not state.exists or state.get[0] % 4:  # otherwise it times out again
            state.remove()
        return
    rows = pd.concat(list(chunks))
    n = (state.get[0] if state.exists else 0) + len(rows)
    yield result_row(key, f"{before} and {rows['x'].tolist()}")
    if rows["x"].iloc[-1] % 5 == 0:
        return  # and do not change it
    if rows["x"].iloc[-1] % 7 == 0:
        state.remove()
    else:
        state.update(odd_state(n))
    if times_out and rows["x"].iloc[-1] % 3:  # also without a state
        latest = int(rows["time"].max().timestamp() * 1000)
        state.setTimeoutTimestamp(max(latest + 2000, state.getCurrentWatermarkMs() + 1))


def result_row(key: tuple[Any, ...], what: str) -> pd.DataFrame:
    """Return a result."""
    return pd.DataFrame({"key": [repr(key)], "what": [what]})


class Several(StatefulProcessor):
    """Keeps a value, a list and a map, and emits them, with its timers if there are any."""

    def __init__(self, timers: bool) -> None:
        self.timers = timers

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "f float, d decimal(10,2), h smallint")
        self.list = handle.getListState("list", "x bigint, r struct<a:int,b:string>")
        self.map = handle.getMapState("map", "k string", "v array<float>")

    def told(self) -> str:
        """Return all states and timers."""
        pairs = sorted((repr(k), repr(v)) for k, v in self.map.iterator())
        timers = sorted(self.handle.listTimers()) if self.timers else []
        return f"{self.value.get()} {[*self.list.get()]} {pairs} {timers}"

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        given = pd.concat(list(rows))
        yield result_row(key, f"{self.told()} and {given['x'].tolist()}")
        last = int(given["x"].iloc[-1])
        if last % 7 == 0:
            self.value.clear()
            self.list.clear()
            self.map.clear()
        else:
            self.value.update((last / 7, Decimal(last) / 7, 70_000 + last))
            self.list.appendValue((last, (last, "b")))
            self.map.updateValue((f"k{last % 3}",), ([last / 3, None],))
        if self.timers and last % 3:  # also without a state
            latest = int(given["time"].max().timestamp() * 1000)
            now = timerValues.getCurrentWatermarkInMs()
            self.handle.registerTimer(max(latest + 2000, now + 1))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        yield result_row(key, f"timer {expiredTimerInfo.getExpiryTimeInMs()} with {self.told()}")
        self.list.clear()

    def close(self) -> None:
        pass
