"""unskew keeps keyed stream processing balanced, however skewed the keys are.

The package loads lazily: ``import unskew`` costs milliseconds, and numba is imported only
when a kernel is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.hashing import hash_keys
    from unskew.plan import Plan
    from unskew.planners import PLANNERS, Statistics, make_planner
    from unskew.routers import ROUTERS, make_router
    from unskew.sim.intervals import simulate_plans
    from unskew.sim.simulate import simulate
    from unskew.sketches import SKETCHES
    from unskew.workloads import open_stream

__version__ = "0.1.0"

_HOMES = {
    "PLANNERS": "unskew.planners",
    "Plan": "unskew.plan",
    "ROUTERS": "unskew.routers",
    "SKETCHES": "unskew.sketches",
    "Statistics": "unskew.planners",
    "make_planner": "unskew.planners",
    "make_router": "unskew.routers",
    "hash_keys": "unskew.hashing",
    "open_stream": "unskew.workloads",
    "simulate": "unskew.sim",
    "simulate_plans": "unskew.sim",
}

__all__ = [
    "PLANNERS",
    "ROUTERS",
    "SKETCHES",
    "Plan",
    "Statistics",
    "__version__",
    "hash_keys",
    "make_planner",
    "make_router",
    "open_stream",
    "simulate",
    "simulate_plans",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'unskew' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
