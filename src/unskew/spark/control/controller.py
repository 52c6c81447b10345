"""What decides, on the driver, between the micro-batches of a query."""

from __future__ import annotations

from unskew.spark.control.observed import BatchObservation


class Controller:
    """What routes a query, as far as the driver has to do with it: here, nothing."""

    def learn(self, batch: BatchObservation) -> None:
        """Take in what was observed of a batch."""

    def tell(self, batch: BatchObservation, watermark_us: int) -> None:
        """Take in how far time has come, after each batch, also an empty one."""

    def workers(self, key: int) -> list[int]:
        """Return the workers that a key may be on now; none if its hash tells."""
        return []

    def seconds(self, batch: int) -> float:
        """Return what routing a batch took."""
        return 0.0

    def moved(self, batch: int) -> tuple[int, int]:
        """Return how many states left their workers in a batch, and their bytes."""
        return 0, 0
