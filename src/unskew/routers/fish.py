"""FISH: recent hot keys, spread as far as they are hot, over the workers that wait least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels import fish as kernels
from unskew.kernels.counters import Counters, look_up, new_counters
from unskew.kernels.fish import ACTIVE, FishRule, FishState, Queues, Spread
from unskew.kernels.ring import new_ring, ring_candidates
from unskew.routers.base import HOT_KEYS, Workers
from unskew.routers.consistent import ElasticRouter, ring_nodes
from unskew.state import whole, within


@dataclass(repr=False, eq=False)
class Fish(ElasticRouter):
    """Keys that are hot now are spread as far as they are hot, over the workers that wait least.

    Keys are counted by SpaceSaving, whose counts are multiplied by alpha after each epoch
    (Algorithm 1). A key with a share f_k above theta gets ``W / 2^floor(log2(f_top / f_k))``
    candidates, at least d_min and never fewer than before; any other gets two (CHK, Algorithm 2).
    Candidates are the next distinct workers on a consistent-hash ring. Of these the record goes
    to the one with the shortest inferred wait C_w P_w (Algorithm 3): the records that this source
    sent it and that it cannot have processed yet, times the time that it takes for one.

    Parameters
    ----------
    n_workers, seed, source
        As of every router.
    capacities
        Of the workers, relative to each other; all 1 if not given. P_w is inverse to them.
    counters
        K_max: counters of the sketch.
    epoch
        N_epoch: records of an epoch.
    alpha
        What is left of a count after an epoch.
    theta
        The share that makes a key hot; 1/(4n) if not given.
    rate
        Records a second that this source gets: its clock.
    interval_s
        T: seconds between two estimations of the queues.
    service_s
        Seconds that a worker of capacity 1 takes for a record of this source; if not given, what
        keeps all workers just busy at this rate.
    nodes
        Points on the ring of each worker.

    Examples
    --------
    >>> router = Fish(n_workers=8)
    >>> workers = router.route([7] * 4000)
    >>> len(router.candidates(7)), len(router.candidates(8))
    (8, 2)
    >>> np.bincount(workers[1000:]).tolist()
    [375, 375, 375, 375, 375, 375, 375, 375]

    Notes
    -----
    The paper leaves d_min open ("related to the sum of the frequency of all hot keys"). Here it is
    the *even share*: the workers that the hot keys need together, W times the sum of their shares,
    divided evenly among them; at least 2, and fixed at the end of an epoch. Shares are of at least
    a whole epoch: of the decayed weight of all records, or of N_epoch where that is less, as it is
    in the first records and after each decay; else chance makes many keys hot. A worker processes
    whole records, and what is left of one counts towards the next estimation. M_k is forgotten
    when k leaves the sketch. Theta stays that of the first workers when others come.

    With equally fast workers a record costs O(1) amortised; with unequal ones, O(d).

    References
    ----------
    Huang, "Efficient time-evolving stream processing at scale", which calls the scheme FISH.
    """

    planned: ClassVar[str | None] = HOT_KEYS
    counters: int = 1000
    epoch: int = 1000
    alpha: float = 0.2
    theta: float | None = None
    rate: float = 1000.0
    interval_s: float = 10.0
    service_s: float | None = None
    nodes: int = 64
    state: FishState = field(init=False)
    sampled_s: NDArray[np.float64] = field(init=False)
    """P_w as sampled, 0 where it was not."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.theta is None:
            self.theta = 1.0 / (4 * self.n_workers)
        within("theta", self.theta, 1e-9, 1.0)
        within("alpha", self.alpha, 0.0, 1.0)
        for name in ("counters", "epoch", "nodes"):
            whole(name, getattr(self, name), 1)
        for name in ("rate", "interval_s", "service_s"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < np.inf:
                raise ValueError(f"{name} must be above 0 and finite, got {value}")
        self.sampled_s = np.zeros(self.n_workers)
        self._set_up(
            new_counters(self.counters),
            np.zeros(self.counters, np.int64),
            np.zeros(self.n_workers),
            np.array([0, 0, 2, 0]),
        )

    @property
    def rule(self) -> FishRule:
        """The parameters, as the kernels take them."""
        assert self.theta is not None
        interval = max(1, round(min(self.interval_s * self.rate, 2.0**62)))
        return FishRule(self.theta, self.epoch, float(self.alpha), interval)

    def observe_service(self, service_s: Sequence[float] | NDArray[np.float64]) -> None:
        """Set P_w, the seconds a record takes at each worker, as sampled."""
        sampled = np.array(service_s, np.float64)
        if sampled.shape != self.speeds.shape or not (sampled > 0).all():
            raise ValueError(f"service_s must be {len(self.speeds)} times above 0")
        self.sampled_s = sampled
        self.state = self.state._replace(queues=self._new_queues(self._queued()))
        self.state.spread.drains[:] = -1

    def _candidates(self, key: np.uint64) -> Workers:
        d = min(2, len(self.workers))
        slot = np.empty(1, np.int64)
        counters = self.state.counters
        look_up(counters, np.array([key], np.uint64), slot)
        if slot[0] >= 0 and counters.counts[slot[0]] > kernels.hot_floor(counters, self.rule):
            d = max(d, min(int(self.state.spread.most[slot[0]]), len(self.workers)))
        out = np.empty(d, np.int32)
        marks = np.zeros(len(self.speeds) + 1, np.int64)
        ring_candidates(key, self._hash_seed, self.state.ring, marks, out)
        return out

    def _route(self, keys: Keys, out: Workers) -> None:
        kernels.route_fish(keys, self._hash_seed, self.state, self.rule, out)

    def _workers_changed(self) -> None:
        missing = len(self.speeds) - len(self.sampled_s)
        self.sampled_s = np.append(self.sampled_s, np.zeros(missing))
        old = self.state
        self._set_up(old.counters, old.spread.most, self._queued(), old.numbers)

    def _queued(self) -> NDArray[np.float64]:
        """Return the records that wait at each worker; none at one that came or went."""
        queued = np.zeros(len(self.speeds))
        queues = self.state.queues
        here = np.isfinite(queues.waits)
        queued[: len(here)][here] = queues.waits[here] / queues.costs[here]
        return queued

    def _new_queues(self, queued: NDArray[np.float64]) -> Queues:
        active = self.speeds > 0
        service_s = self._service_times()
        waits = np.where(active, queued * service_s / service_s[active].min(), np.inf)
        return kernels.new_queues(waits, service_s, self.interval_s)

    def _set_up(
        self,
        counters: Counters,
        most: NDArray[np.int64],
        queued: NDArray[np.float64],
        numbers: NDArray[np.int64],
    ) -> None:
        """Make the state for the present workers; the counts, M_k and the queues are kept."""
        n = len(self.speeds)
        active = self.speeds > 0
        numbers[ACTIVE] = active.sum()
        slots = self.counters
        spread = Spread(
            most=most,
            made=np.zeros(slots, np.int64),
            workers=np.zeros((slots, n), np.int32),
            widths=np.zeros(slots, np.int64),
            levels=np.zeros(slots),
            ranks=np.zeros(slots, np.int64),
            drains=np.full(slots, -1, np.int64),
        )
        self.state = FishState(
            counters,
            spread,
            self._new_queues(queued),
            new_ring(ring_nodes(active.astype(np.float64), self.nodes), self.seed),
            numbers,
            np.zeros(n + 1, np.int64),
        )

    def _service_times(self) -> NDArray[np.float64]:
        one = self.service_s if self.service_s is not None else self.speeds.sum() / self.rate
        expected = one / np.where(self.speeds > 0, self.speeds, 1.0)
        return np.where(self.sampled_s > 0, self.sampled_s, expected)
