"""A Zipf stream whose keys change places at every interval, by a stated amount of load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import hash_longs
from unskew.kernels.choices import route_first
from unskew.kernels.hashing import hash_seed
from unskew.kernels.streams import swap_ranks
from unskew.state import at_least, within
from unskew.workloads.generated import Generated, Ids, Sampler
from unskew.workloads.ranks import ZipfRanks
from unskew.workloads.zipf import check_law

MAX_PAIRS_PER_KEY = 16
PAIRS_AT_ONCE = 65_536


@dataclass(frozen=True)
class FluctuatingZipf(Generated):
    """Zipf keys that swap frequencies at every interval (generator of the mixed-routing paper).

    At the start of each interval after the first, random pairs of keys on different workers swap
    frequencies until some worker d has ``|L_i(d) - L_(i-1)(d)| / L_i(d) >= f``, with L its share
    of the load under key grouping. A swap that would undo the interval's change so far is left
    out: at the defaults plain random swaps level off near 0.3, short of the paper's f = 1. At most
    16 pairs a key are tried, so an f out of reach (two keys, say) ends with the change there is.

    Parameters
    ----------
    z
        Exponent, 0 (uniform) to 100.
    keys
        Number of keys, 32 bytes of memory each.
    records
        Length of the stream.
    interval
        Records in an interval.
    f
        Fluctuation rate; 0 for none. From 1 on only a worker that loses load can reach it.
    workers
        Workers of the key grouping that the loads refer to.
    seed
        Seed of the random numbers.

    Examples
    --------
    >>> stream = FluctuatingZipf(z=2.0, keys=100, records=8, interval=4, workers=5, seed=6)
    >>> next(stream.ids()).tolist()
    [1, 1, 1, 1, 33, 42, 42, 1]

    References
    ----------
    .. [1] "Parallel Stream Processing Against Workload Skewness and Variance", section V.
    """

    kind: ClassVar[str] = "fluctuating-zipf"

    z: float = 0.85
    keys: int = 1_000_000
    records: int = 10_000_000
    interval: int = 1_000_000
    f: float = 1.0
    workers: int = 15
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_law(self.z, self.keys)
        at_least("interval", self.interval, 1)
        within("f", self.f, 0, 100)
        at_least("workers", self.workers, 1)

    def sampler(self) -> Sampler:
        """Return a freshly seeded function that gives the next n integer keys at each call."""
        places, rng = _Places(self), self.generator()
        left = self.interval

        def draw(n: int) -> Ids:
            nonlocal left
            ids = places.ranks.draw(rng, n)
            at = 0
            while at < n:
                if left == 0:
                    places.fluctuate()
                    left = self.interval
                end = min(at + left, n)
                ids[at:end] = places.keys_by_rank[ids[at:end] - 1] + 1
                left -= end - at
                at = end
            return ids

        return draw


class _Places:
    """Which key holds which rank, and the loads that follow. Keys and ranks count from 0 here."""

    def __init__(self, stream: FluctuatingZipf) -> None:
        self.f = stream.f
        self.ranks = ZipfRanks.of(stream.z, stream.keys)
        self.shares = self.ranks.shares()
        self.keys_by_rank = np.arange(stream.keys)
        self.owners = np.empty(stream.keys, np.int64)
        route_first(hash_longs(self.keys_by_rank + 1), hash_seed(0), stream.workers, self.owners)
        (child,) = np.random.SeedSequence(stream.seed).spawn(1)
        # Not the records' random numbers: the records drawn must not depend on where chunks end.
        self.rng = np.random.Generator(np.random.PCG64(child))
        self.workers = stream.workers

    def loads(self) -> NDArray[np.float64]:
        owners_by_rank = self.owners[self.keys_by_rank]
        loads = np.bincount(owners_by_rank, self.shares, minlength=self.workers)
        return loads.astype(np.float64, copy=False)

    def fluctuate(self) -> None:
        if self.f == 0 or (self.owners == self.owners[0]).all():
            return
        keys = len(self.shares)
        before = self.loads()
        loads = before.copy()
        left = MAX_PAIRS_PER_KEY * keys
        while left > 0:
            pairs = self.rng.integers(0, keys, (min(left, PAIRS_AT_ONCE), 2))
            left -= len(pairs)
            if swap_ranks(
                pairs, self.shares, self.owners, self.keys_by_rank, before, loads, self.f
            ):
                return
