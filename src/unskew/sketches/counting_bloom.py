"""Counting Bloom filter: a set of keys from which keys can be taken again."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys, as_keys
from unskew.kernels import bloom as kernels
from unskew.sketches.base import Estimates, Sketch
from unskew.state import whole


@dataclass(repr=False, eq=False)
class CountingBloom(Sketch):
    """A multiset of keys, sized for a stated rate of false positives.

    A key that is in is always found. With up to ``capacity`` keys in, one that is not is taken
    for one that is with a probability of about ``false_positives`` at most. A counter that
    reached 65,535 stays there.

    Parameters
    ----------
    capacity
        Keys that the filter is sized for.
    false_positives
        The rate aimed at with ``capacity`` keys in.

    Examples
    --------
    >>> bloom = CountingBloom(capacity=100)
    >>> bloom.update([1, 2])
    >>> bloom.remove([2])
    >>> bloom.contains([1, 2]).tolist()
    [True, False]

    References
    ----------
    Fan, Cao, Almeida and Broder, "Summary cache: a scalable wide-area web cache sharing protocol",
    IEEE/ACM Trans. Networking 8(3), 2000.
    """

    capacity: int = 1000
    false_positives: float = 0.01
    counts: NDArray[np.uint16] = field(init=False)
    members: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        whole("capacity", self.capacity, 1)
        if not 0.0 < self.false_positives < 1.0:
            raise ValueError(f"false_positives must be between 0 and 1, got {self.false_positives}")
        cells = self.capacity * math.log(1 / self.false_positives) / math.log(2) ** 2
        self.counts = np.zeros(1 << max(4, math.ceil(math.log2(cells))), np.uint16)
        self.members = np.zeros(1, np.int64)

    @property
    def probes(self) -> int:
        """Counters of a key."""
        return max(1, math.ceil(math.log2(1 / self.false_positives)))

    @property
    def total(self) -> float:
        """Keys that are in, counted as often as they were put in."""
        return float(self.members[0])

    def contains(self, keys: Any) -> NDArray[np.bool_]:
        """Say of each key whether it is in: never a false no."""
        return self.estimate(keys) > 0

    def remove(self, keys: Any) -> None:
        """Take keys out, each as often as it is given; refuse if one is seen not to be in."""
        wanted = as_keys(keys)
        before = self.counts.copy()
        refused = kernels.remove_keys(self.counts, self.probes, wanted)
        if refused:
            self.counts[:] = before
            raise KeyError(f"{refused} of {len(wanted)} keys are not in the filter")
        self.members -= len(wanted)

    def _update(self, keys: Keys) -> None:
        kernels.add_keys(self.counts, self.probes, keys)
        self.members += len(keys)

    def _bounds(self, keys: Keys) -> tuple[Estimates, Estimates]:
        least = np.empty(len(keys), np.int64)
        kernels.multiplicities(self.counts, self.probes, keys, least)
        upper = np.where(least == kernels.FULL, np.inf, least)
        return np.zeros(len(keys)), upper

    def _merge(self, other: CountingBloom) -> None:
        sums = self.counts.astype(np.int64) + other.counts
        self.counts = np.minimum(sums, kernels.FULL).astype(np.uint16)
        self.members += other.members
