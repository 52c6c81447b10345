"""D-Choices, W-Choices and Round-Robin: more than two choices for the head of the stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from unskew.hashing import Keys
from unskew.kernels import head as kernels
from unskew.kernels.counters import look_up
from unskew.kernels.head import CHOICES, NEXT_SOLUTION, TURN, HeadRule, HeadState
from unskew.routers.base import HOT_KEYS, Router, Workers, start_of
from unskew.state import at_least, whole, within


@dataclass(repr=False, eq=False)
class HeadRouter(Router):
    """Tail keys by PKG, head keys (estimated share >= theta) by the scheme's own rule.

    Each source finds its head with SpaceSaving and balances the loads that it gives.

    Parameters
    ----------
    n_workers, seed, source
        As of every router.
    theta
        The share that makes a key a head key; 1/(5n) if not given. PKG balances what is below.
    capacity
        SpaceSaving's counters; 4/theta and at least 1,000 if not given. With fewer than 1/theta
        every new key would pass for a head key.
    warm_up
        Records before which shares are taken of this number instead of the records seen; 10/theta
        if not given. So no key is a head key before it came ten times.
    """

    theta: float | None = None
    capacity: int | None = None
    warm_up: int | None = None
    state: HeadState = field(init=False)
    scheme: ClassVar[int]
    planned: ClassVar[str | None] = HOT_KEYS

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.theta is None:
            self.theta = 1.0 / (5 * self.n_workers)
        within("theta", self.theta, 1e-9, 1.0)
        if self.capacity is None:
            self.capacity = max(1000, round(4 / self.theta))
        if self.warm_up is None:
            self.warm_up = round(10 / self.theta)
        whole("capacity", self.capacity, 1)
        at_least("warm_up", self.warm_up, 0)
        self.state = kernels.new_head_state(self.n_workers, self.capacity)
        self.state.due[NEXT_SOLUTION] = self.warm_up
        self.state.numbers[TURN] = start_of(self.seed, self.source, self.n_workers)

    @property
    def rule(self) -> HeadRule:
        """The parameters, as the kernels take them."""
        assert self.theta is not None
        assert self.warm_up is not None
        return HeadRule(self.theta, self._epsilon, float(self.warm_up), self._prime)

    @property
    def _epsilon(self) -> float:
        return 0.0

    def head(self) -> Keys:
        """Return the head keys, the most frequent first."""
        counters = self.state.counters
        order = np.lexsort((counters.keys, -counters.counts))
        hot = (counters.counts >= self._floor()) & (counters.counts > 0)
        return counters.keys[order][hot[order]]

    def _floor(self) -> float:
        return float(kernels.head_floor(self.state.counters, self.rule))

    def _candidates(self, key: np.uint64) -> Workers:
        slot = np.empty(1, np.int64)
        look_up(self.state.counters, np.array([key], np.uint64), slot)
        hot = slot[0] >= 0 and self.state.counters.counts[slot[0]] >= self._floor()
        return self._choices(key, int(self.state.numbers[CHOICES]) if hot else 2)

    def _route(self, keys: Keys, out: Workers) -> None:
        kernels.route_head(keys, self._hash_seed, self.state, self.rule, self.scheme, out)


@dataclass(repr=False, eq=False)
class DChoices(HeadRouter):
    """The head gets d choices: the fewest with which no part of it overloads its workers.

    d is the least number, from max(2, p1 n) on, that satisfies the constraint of the poster for
    every prefix h of the head (p_i: estimated shares; b_h: expected number of workers among h d
    random choices, with repetition)::

        p_1 + .. + p_h + (b_h/n)^d (p_h+1 + .. + p_|H|) + (b_h/n)^2 p_tail <= b_h/n + epsilon
        b_h = n - n ((n - 1)/n)^(h d)

    From d = n/2 on all workers are taken: that is W-Choices. A head key is on at most d workers,
    any other on two.

    Parameters
    ----------
    n_workers, seed, source, theta, capacity, warm_up
        As of `HeadRouter`.
    epsilon
        The imbalance that is tolerated, as a fraction of the records.

    Examples
    --------
    >>> router = DChoices(n_workers=50)
    >>> stream = np.random.default_rng(1).zipf(1.2, 20_000)
    >>> workers = router.route(stream)
    >>> router.choices, router.head().tolist()[:4]
    (14, [1, 2, 3, 4])

    Notes
    -----
    d is n during the warm-up, and is then solved anew whenever the source has seen 5 % more
    records: shares of the whole stream cannot change faster than that. Candidates are distinct, so
    the head reaches more workers than b_h says. The constraint speaks of the average over all hash
    functions; a source whose own imbalance is above epsilon and growing adds to d. Of equally
    loaded candidates the first in the key's own order is taken, which makes fewer key-worker pairs
    than an order by worker.

    References
    ----------
    Nasir, De Francisci Morales, Kourtellis and Serafini, "When two choices are not enough:
    balancing at scale in distributed stream processing", ICDE 2016.
    """

    epsilon: float = 1e-4
    scheme: ClassVar[int] = kernels.D_CHOICES

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("epsilon", self.epsilon, 0.0)

    @property
    def _epsilon(self) -> float:
        return self.epsilon

    @property
    def choices(self) -> int:
        """The present d."""
        return int(self.state.numbers[CHOICES])


@dataclass(repr=False, eq=False)
class WChoices(HeadRouter):
    """The head may go to every worker: each of its records to the least loaded of all.

    The imbalance stays at a record or two a source as long as the head can fill the gaps that the
    tail leaves. A head key is on up to n workers, any other on two.

    Parameters
    ----------
    n_workers, seed, source, theta, capacity, warm_up
        As of `HeadRouter`.

    Examples
    --------
    >>> router = WChoices(n_workers=4, warm_up=0)
    >>> sorted(router.route([7] * 8).tolist())
    [0, 0, 1, 1, 2, 2, 3, 3]

    Notes
    -----
    Of equally loaded workers the first in the key's own order is taken, see `DChoices`.

    References
    ----------
    See `DChoices`.
    """

    scheme: ClassVar[int] = kernels.W_CHOICES


@dataclass(repr=False, eq=False)
class RoundRobinHead(HeadRouter):
    """The head by round robin over all workers, whatever their loads; the tail by PKG.

    Balances the head alone: what the tail leaves uneven stays.

    Parameters
    ----------
    n_workers, seed, source, theta, capacity, warm_up
        As of `HeadRouter`.

    Examples
    --------
    >>> RoundRobinHead(n_workers=4, warm_up=0).route([7] * 5).tolist()
    [3, 0, 1, 2, 3]

    References
    ----------
    The baseline "RR" of `DChoices`' paper.
    """

    scheme: ClassVar[int] = kernels.ROUND_ROBIN
