"""The coin-flip synopsis of DStream: the keys that are hot now, without counting."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels import coin_flip as kernels
from unskew.kernels.coin_flip import DROPPED, RECORDS, SIZE, CoinRule, Synopsis
from unskew.sketches.base import Estimates, Sketch
from unskew.state import within

ROOM_WITHOUT_DECLINE = 1 << 16


@dataclass(repr=False, eq=False)
class CoinFlip(Sketch):
    """A bit vector for each key that had luck with coins, and hot keys had it more than once.

    For every record a coin is flipped until the first tail. More than r heads, say t, set bit
    ``t - r - 1`` of the key's vector; a key with at least ``ones`` bits is hot. After each such
    update every vector shifts right with probability p, and one without bits is dropped.

    With two ones and no decline, a hot key has come at least 2^c times with a probability above
    ``(1 + 2^(c - r)) exp(-2^(c - r))``. With decline, a key whose share of the records stays above
    2p is kept with high probability. Theorem 3 says that the synopsis then holds fewer than 1/p
    keys; measured are up to 2/p where keys hardly repeat, for a new vector needs two shifts on
    average to be empty. There is room for 4/p.

    Parameters
    ----------
    threshold
        r: heads that do not count yet.
    length
        l: bits of a vector; t is at most r + l.
    ones
        zeta: bits that make a key hot.
    decline
        p: the chance of a vector to shift at an update, 1e-5 to 0.5; 0 for never.
    seed
        Of the coins.

    Examples
    --------
    >>> synopsis = CoinFlip(threshold=2, seed=1)
    >>> synopsis.update([7] * 100 + [8, 9])
    >>> synopsis.hot().tolist()
    [7]

    Notes
    -----
    The paper lets a key leave the hot set when its vector is empty; here it leaves with the last
    but one of its needed ones, so that hot is what the vector says. The coins of the i-th record
    are bits of a hash of i and the seed: a replay flips the same.

    References
    ----------
    DStream (see `unskew.routers.DStream`), sections III and IV, theorems 1 to 3.
    """

    threshold: int = 6
    length: int = 16
    ones: int = 2
    decline: float = 0.01
    seed: int = 0
    synopsis: Synopsis = field(init=False)

    def __post_init__(self) -> None:
        within("threshold", self.threshold, 0, 62)
        within("length", self.length, 1, 63 - self.threshold)
        within("ones", self.ones, 1, self.length)
        within("seed", self.seed, 0, 2**64 - 1)
        if self.decline:
            within("decline", self.decline, 1e-5, 0.5)
        room = math.ceil(4 / self.decline) if self.decline else ROOM_WITHOUT_DECLINE
        self.synopsis = kernels.new_synopsis(room)

    @property
    def rule(self) -> CoinRule:
        """The parameters, as the kernels take them."""
        return CoinRule(
            self.threshold, self.length, self.ones, float(self.decline), np.uint64(self.seed)
        )

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.synopsis.numbers[RECORDS])

    @property
    def dropped(self) -> int:
        """Keys that found no room among four times the vectors that theorem 3 allows."""
        return int(self.synopsis.numbers[DROPPED])

    def __len__(self) -> int:
        return int(self.synopsis.numbers[SIZE])

    def hot(self) -> Keys:
        """Return the keys that are hot now, smallest first."""
        return np.sort(self.synopsis.keys[: len(self)][self.synopsis.hot[: len(self)]])

    def _vectors(self, keys: Keys) -> NDArray[np.uint64]:
        vectors = np.empty(len(keys), np.uint64)
        kernels.vectors_of(self.synopsis, keys, vectors)
        return vectors

    def _update(self, keys: Keys) -> None:
        kernels.observe_all(self.synopsis, self.rule, keys)

    def _bounds(self, keys: Keys) -> tuple[Estimates, Estimates]:
        # Every bit was set by a record of its own, and shifting sets none.
        lower = self._ones(self._vectors(keys)).astype(np.float64)
        return lower, np.full(len(keys), self.total)

    def _merge(self, other: CoinFlip) -> None:
        keys = np.union1d(
            self.synopsis.keys[: len(self)], other.synopsis.keys[: len(other)]
        ).astype(np.uint64)
        vectors = self._vectors(keys) | other._vectors(keys)
        kept = np.lexsort((keys, -self._ones(vectors)))[: len(self.synopsis.keys)]
        numbers = self.synopsis.numbers.copy()
        numbers[[RECORDS, DROPPED]] += other.synopsis.numbers[[RECORDS, DROPPED]]
        numbers[DROPPED] += len(keys) - len(kept)
        self.synopsis = kernels.new_synopsis(len(self.synopsis.keys))
        self.synopsis.numbers[:] = numbers
        kernels.load_vectors(self.synopsis, self.rule, keys[kept], vectors[kept])

    @staticmethod
    def _ones(vectors: NDArray[np.uint64]) -> NDArray[np.int64]:
        bits = vectors.astype("<u8").view(np.uint8).reshape(-1, 8)
        ones: NDArray[np.int64] = np.unpackbits(bits, axis=1).sum(axis=1, dtype=np.int64)
        return ones
