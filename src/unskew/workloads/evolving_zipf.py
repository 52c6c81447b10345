"""A Zipf stream whose ranks turn over once: the hottest keys become the coldest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unskew.state import within
from unskew.workloads.generated import Generated, Ids, Sampler
from unskew.workloads.ranks import ZipfRanks
from unskew.workloads.zipf import check_law


@dataclass(frozen=True)
class EvolvingZipf(Generated):
    """Zipf keys whose ranks reverse late in the stream (ZF of the FISH paper).

    Until ``shift`` of the records key i has probability proportional to i^-z, from there on
    (keys - i + 1)^-z.

    Parameters
    ----------
    z
        Exponent, 0 (uniform) to 100; the paper takes 1.0 to 2.0.
    keys
        Number of keys, 8 bytes of memory each.
    records
        Length of the stream.
    shift
        Share of the records before the reversal.
    seed
        Seed of the random numbers.

    Examples
    --------
    >>> next(EvolvingZipf(z=2.0, keys=100, records=10, seed=1).ids()).tolist()
    [1, 11, 1, 11, 1, 1, 3, 1, 100, 100]

    Notes
    -----
    The paper prints i^-z for both parts; the reversal is our reading of its second line.

    References
    ----------
    .. [1] "Efficient Time-Evolving Stream Processing at Scale" (FISH), Table 2 and "Datasets".
    """

    kind: ClassVar[str] = "evolving-zipf"

    z: float = 1.0
    keys: int = 100_000
    records: int = 50_000_000
    shift: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_law(self.z, self.keys)
        within("shift", self.shift, 0, 1)

    def sampler(self) -> Sampler:
        """Return a freshly seeded function that gives the next n integer keys at each call."""
        ranks, rng = ZipfRanks.of(self.z, self.keys), self.generator()
        ahead = round(self.shift * self.records)

        def draw(n: int) -> Ids:
            nonlocal ahead
            ids = ranks.draw(rng, n)
            reversed_part = ids[max(ahead, 0) :]
            reversed_part[:] = self.keys + 1 - reversed_part
            ahead -= n
            return ids

        return draw
