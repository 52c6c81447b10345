"""How kernels are compiled: on their first call, cached on disk, without the interpreter lock.

Compiling takes seconds on a machine that never did it. Of many processes that start at once, one
compiles a kernel and the others wait for it and find it in the cache. Work that is small and must
not wait runs under `uncompiled`: the same functions as plain Python, with the same results.
"""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

# Without the allocator there is no reference counting of arrays, whose atomic operations took
# more than half of the time of loops over tuples of arrays. A kernel that allocates does not
# compile: scratch space is its caller's.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}

_plain: ContextVar[bool] = ContextVar(
    "plain", default=os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
)


class Kernel:
    """A function that is compiled when it is first called; numba is imported only then.

    Parameters
    ----------
    function
        The function as plain Python.
    options
        Options of ``numba.njit``.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        functools.update_wrapper(self, function)
        self.function, self.options = function, _OPTIONS | options
        self.called = False

    def __call__(self, *args: Any) -> Any:
        """Run the function, compiled unless within `uncompiled`."""
        if _plain.get():
            return self.function(*args)
        if self.called:
            return self.compiled(*args)
        with _one_process():
            result = self.compiled(*args)
        self.called = True
        return result

    @functools.cached_property
    def compiled(self) -> Callable[..., Any]:
        """The compiled function; it is not cached where no cache can be written."""
        import numba

        compile_cached = numba.njit(cache="forceinline" not in self.options, **self.options)
        try:
            return cast(Callable[..., Any], compile_cached(self.function))
        except RuntimeError:  # numba found no folder that it can write to
            return cast(Callable[..., Any], numba.njit(**self.options)(self.function))

    @property
    def _numba_type_(self) -> Any:
        """The type that numba sees where a kernel calls another one."""
        return self.compiled._numba_type_  # type: ignore[attr-defined]


@contextmanager
def _one_process() -> Iterator[None]:
    """Let one process of this user at a time compile, if the machine has file locks."""
    try:
        import fcntl

        path = Path(tempfile.gettempdir()) / f"unskew-compile-{os.getuid()}.lock"
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except (ImportError, OSError):
        yield
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def kernel(function: F) -> F:
    """Compile a function that Python calls."""
    return cast(F, Kernel(function))


def inlined(function: F) -> F:
    """Compile a small function that only kernels call; LLVM inlines it."""
    return cast(F, Kernel(function, forceinline=True))


@contextmanager
def uncompiled() -> Iterator[None]:
    """Run kernels as plain Python in this thread: for small work that must not wait.

    Examples
    --------
    >>> from unskew.kernels.hashing import xxhash_longs
    >>> hashes = np.empty(1, np.uint64)
    >>> with uncompiled():
    ...     xxhash_longs(np.array([7], np.uint64), np.uint64(42), hashes)
    >>> hashes
    array([15582532517514291953], dtype=uint64)
    """
    before = _plain.set(True)
    try:
        with np.errstate(over="ignore"):  # hashes wrap around, as they do when compiled
            yield
    finally:
        _plain.reset(before)
