"""The applications of the papers, one a file: real jobs, and examples of how to use unskew.

`APPS` holds them by the names that ``unskew run`` and ``unskew compare`` accept. The package loads
lazily: a task that needs one of them does not load the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unskew.apps.base import App, Learner
    from unskew.apps.table import APPS

__all__ = ["APPS", "App", "Learner"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'unskew.apps' has no attribute {name!r}")
    module = "unskew.apps.table" if name == "APPS" else "unskew.apps.base"
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
