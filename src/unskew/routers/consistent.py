"""Consistent hashing: a ring with virtual nodes, on which workers come and go."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels.ring import Ring, new_ring, ring_candidates, route_ring
from unskew.routers.base import Router, Workers
from unskew.state import whole


@dataclass(repr=False, eq=False)
class ElasticRouter(Router):
    """A router whose workers can be added and removed while it runs.

    A new worker gets the next number; the number of one that left is not given again.
    """

    capacities: Sequence[float] | None = None
    elastic: ClassVar[bool] = True
    speeds: NDArray[np.float64] = field(init=False)
    """The capacity of each worker, 0 for one that left."""

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [1.0] * self.n_workers if self.capacities is None else list(self.capacities)
        if len(given) != self.n_workers:
            raise ValueError(
                f"capacities must have one entry for each of {self.n_workers} workers, "
                f"got {len(given)}"
            )
        for capacity in given:
            self._check(capacity)
        self.speeds = np.array(given, np.float64)

    @property
    def workers(self) -> Workers:
        """The workers that are active."""
        return np.flatnonzero(self.speeds > 0).astype(np.int32)

    def add_worker(self, capacity: float = 1.0) -> int:
        """Take in a new worker; return its number."""
        self._check(capacity)
        self._check_change()
        self.speeds = np.append(self.speeds, capacity)
        self._workers_changed()
        return len(self.speeds) - 1

    def remove_worker(self, worker: int) -> None:
        """Let a worker go; its keys go to the others."""
        if worker not in self.workers:
            raise ValueError(f"worker {worker} is not active; active: {self.workers.tolist()}")
        if len(self.workers) == 1:
            raise ValueError("the last worker cannot be removed")
        self._check_change()
        self.speeds[worker] = 0.0
        self._workers_changed()

    @abstractmethod
    def _workers_changed(self) -> None: ...

    def _check_change(self) -> None:
        """Refuse a change of workers where there can be none."""

    @staticmethod
    def _check(capacity: float) -> None:
        if not 0.0 < capacity < np.inf:
            raise ValueError(f"a capacity must be above 0 and finite, got {capacity}")


@dataclass(repr=False, eq=False)
class ConsistentHash(ElasticRouter):
    """A key belongs to the worker of the next point of the ring, clockwise from its hash.

    Each worker has ``nodes`` points for a capacity of 1, so its share is right to about
    ``1 / sqrt(nodes)``. When a worker comes or goes, only the keys that it gets or leaves move: one
    in n.

    Parameters
    ----------
    n_workers, seed, source
        As of every router.
    capacities
        Of the workers, relative to each other; all 1 if not given.
    nodes
        Points on the ring of a worker of capacity 1.

    Examples
    --------
    >>> router = ConsistentHash(n_workers=3)
    >>> keys = np.arange(1000, dtype=np.uint64)
    >>> before = router.route(keys)
    >>> router.remove_worker(2)
    >>> after = router.route(keys)
    >>> bool((before == after)[before != 2].all())
    True

    References
    ----------
    Karger et al., "Consistent hashing and random trees", STOC 1997.
    """

    nodes: int = 128
    splits: ClassVar[bool] = False
    fixed: ClassVar[bool] = True
    ring: Ring = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("nodes", self.nodes, 1)
        self._workers_changed()

    def _candidates(self, key: np.uint64) -> Workers:
        out = np.empty(1, np.int32)
        marks = np.zeros(len(self.speeds) + 1, np.int64)
        ring_candidates(key, self._hash_seed, self.ring, marks, out)
        return out

    def _workers_changed(self) -> None:
        self.ring = new_ring(ring_nodes(self.speeds, self.nodes), self.seed)

    def _route(self, keys: Keys, out: Workers) -> None:
        route_ring(keys, self._hash_seed, self.ring, out)


def ring_nodes(speeds: NDArray[np.float64], nodes: int) -> NDArray[np.int64]:
    """Return the points of each worker: in proportion to its capacity, at least 1 if active."""
    wanted = np.maximum(1, np.rint(speeds * nodes)).astype(np.int64)
    return np.where(speeds > 0, wanted, 0)
