"""How kernels are compiled: cached on disk, without the interpreter lock, never allocating."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

# Without the allocator there is no reference counting of arrays, whose atomic operations took
# more than half of the time of loops over tuples of arrays. A kernel that allocates does not
# compile: scratch space is its caller's.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def kernel(function: F) -> F:
    """Compile a function that Python calls."""
    compiled: F = numba.njit(cache=True, **_OPTIONS)(function)
    return compiled


def inlined(function: F) -> F:
    """Compile a small function that only kernels call; LLVM inlines it."""
    compiled: F = numba.njit(forceinline=True, **_OPTIONS)(function)
    return compiled
