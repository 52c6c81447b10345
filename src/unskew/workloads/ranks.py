"""Ranks drawn from Zipf's law, bit for bit as NumPy's ``searchsorted`` draws them, but faster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.streams import draw_ranks

MAX_KEYS = 2**31 - 1


@dataclass(frozen=True, eq=False)
class ZipfRanks:
    """Draws ranks 1..keys with probability proportional to rank ** -z.

    The recipe is ``cdf = cumsum(arange(1, keys + 1) ** -z)``, divided by its last element, and
    ``searchsorted(cdf, random, side="right") + 1``. A guide table over equal slices of
    [0, 1), eight or more a key but at most 2 ** 22, leaves little of the search. Memory: 8 bytes
    a key, and at most 16 MiB for the guide table.

    Parameters
    ----------
    z
        Exponent, 0 (uniform) or more.
    keys
        Number of keys.

    Examples
    --------
    >>> ZipfRanks.of(1.0, 100).draw(np.random.Generator(np.random.PCG64(7)), 8).tolist()
    [14, 59, 31, 2, 3, 52, 1, 40]
    """

    cdf: NDArray[np.float64]
    starts: NDArray[np.int32]

    @classmethod
    def of(cls, z: float, keys: int) -> ZipfRanks:
        """Tabulate the law for one exponent and number of keys."""
        cdf = np.arange(1, keys + 1, dtype=np.float64)
        np.power(cdf, -z, out=cdf)
        np.cumsum(cdf, out=cdf)
        cdf /= cdf[-1]
        slices = 2 ** min((8 * keys).bit_length(), 22)
        starts = np.searchsorted(cdf, np.arange(slices + 1) / slices, side="right")
        return cls(cdf, np.minimum(starts, keys - 1).astype(np.int32))

    def draw(self, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
        """Return the next n ranks."""
        ranks = np.empty(n, np.int64)
        draw_ranks(self.cdf, self.starts, rng.random(n), ranks)
        return ranks

    def shares(self) -> NDArray[np.float64]:
        """Return the probability of each rank."""
        return np.diff(self.cdf, prepend=0.0)
