"""What every measure of a routed stream is.

Laws, each with a test of the same name: *chunk-free* (how the stream is cut into chunks does not
change the result), *total* (any stream, also an empty one), *JSON-able* (``result`` holds plain
numbers and lists), *closed* (a worker outside ``[0, n_workers)`` is refused, and changes nothing).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.state import at_least

Result = dict[str, Any]


@dataclass(eq=False)
class Measure(ABC):
    """A measure over the records of a stream, updated chunk by chunk."""

    n_workers: int

    def __post_init__(self) -> None:
        at_least("n_workers", self.n_workers, 1)

    @abstractmethod
    def update(self, keys: ArrayLike, workers: ArrayLike) -> None:
        """Take in a chunk: the keys of its records, and the worker that each was sent to."""

    @abstractmethod
    def result(self) -> Result:
        """Return what was measured so far, by name, with the unit in the name."""

    def _accept(self, keys: ArrayLike, workers: ArrayLike) -> NDArray[np.int32]:
        """Return the workers as the kernels need them, or refuse them."""
        given = np.asarray(workers)
        if given.shape != np.shape(keys) or given.ndim != 1:
            raise ValueError(
                "keys and workers must be 1-d and of one length, "
                f"got shapes {np.shape(keys)} and {given.shape}"
            )
        if given.size and given.dtype.kind not in "iu":
            raise ValueError(f"workers must be integers, got {given.dtype}")
        if given.size and not 0 <= given.min() <= given.max() < self.n_workers:
            raise ValueError(
                f"workers must be between 0 and {self.n_workers - 1}, "
                f"got {given.min()} to {given.max()}"
            )
        return np.ascontiguousarray(given, np.int32)


def active_mask(mask: ArrayLike, n_workers: int) -> NDArray[np.bool_]:
    """Return a copy of a mask of active workers, or refuse it."""
    active = np.array(mask, dtype=np.bool_)
    if active.shape != (n_workers,):
        raise ValueError(f"mask must have {n_workers} entries, got shape {active.shape}")
    if not active.any():
        raise ValueError("mask must leave at least one worker active")
    return active
