"""Zipf streams with a given share of the hottest key, for data sets that cannot be had."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unskew.state import at_least
from unskew.workloads.generated import Generated, Sampler
from unskew.workloads.ranks import ZipfRanks
from unskew.workloads.zipf import check_law

EXACT_TERMS = 1_000


@dataclass(frozen=True)
class Matched(Generated):
    """Zipf keys whose exponent gives the hottest key a share of p1.

    Stands in for a data set of which only records, keys and p1 are known.

    Parameters
    ----------
    p1
        Share of the hottest key, from 1/keys to below 1.
    keys
        Number of keys, 8 bytes of memory each; at least 2.
    records
        Length of the stream.
    seed
        Seed of the random numbers.

    Examples
    --------
    >>> stream = Matched(p1=0.0932, keys=10_000, seed=1)
    >>> round(stream.z, 4)
    0.9792
    >>> next(stream.ids(8)).tolist()
    [108, 6436, 3, 6333, 15, 45, 2121, 39]
    """

    kind: ClassVar[str] = "matched"

    p1: float = 0.1
    keys: int = 10_000
    records: int = 1_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("keys", self.keys, 2)
        check_law(0.0, self.keys)
        if not 1 / self.keys <= self.p1 < 1:
            raise ValueError(
                f"p1 must be at least 1/keys = {1 / self.keys:.6g} and below 1, got {self.p1}"
            )

    @property
    def z(self) -> float:
        """The exponent whose hottest key has share p1."""
        return matching_exponent(self.p1, self.keys)

    def sampler(self) -> Sampler:
        """Return a freshly seeded function that gives the next n integer keys at each call."""
        ranks, rng = ZipfRanks.of(self.z, self.keys), self.generator()
        return lambda n: ranks.draw(rng, n)

    def describe(self) -> dict[str, Any]:
        """Return kind, spec and parameters, and the exponent."""
        return {**super().describe(), "z": self.z}


def matching_exponent(p1: float, keys: int) -> float:
    """Return z with ``1 / sum(i ** -z for i in 1..keys) == p1``, by bisection."""
    low, high = 0.0, 64.0
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return middle
        if power_sum(middle, keys) * p1 > 1:
            low = middle
        else:
            high = middle


def power_sum(z: float, keys: int) -> float:
    """Return ``sum(i ** -z for i in 1..keys)``, to about 1e-12, in constant time.

    The first terms are added up, the others follow from Euler and Maclaurin's formula.
    """
    n = min(keys, EXACT_TERMS)
    head = float(np.sum(np.arange(1, n + 1, dtype=np.float64) ** -z))
    if keys == n:
        return head
    stretch = math.log(keys / n)
    # (keys^(1-z) - n^(1-z)) / (1 - z), which tends to log(keys / n) as z tends to 1.
    slope = 1 - z
    integral = n**slope * (math.expm1(slope * stretch) / slope if slope else stretch)
    ends = (keys**-z - n**-z) / 2 - z / 12 * (keys ** (-z - 1) - n ** (-z - 1))
    return float(head + integral + ends)


@dataclass(frozen=True)
class WP(Matched):
    """Like the Wikipedia page views of the PKG paper: 22M records, 2.9M keys, p1 = 9.32 %."""

    kind: ClassVar[str] = "wp"

    p1: float = 0.0932
    keys: int = 2_900_000
    records: int = 22_000_000


@dataclass(frozen=True)
class TW(Matched):
    """Like the Twitter words of the PKG paper: 1.2G records, 31M keys, p1 = 2.67 %."""

    kind: ClassVar[str] = "tw"

    p1: float = 0.0267
    keys: int = 31_000_000
    records: int = 1_200_000_000


@dataclass(frozen=True)
class CT(Matched):
    """Like the cashtags of the PKG paper: 690k records, 2.9k keys, p1 = 3.29 %."""

    kind: ClassVar[str] = "ct"

    p1: float = 0.0329
    keys: int = 2_900
    records: int = 690_000


@dataclass(frozen=True)
class LJ(Matched):
    """Like the LiveJournal graph of the PKG paper: 69M records, 4.9M keys, p1 = 0.29 %.

    The paper's p1 of its graphs is taken over the vertices. As a share of the records the hottest
    vertex has 0.02 %: ``lj:p1=0.0002``.
    """

    kind: ClassVar[str] = "lj"

    p1: float = 0.0029
    keys: int = 4_900_000
    records: int = 69_000_000
