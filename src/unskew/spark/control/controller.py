"""The base class of controllers, which decide between the micro-batches of a query."""

from __future__ import annotations

from unskew.spark.control.observed import BatchObservation


class Controller:
    """Decides on the driver how the next batches are routed; the base class does nothing."""

    def learn(self, batch: BatchObservation) -> None:
        """Learn from the observation of a batch that had records."""

    def record_progress(self, batch: BatchObservation, watermark_us: int) -> None:
        """Record the event times and the watermark of a batch, also of an empty one."""

    def workers(self, key: int) -> list[int]:
        """Return the workers that a key may be on now; none if Spark's hash alone places it."""
        return []

    def seconds(self, batch: int) -> float:
        """Return the seconds that routing a batch took."""
        return 0.0

    def moved(self, batch: int) -> tuple[int, int]:
        """Return the number and the bytes of the states that left their workers in a batch."""
        return 0, 0
