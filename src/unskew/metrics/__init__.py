"""Measures of a routed stream: balance, replication, agreement, latency.

Each takes the stream chunk by chunk (``update(keys, workers)``), costs O(1) a record, and returns
its findings as plain numbers and lists (``result()``).
"""

from unskew.metrics.agreement import Agreement
from unskew.metrics.base import Measure, Result
from unskew.metrics.imbalance import Imbalance
from unskew.metrics.queueing import Queueing
from unskew.metrics.replication import Replication
from unskew.metrics.spread import IntervalSpread

__all__ = [
    "Agreement",
    "Imbalance",
    "IntervalSpread",
    "Measure",
    "Queueing",
    "Replication",
    "Result",
]
