"""Key grouping: a key has one place, given by its hash."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.hashing import Keys
from unskew.kernels.choices import route_first
from unskew.routers.base import BY_HASH, Router, Workers


@dataclass(repr=False, eq=False)
class KeyGrouping(Router):
    """Hash the key: what engines do today.

    No state, no replication, and a hot key makes a straggler: with the hottest key at a share of
    p1 the imbalance is at least ``(p1 - 1/n) m``.

    Examples
    --------
    >>> KeyGrouping(n_workers=4).route([1, 2, 3, 1]).tolist()
    [0, 1, 2, 0]
    """

    splits: ClassVar[bool] = False
    fixed: ClassVar[bool] = True
    planned: ClassVar[str | None] = BY_HASH

    def _candidates(self, key: np.uint64) -> Workers:
        return self._choices(key, 1)

    def _route(self, keys: Keys, out: Workers) -> None:
        route_first(keys, self._hash_seed, self.n_workers, out)
