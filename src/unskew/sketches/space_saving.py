"""SpaceSaving: the frequent keys of a stream in a fixed number of counters."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from unskew.hashing import Keys
from unskew.kernels import counters as kernels
from unskew.kernels.counters import SIZE, TOTAL, Counters
from unskew.sketches.base import Estimates, Sketch, hottest
from unskew.state import whole, within


@dataclass(repr=False, eq=False)
class SpaceSaving(Sketch):
    """The most frequent keys, each with its count and how much of it may be wrong.

    A key without a counter takes over the least one, count and all, and remembers that count as
    its error. Updates cost O(1) amortised.

    A tracked key's count is too high by at most its error, and no error is above
    ``total / capacity``: every key with a larger count is tracked. Merged sketches keep their
    bounds, and their errors add up.

    Parameters
    ----------
    capacity
        Counters; well above 1 / share for keys of that share to be told apart.

    Examples
    --------
    >>> sketch = SpaceSaving(capacity=2)
    >>> sketch.update([1, 1, 1, 2, 3])
    >>> [bound.tolist() for bound in sketch.bounds([1, 2, 3])]
    [[3.0, 0.0, 1.0], [3.0, 2.0, 2.0]]
    >>> sketch.hot(share=0.5)[0].tolist()
    [1]

    Notes
    -----
    Merging follows Cafaro, Pulimeno and Tempesta, "A parallel space saving algorithm for frequent
    items and the Hurwitz zeta distribution" (2016): a key that only one sketch tracks may have
    come as often as the other's least count, which is added to its count and its error.

    References
    ----------
    Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data
    streams", ICDT 2005.
    """

    capacity: int = 1000
    counters: Counters = field(init=False)

    def __post_init__(self) -> None:
        whole("capacity", self.capacity, 1)
        self.counters = kernels.new_counters(self.capacity)

    @property
    def total(self) -> float:
        """The weight of all records."""
        return float(self.counters.sums[TOTAL])

    def hot(self, share: float = 0.0) -> tuple[Keys, Estimates]:
        """Return the tracked keys with at least this share of the weight, and their counts."""
        size = self._size
        return hottest(self.counters.keys[:size], self.counters.counts[:size], share * self.total)

    @property
    def _size(self) -> int:
        return int(self.counters.sizes[SIZE])

    @property
    def _unseen(self) -> float:
        """How often a key without a counter may have come."""
        return float(self.counters.counts.min()) if self._size == self.capacity else 0.0

    def _update(self, keys: Keys) -> None:
        kernels.count_records(self.counters, keys)

    def _bounds(self, keys: Keys) -> tuple[Estimates, Estimates]:
        slots = np.empty(len(keys), np.int64)
        kernels.look_up(self.counters, keys, slots)
        tracked = slots >= 0
        upper = np.where(tracked, self.counters.counts[slots], self._unseen)
        lower = np.where(tracked, upper - self.counters.errors[slots], 0.0)
        return lower, upper

    def _merge(self, other: SpaceSaving) -> None:
        mine, theirs = self._size, other._size
        keys = np.union1d(self.counters.keys[:mine], other.counters.keys[:theirs])
        low, high = self._bounds(keys)
        other_low, other_high = other._bounds(keys)
        low, high = low + other_low, high + other_high
        kept = np.lexsort((keys, -high))[: self.capacity]
        total = self.total + other.total
        seen = self.counters.sizes[kernels.SEEN]
        # Counts in descending order, so that the slots given away first are the last ones.
        self.counters = kernels.new_counters(self.capacity)
        kernels.load_counters(self.counters, keys[kept], high[kept], (high - low)[kept])
        self.counters.sums[TOTAL] = total
        self.counters.sizes[kernels.SEEN] = seen


@dataclass(repr=False, eq=False)
class DecayedSpaceSaving(SpaceSaving):
    """SpaceSaving whose counts are multiplied by alpha after every epoch: the recently frequent.

    A record that came n epochs ago weighs ``alpha ** n``; `total` and the bounds are of these
    weights, and the guarantees of `SpaceSaving` hold for them. The weight of an endless stream is
    ``epoch / (1 - alpha)`` at most.

    Parameters
    ----------
    capacity
        Counters (K_max).
    epoch
        Records between two decays (N_epoch).
    alpha
        What is left of a count after a decay.

    Examples
    --------
    >>> sketch = DecayedSpaceSaving(capacity=2, epoch=4, alpha=0.5)
    >>> sketch.update([1, 1, 1, 1, 2, 2])
    >>> sketch.estimate([1, 2]).tolist(), sketch.total
    ([2.0, 2.0], 4.0)

    References
    ----------
    FISH (see `unskew.routers.Fish`), Algorithm 1.
    """

    epoch: int = 1000
    alpha: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("epoch", self.epoch, 1)
        within("alpha", self.alpha, 0.0, 1.0)

    def _update(self, keys: Keys) -> None:
        kernels.count_decaying(self.counters, keys, self.epoch, self.alpha)
