"""Distribution-aware Key Grouping (DKG): learn the distribution, then place keys once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels.table_route import find_buckets, learn_buckets, route_buckets
from unskew.routers.base import Router, Workers
from unskew.routers.static import place_by_weight
from unskew.sketches.exact import KeyIndex
from unskew.sketches.space_saving import SpaceSaving
from unskew.state import whole, within


@dataclass(repr=False, eq=False)
class DistributionKey(Router):
    """Place heavy keys and buckets of the others greedily, after a time of learning.

    For the first ``learning`` records keys go by their hash, SpaceSaving finds the heavy ones
    (share >= theta), and the others are counted in buckets. Then heavy keys and buckets are placed
    once, the largest first, each on the worker with the least so far. Keys stay whole, but for the
    move at the end of learning; a change of the distribution after it goes unnoticed.

    Parameters
    ----------
    n_workers, seed, source
        As of every router; all sources share one placement.
    learning
        Records to learn from.
    theta
        The share that makes a key heavy; 1/(5n) if not given.
    buckets
        Buckets for the other keys; 2n if not given.

    Examples
    --------
    >>> router = DistributionKey(n_workers=2, learning=6)
    >>> router.route([7, 7, 7, 8, 8, 9, 7, 8, 9]).tolist()[6:]
    [0, 1, 1]

    References
    ----------
    Rivetti, Querzoni, Anceaume, Busnel and Sericola, "Efficient key grouping for near-optimal load
    balancing in stream processing systems", DEBS 2015.
    """

    learning: int = 100_000
    theta: float | None = None
    buckets: int | None = None
    splits: ClassVar[bool] = False
    seen: NDArray[np.int64] = field(init=False)
    sketch: SpaceSaving = field(init=False)
    bucket_counts: NDArray[np.int64] = field(init=False)
    heavy: KeyIndex = field(init=False, default_factory=KeyIndex)
    heavy_workers: Workers = field(init=False)
    bucket_workers: Workers = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.theta is None:
            self.theta = 1.0 / (5 * self.n_workers)
        if self.buckets is None:
            self.buckets = 2 * self.n_workers
        whole("learning", self.learning, 1)
        within("theta", self.theta, 1e-9, 1.0)
        whole("buckets", self.buckets, 1)
        self.seen = np.zeros(1, np.int64)
        self.sketch = SpaceSaving(max(1000, round(4 / self.theta)))
        self.bucket_counts = np.zeros(self.buckets, np.int64)
        self.heavy_workers = np.zeros(0, np.int32)
        self.bucket_workers = np.zeros(self.buckets, np.int32)

    @property
    def shared(self) -> bool:
        """One placement for all sources."""
        return True

    def _candidates(self, key: np.uint64) -> Workers:
        array = np.array([key], np.uint64)
        if self.seen[0] <= self.learning:
            return self._choices(key, 1)
        out = np.empty(1, np.int32)
        self._route_placed(array, out)
        return out

    def _route(self, keys: Keys, out: Workers) -> None:
        left = max(0, self.learning - int(self.seen[0]))
        learnt, placed = np.split(keys, [left])
        if len(learnt):
            learn_buckets(
                learnt,
                self._hash_seed,
                self.sketch.counters,
                self.n_workers,
                self.bucket_counts,
                out[: len(learnt)],
            )
            if len(learnt) == left:
                self._place()
        self._route_placed(placed, out[len(learnt) :])
        self.seen[0] += len(keys)

    def _route_placed(self, keys: Keys, out: Workers) -> None:
        route_buckets(
            keys, self._hash_seed, self.heavy.table, self.heavy_workers, self.bucket_workers, out
        )

    def _place(self) -> None:
        assert self.theta is not None
        assert self.buckets is not None
        keys, counts = self.sketch.hot(self.theta)
        homes = np.empty(len(keys), np.int32)
        find_buckets(keys, self._hash_seed, self.buckets, homes)
        # What a heavy key adds to its bucket is carried by the key itself.
        heavy = np.bincount(homes, weights=counts, minlength=self.buckets)
        loads = np.concatenate([counts, np.maximum(0.0, self.bucket_counts - heavy)])
        order = np.argsort(-loads, kind="stable")
        workers = np.empty(len(loads), np.int32)
        workers[order] = place_by_weight(loads[order], self.n_workers)
        self.heavy.number(keys)
        self.heavy_workers = workers[: len(keys)].copy()
        self.bucket_workers = workers[len(keys) :].copy()
