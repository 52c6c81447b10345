"""What every sketch is: a small answer to "how often did this key come?".

Laws, each with a test of the same name: *bracketing* (lower <= true <= upper), *weight kept*
(``total`` is the weight of all records), *mergeable* (both laws hold for the records of both),
*bounded memory* (but for ``exact``, memory does not grow with the stream), *restorable* (snapshot,
restore, go on = never stopped).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys, as_keys
from unskew.state import Stateful

Estimates = NDArray[np.float64]


@dataclass(repr=False, eq=False)
class Sketch(Stateful, ABC):
    """Counts of keys, exact or not."""

    @property
    @abstractmethod
    def total(self) -> float:
        """The weight of all records."""

    @abstractmethod
    def _update(self, keys: Keys) -> None: ...

    @abstractmethod
    def _bounds(self, keys: Keys) -> tuple[Estimates, Estimates]: ...

    @abstractmethod
    def _merge(self, other: Any) -> None: ...

    def update(self, keys: Any) -> None:
        """Count one record of each key, in order."""
        self._update(as_keys(keys))

    def bounds(self, keys: Any) -> tuple[Estimates, Estimates]:
        """Return what the true counts are not below and not above."""
        return self._bounds(as_keys(keys))

    def estimate(self, keys: Any) -> Estimates:
        """Return the count that is reported for each key: the upper bound where not said else."""
        return self.bounds(keys)[1]

    def merge(self, other: Any) -> None:
        """Take in all that another sketch with the same parameters has seen."""
        if type(other) is not type(self) or other.parameters() != self.parameters():
            raise ValueError(f"only a sketch with equal parameters can be merged, got {other!r}")
        self._merge(other)


def hottest(keys: Keys, counts: Estimates, floor: float) -> tuple[Keys, Estimates]:
    """Return the keys with at least ``floor``, largest first, of equals the smaller key first."""
    kept = counts >= floor
    keys, counts = keys[kept], counts[kept]
    order = np.lexsort((keys, -counts))
    return keys[order], counts[order]
