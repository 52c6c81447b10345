"""Mixed routing: a table for some keys, a hash for all others; it runs the plans of planners."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels.choices import route_first
from unskew.kernels.placement import route_spark
from unskew.kernels.ring import Ring, new_ring, route_ring
from unskew.kernels.table_route import route_entries
from unskew.plan import FALLBACKS, Plan, PlanError
from unskew.routers.base import Workers
from unskew.routers.consistent import ElasticRouter, ring_nodes
from unskew.sketches.exact import KeyIndex
from unskew.state import whole


@dataclass(repr=False, eq=False)
class TableRouter(ElasticRouter):
    """A key with an entry in the table goes where that says, any other by its hash.

    Keys stay whole. The table is that of the last plan given to `follow`; without one it is a
    plain hash. A planner makes plans (`unskew.planners`).

    Parameters
    ----------
    n_workers, seed, source
        As of every router.
    capacities
        Of the workers on the ring; all 1 if not given.
    fallback
        ``consistent`` (a ring; workers may come and go), ``key``, or ``spark``.
    nodes
        Points on the ring of a worker of capacity 1.

    Examples
    --------
    >>> router = TableRouter(n_workers=4)
    >>> router.route([7, 8, 9]).tolist()
    [2, 3, 3]
    >>> router.follow(Plan.empty(4).with_entries([8], [0]))
    >>> router.route([7, 8, 9]).tolist()
    [2, 0, 3]

    References
    ----------
    Fang et al., "Parallel stream processing against workload skewness and variance", HPDC 2017,
    equation (1).
    """

    fallback: str = "consistent"
    nodes: int = 128
    splits: ClassVar[bool] = False
    ring: Ring = field(init=False)
    table: KeyIndex = field(init=False, default_factory=KeyIndex)
    homes: NDArray[np.int32] = field(init=False)
    version: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("nodes", self.nodes, 1)
        if self.fallback not in FALLBACKS:
            raise ValueError(f"fallback must be one of {', '.join(FALLBACKS)}, got {self.fallback}")
        self.ring = new_ring(ring_nodes(self.speeds, self.nodes), self.seed)
        self.homes = np.empty(0, np.int32)
        self.version = np.zeros(1, np.int64)

    @classmethod
    def of(cls, plan: Plan) -> TableRouter:
        """Return a router that follows a plan."""
        router = cls(plan.n_workers, plan.seed, fallback=plan.fallback, nodes=plan.nodes)
        router.follow(plan)
        return router

    def follow(self, plan: Plan) -> None:
        """Route by a plan from here on, with its workers."""
        mine = self.fallback, self.seed, self.nodes
        if mine != (plan.fallback, plan.seed, plan.nodes):
            raise PlanError(f"{plan!r} does not fit {self!r}: other fallback, seed or nodes")
        if plan.fallback != "consistent" and plan.n_workers != self.n_workers:
            raise PlanError(f"{plan!r} does not fit {self!r}: other workers")
        self.speeds = np.array(plan.capacities, np.float64)
        self.ring = new_ring(ring_nodes(self.speeds, self.nodes), self.seed)
        self.table = KeyIndex()
        self.table.number(plan.keys)
        self.homes = plan.workers.copy()
        self.version[0] = plan.version

    def hash(self, keys: Keys) -> Workers:
        """Return where keys go that have no entry."""
        out = np.empty(len(keys), np.int32)
        if self.fallback == "key":
            route_first(keys, self._hash_seed, self.n_workers, out)
        elif self.fallback == "spark":
            route_spark(keys, self.n_workers, out)
        else:
            route_ring(keys, self._hash_seed, self.ring, out)
        return out

    def _candidates(self, key: np.uint64) -> Workers:
        return self.route([int(key)])

    def _check_change(self) -> None:
        if self.fallback != "consistent":
            raise ValueError(
                f"with the fallback {self.fallback!r} workers cannot change: use 'consistent'"
            )

    def _workers_changed(self) -> None:
        self.ring = new_ring(ring_nodes(self.speeds, self.nodes), self.seed)
        # An entry for a worker that left is void.
        self.homes = np.where(self.speeds[self.homes] > 0, self.homes, np.int32(-1))

    def _route(self, keys: Keys, out: Workers) -> None:
        out[:] = self.hash(keys)
        if len(self.homes):
            route_entries(keys, self.table.table, self.homes, out)
