"""The state of a key that a user's function gets in place of Spark's GroupState."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import TimestampType


@dataclass
class KeyState:
    """The state of a key with the interface of Spark's GroupState.

    Parameters
    ----------
    value
        The state, None if there is none.
    hasTimedOut
        Whether the function is called because the key has timed out.
    """

    value: tuple[Any, ...] | None
    hasTimedOut: bool  # noqa: N815
    _group: GroupState
    _timeout: str
    touched: bool = False
    """Whether the function updated or removed the state, or set a timeout."""
    times_out_at: int | None = None
    """When it times out, in milliseconds, if the function set a timeout."""

    @property
    def exists(self) -> bool:
        """Whether there is a state."""
        return self.value is not None

    @property
    def get(self) -> tuple[Any, ...]:
        """The state, if there is one."""
        if self.value is None:
            raise ValueError("the key has no state: check state.exists first")
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
        """Remove the state."""
        self.value, self.touched = None, True

    def setTimeoutDuration(self, durationMs: int) -> None:  # noqa: N802, N803
        """Set a timeout that fires when the key has had no rows for this long."""
        if self._timeout != GroupStateTimeout.ProcessingTimeTimeout:
            _refuse("a duration", "ProcessingTimeTimeout")
        self.times_out_at = self._group.getCurrentProcessingTimeMs() + _positive(durationMs)
        self.touched = True

    def setTimeoutTimestamp(self, timestampMs: int | datetime) -> None:  # noqa: N802, N803
        """Set a timeout that fires when the watermark passes a time."""
        if self._timeout != GroupStateTimeout.EventTimeTimeout:
            _refuse("a timestamp", "EventTimeTimeout")
        at, watermark = _positive(_milliseconds(timestampMs)), self.getCurrentWatermarkMs()
        if at < watermark:
            raise ValueError(
                f"a timeout must not be older than the watermark, {watermark} ms, got {at} ms"
            )
        self.times_out_at, self.touched = at, True

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802
        """Return the processing time of the micro-batch."""
        return self._group.getCurrentProcessingTimeMs()

    def getCurrentWatermarkMs(self) -> int:  # noqa: N802
        """Return the watermark."""
        return self._group.getCurrentWatermarkMs()


def _refuse(what: str, needed: str) -> NoReturn:
    raise ValueError(f"{what} as timeout needs timeout=GroupStateTimeout.{needed}")


def _positive(timeout_ms: int) -> int:
    if int(timeout_ms) <= 0:
        raise ValueError(f"a timeout must be above 0 ms, got {timeout_ms}")
    return int(timeout_ms)


def _milliseconds(time: int | datetime) -> int:
    micros = TimestampType().toInternal(time) if isinstance(time, datetime) else 1000 * time
    return int(micros) // 1000
