"""Shuffle grouping: round robin, whatever the key."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.routers.base import ALL_WORKERS, Router, Workers, start_of


@dataclass(repr=False, eq=False)
class Shuffle(Router):
    """Send records to the workers in turn: the ideal balance, at the price of the most state.

    The imbalance is below 1 record a source; a key is replicated to as many workers as it has
    records, up to all of them. Each source starts at a random worker.

    Examples
    --------
    >>> Shuffle(n_workers=3).route([1, 1, 1, 1]).tolist()
    [2, 0, 1, 2]
    """

    planned: ClassVar[str | None] = ALL_WORKERS
    turn: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.turn = np.array([start_of(self.seed, self.source, self.n_workers)])

    def _candidates(self, key: np.uint64) -> Workers:
        return self._all_workers()

    def _route(self, keys: Keys, out: Workers) -> None:
        out[:] = (self.turn[0] + np.arange(len(keys))) % self.n_workers
        self.turn[0] = (self.turn[0] + len(keys)) % self.n_workers
