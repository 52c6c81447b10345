"""No skew at all: the control."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from unskew.state import at_least, within
from unskew.workloads.generated import Generated, Sampler


@dataclass(frozen=True)
class Uniform(Generated):
    """Keys 1..keys, all equally likely.

    Parameters
    ----------
    keys
        Number of keys.
    records
        Length of the stream.
    seed
        Seed of the random numbers.

    Examples
    --------
    >>> next(Uniform(keys=100, seed=1).ids(8)).tolist()
    [48, 52, 76, 96, 4, 15, 83, 95]
    """

    kind: ClassVar[str] = "uniform"

    keys: int = 10_000
    records: int = 1_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("keys", self.keys, 1)
        within("keys", self.keys, 1, 2**63 - 1)

    def sampler(self) -> Sampler:
        """Return a freshly seeded function that gives the next n integer keys at each call."""
        rng = self.generator()
        return lambda n: rng.integers(1, self.keys, n, endpoint=True)
