"""The metrics of a micro-batch, as objects and as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class HotKey:
    """A frequent key: its text, its share of the records, and the workers that it may be on now.

    The workers are empty if Spark's hash alone places it.
    """

    key: str
    share: float
    workers: Sequence[int]


@dataclass(frozen=True)
class BatchMetrics:
    """The metrics of a micro-batch.

    Parameters
    ----------
    batch, records, seconds
        The number of the batch, its records, and its duration.
    loads
        Records of each worker, estimated from a sample.
    hot
        The most frequent keys.
    state_rows
        Rows in the largest state store of the query.
    routing_s
        Seconds spent on routing: by the routers of all tasks if online; on the driver, in parallel
        to the query, if planned.
    moved_keys, moved_bytes
        States that moved to other workers, and their size.
    """

    batch: int
    records: int
    seconds: float
    loads: Sequence[int]
    hot: Sequence[HotKey]
    state_rows: int
    routing_s: float
    moved_keys: int = 0
    moved_bytes: int = 0

    @property
    def imbalance(self) -> float:
        """The largest load less the mean, as a share of all records: the measure of the papers."""
        return (max(self.loads) - sum(self.loads) / len(self.loads)) / max(1, sum(self.loads))

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps({**asdict(self), "imbalance": self.imbalance})

    def __str__(self) -> str:
        hottest = ", ".join(
            f"{hot.key} {hot.share:.1%} on {max(1, len(hot.workers))}" for hot in self.hot[:3]
        )
        return (
            f"batch {self.batch}: {self.records:,} records in {self.seconds:.1f} s, "
            f"imbalance {self.imbalance:.2%}, {self.state_rows:,} state rows; hot: {hottest}"
        )
