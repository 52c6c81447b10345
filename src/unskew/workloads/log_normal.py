"""Log-normal keys: the synthetic sets of the PKG paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unskew.state import within
from unskew.workloads.generated import Generated, Ids, Sampler

LARGEST = 2.0**62


@dataclass(frozen=True)
class LogNormal(Generated):
    """Keys round(x), with x log-normal with parameters mu and sigma.

    So key k has share ``P(k - 0.5 < x < k + 0.5)``. This gives the paper's p1 and numbers of keys
    for both of its sets (hottest: key 0 of LN1, key 3 of LN2).

    Parameters
    ----------
    mu, sigma
        Mean and standard deviation of log x.
    records
        Length of the stream.
    seed
        Seed of the random numbers.

    Examples
    --------
    >>> next(LogNormal(mu=1.0, sigma=1.0, seed=1).ids(8)).tolist()
    [4, 6, 4, 1, 7, 4, 2, 5]

    Notes
    -----
    Keys end at 2^62, which a log-normal with a reasonable sigma never reaches.

    References
    ----------
    .. [1] Nasir et al., "The Power of Both Choices: Practical Load Balancing for Distributed
       Stream Processing Engines", section V, Table I.
    """

    kind: ClassVar[str] = "log-normal"

    mu: float = 0.0
    sigma: float = 1.0
    records: int = 10_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        within("mu", self.mu, -100, 100)
        within("sigma", self.sigma, 0, 100)

    def sampler(self) -> Sampler:
        """Return a freshly seeded function that gives the next n integer keys at each call."""
        rng = self.generator()

        def draw(n: int) -> Ids:
            x = np.rint(rng.lognormal(self.mu, self.sigma, n))
            return np.minimum(x, LARGEST).astype(np.int64)

        return draw


@dataclass(frozen=True)
class LN1(LogNormal):
    """Log-normal set LN1 of the PKG paper: 16k keys, p1 = 14.71 %."""

    kind: ClassVar[str] = "ln1"

    mu: float = 1.789
    sigma: float = 2.366


@dataclass(frozen=True)
class LN2(LogNormal):
    """Log-normal set LN2 of the PKG paper: 1.1k keys, p1 = 7.01 %."""

    kind: ClassVar[str] = "ln2"

    mu: float = 2.245
    sigma: float = 1.133
