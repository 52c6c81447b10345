"""Zipf's law, the stream of nearly every figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unskew.state import at_least, within
from unskew.workloads.generated import Generated, Sampler
from unskew.workloads.ranks import MAX_KEYS, ZipfRanks


@dataclass(frozen=True)
class Zipf(Generated):
    """Keys by Zipf's law: key i has probability proportional to i^-z.

    The stream of the reference values in the D-Choices paper's reproduction: bit for bit
    ``searchsorted(cdf, Generator(PCG64(seed)).random(records), side="right") + 1``.

    Parameters
    ----------
    z
        Exponent, 0 (uniform) to 100.
    keys
        Number of keys, 8 bytes of memory each.
    records
        Length of the stream.
    seed
        Seed of the random numbers.

    Examples
    --------
    >>> next(Zipf(z=1.4, keys=10_000, seed=1).ids(8)).tolist()
    [3, 469, 1, 440, 1, 2, 37, 2]
    """

    kind: ClassVar[str] = "zipf"

    z: float = 1.0
    keys: int = 10_000
    records: int = 1_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_law(self.z, self.keys)

    def sampler(self) -> Sampler:
        """Return a freshly seeded function that gives the next n integer keys at each call."""
        ranks, rng = ZipfRanks.of(self.z, self.keys), self.generator()
        return lambda n: ranks.draw(rng, n)


def check_law(z: float, keys: int) -> None:
    """Refuse an exponent or a number of keys that cannot be tabulated."""
    within("z", z, 0, 100)
    at_least("keys", keys, 1)
    within("keys", keys, 1, MAX_KEYS)
