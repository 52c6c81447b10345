"""Skew-proof keyed processing in PySpark: rows on the worker that a scheme chooses, and merged.

The package loads lazily: tasks that need a part of it, like those that read a plan, start fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

try:
    import pyspark  # noqa: F401
except ImportError as error:
    raise ImportError("unskew.spark needs PySpark: pip install 'unskew[spark]'") from error

if TYPE_CHECKING:
    from unskew.spark import functions
    from unskew.spark.balancer import Balancer
    from unskew.spark.combiners import CombineFn, combine
    from unskew.spark.metrics import BatchMetrics, HotKey
    from unskew.spark.placement import SLOT
    from unskew.spark.profile import Profile, profile

_HOMES = {
    "SLOT": "unskew.spark.placement",
    "Balancer": "unskew.spark.balancer",
    "BatchMetrics": "unskew.spark.metrics",
    "CombineFn": "unskew.spark.combiners",
    "HotKey": "unskew.spark.metrics",
    "combine": "unskew.spark.combiners",
    "Profile": "unskew.spark.profile",
    "profile": "unskew.spark.profile",
}

__all__ = [
    "SLOT",
    "Balancer",
    "BatchMetrics",
    "CombineFn",
    "HotKey",
    "Profile",
    "combine",
    "functions",
    "profile",
]


def __getattr__(name: str) -> Any:
    if name == "functions":
        return importlib.import_module("unskew.spark.functions")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'unskew.spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
