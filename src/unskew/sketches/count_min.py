"""Count-min sketches: the plain one, and one that knows recent counts better than old ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels.count_min import add_least_cells, add_to_cells, salt_of
from unskew.sketches.base import Estimates, Sketch
from unskew.state import whole, within

MOST_LOG_WEIGHT = math.log(1e100)


@dataclass(repr=False, eq=False)
class CountMin(Sketch):
    """Counts in a few rows of cells, shared by the keys that hash alike.

    A count is never too low, and too high by more than ``e / width * total`` with a probability
    of at most ``exp(-depth)``.

    Parameters
    ----------
    width
        Cells in a row.
    depth
        Rows.
    seed
        Of the hash functions.

    Examples
    --------
    >>> sketch = CountMin(width=64, depth=4)
    >>> sketch.update([1, 1, 2])
    >>> sketch.estimate([1, 2, 3]).tolist()
    [2.0, 1.0, 0.0]

    References
    ----------
    Cormode and Muthukrishnan, "An improved data stream summary: the count-min sketch and its
    applications", J. Algorithms 55(1), 2005.
    """

    width: int = 2048
    depth: int = 4
    seed: int = 0
    cells: NDArray[np.float64] = field(init=False)
    records: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        whole("width", self.width, 1)
        whole("depth", self.depth, 1)
        within("seed", self.seed, 0, 2**64 - 1)
        self.cells = np.zeros((self.depth, self.width))
        self.records = np.zeros(1, np.int64)

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.records[0])

    def _update(self, keys: Keys) -> None:
        add_to_cells(self.cells, keys, salt_of(self.seed, 0), 1.0)
        self.records += len(keys)

    def _bounds(self, keys: Keys) -> tuple[Estimates, Estimates]:
        upper = np.zeros(len(keys))
        add_least_cells(self.cells, keys, salt_of(self.seed, 0), 1.0, upper)
        return np.zeros(len(keys)), upper

    def _merge(self, other: CountMin) -> None:
        self.cells += other.cells
        self.records += other.records


@dataclass(repr=False, eq=False)
class AdaptiveCountMin(Sketch):
    """A count-min sketch that hashes (key, epoch) pairs and gives recent epochs more weight.

    A record of epoch t adds ``growth ** t`` to its cells, and a question about epoch t divides by
    it: what collides from an epoch n earlier weighs only ``growth ** -n``. The counts reported,
    and `total`, are those of the last ``window`` epochs, the present one included. They are never
    too low; that of the epoch n before the present one is too high by more than ``growth**n * e /
    width * epoch * growth / (growth - 1)`` with a probability of at most ``exp(-depth)``, however
    long the stream.

    Parameters
    ----------
    width, depth, seed
        As of `CountMin`.
    epoch
        Records of an epoch.
    window
        Epochs that a reported count goes back.
    growth
        Weight of an epoch over that of the one before (the pre-emphasis f(t) = growth^t).

    Examples
    --------
    >>> sketch = AdaptiveCountMin(width=64, epoch=3, window=1)
    >>> sketch.update([1, 1, 1, 2, 2])
    >>> sketch.estimate([1, 2]).tolist()
    [0.0, 2.0]

    Notes
    -----
    Two sketches are merged epoch by epoch: the third epoch of one with the third of the other.

    References
    ----------
    Shrivastava, König and Bilenko, "Time adaptive sketches (Ada-Sketches) for summarizing data
    streams", SIGMOD 2016.
    """

    width: int = 2048
    depth: int = 4
    seed: int = 0
    epoch: int = 10_000
    window: int = 2
    growth: float = 1.5
    cells: NDArray[np.float64] = field(init=False)
    clock: NDArray[np.int64] = field(init=False)
    sizes: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        for name, value in self.parameters().items():
            if name not in ("seed", "growth"):
                whole(name, value, 1)
        within("seed", self.seed, 0, 2**64 - 1)
        if not (self.growth > 1.0 and self.window * math.log(self.growth) < MOST_LOG_WEIGHT):
            raise ValueError(
                "growth must be above 1 and growth**window below 1e100, "
                f"got growth={self.growth} and window={self.window}"
            )
        self.cells = np.zeros((self.depth, self.width))
        # The present epoch, the epoch of weight 1, and the records of the present epoch so far.
        self.clock = np.zeros(3, np.int64)
        # The records of the last epochs, the present one last.
        self.sizes = np.zeros(self.window, np.int64)

    @property
    def total(self) -> float:
        """The records of the last ``window`` epochs."""
        return float(self.sizes.sum())

    def _weight(self, epoch: int) -> float:
        return float(self.growth ** (epoch - int(self.clock[1])))

    def _shrunk(self, epoch: int) -> float:
        """Return what is left of a weight when a later epoch becomes the one of weight 1."""
        return float(self.growth ** (int(self.clock[1]) - epoch))

    def _advance(self, epochs: int) -> None:
        for _ in range(min(epochs, self.window)):
            self.sizes = np.append(self.sizes[1:], 0)
        self.clock[0] += epochs
        if (self.clock[0] - self.clock[1]) * math.log(self.growth) > MOST_LOG_WEIGHT:
            self._rebase(int(self.clock[0]))

    def _rebase(self, epoch: int) -> None:
        """Make an epoch the one of weight 1, if that is later than the present one."""
        if epoch > self.clock[1]:
            self.cells *= self._shrunk(epoch)
            self.clock[1] = epoch

    def _update(self, keys: Keys) -> None:
        while len(keys):
            if self.clock[2] == self.epoch:
                self._advance(1)
                self.clock[2] = 0
            part, keys = np.split(keys, [self.epoch - int(self.clock[2])])
            now = int(self.clock[0])
            add_to_cells(self.cells, part, salt_of(self.seed, now), self._weight(now))
            self.clock[2] += len(part)
            self.sizes[-1] += len(part)

    def _bounds(self, keys: Keys) -> tuple[Estimates, Estimates]:
        upper = np.zeros(len(keys))
        now = int(self.clock[0])
        for epoch in range(max(0, now - self.window + 1), now + 1):
            scale = 1.0 / self._weight(epoch)
            add_least_cells(self.cells, keys, salt_of(self.seed, epoch), scale, upper)
        # Weights are powers of a fraction: what they left of whole numbers is rounded up.
        return np.zeros(len(keys)), np.ceil(upper * (1 - 1e-9))

    def _merge(self, other: AdaptiveCountMin) -> None:
        ahead = int(other.clock[0] - self.clock[0])
        if ahead > 0:
            self._advance(ahead)
            self.clock[2] = other.clock[2]
        elif ahead == 0:
            self.clock[2] = max(self.clock[2], other.clock[2])
        base = max(int(self.clock[1]), int(other.clock[1]))
        self._rebase(base)
        self.cells += other.cells * other._shrunk(base)
        behind = max(0, -ahead)
        if behind < self.window:
            self.sizes[: self.window - behind] += other.sizes[behind:]
