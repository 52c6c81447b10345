"""Skew-proof keyed processing in PySpark: a scheme chooses a worker for each row.

The package loads lazily, so tasks that need only a part of it, such as the reader of a plan, start
fast.
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
    from unskew.spark.control.metrics import BatchMetrics, HotKey
    from unskew.spark.placement.slots import SLOT
    from unskew.spark.profiles import Profile, profile

_MODULES = {
    "SLOT": "unskew.spark.placement.slots",
    "Balancer": "unskew.spark.balancer",
    "BatchMetrics": "unskew.spark.control.metrics",
    "CombineFn": "unskew.spark.combiners",
    "HotKey": "unskew.spark.control.metrics",
    "combine": "unskew.spark.combiners",
    "Profile": "unskew.spark.profiles",
    "profile": "unskew.spark.profiles",
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
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'unskew.spark' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
