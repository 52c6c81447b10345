"""The state of a key as a user's function sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import TimestampType


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
    touched: bool = False
    """Whether the function did anything to it."""
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
        self.value, self.touched = tuple(newValue), True

    def remove(self) -> None:
        """Have no state any more."""
        self.value, self.touched = None, True

    def setTimeoutDuration(self, durationMs: int) -> None:  # noqa: N802, N803
        """Time out when the key gets no rows for this long."""
        if self._timeout != GroupStateTimeout.ProcessingTimeTimeout:
            _refuse("a duration", "ProcessingTimeTimeout")
        self.times_out_at = self._group.getCurrentProcessingTimeMs() + _positive(durationMs)
        self.touched = True

    def setTimeoutTimestamp(self, timestampMs: int | datetime) -> None:  # noqa: N802, N803
        """Time out when the watermark passes a time."""
        if self._timeout != GroupStateTimeout.EventTimeTimeout:
            _refuse("a timestamp", "EventTimeTimeout")
        at, watermark = _positive(_milliseconds(timestampMs)), self.getCurrentWatermarkMs()
        if at < watermark:
            raise ValueError(f"a timeout at {at} ms is older than the watermark, {watermark} ms")
        self.times_out_at, self.touched = at, True

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


def _milliseconds(time: int | datetime) -> int:
    micros = TimestampType().toInternal(time) if isinstance(time, datetime) else 1000 * time
    return int(micros) // 1000
