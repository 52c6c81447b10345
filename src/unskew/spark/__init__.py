"""Skew-proof keyed processing in PySpark: rows on the worker that a scheme chooses, and merged."""

from __future__ import annotations

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("unskew.spark needs PySpark: pip install 'unskew[spark]'") from error

from unskew.spark import aggregates
from unskew.spark.balancer import Balancer
from unskew.spark.combine import CombineFn, combine
from unskew.spark.metrics import BatchMetrics, HotKey
from unskew.spark.placement import SLOT

__all__ = [
    "SLOT",
    "Balancer",
    "BatchMetrics",
    "CombineFn",
    "HotKey",
    "aggregates",
    "combine",
]
