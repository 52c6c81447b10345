"""What a planner is told of an interval, and how it is collected."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.hashing import Keys, as_keys
from unskew.sketches.exact import KeyIndex
from unskew.state import at_least, whole

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Statistics:
    """The keys of an interval with their costs and state, and the workers with their capacities.

    Parameters
    ----------
    keys
        Each key once.
    costs
        What the records of a key cost in the interval, in any unit: c(k).
    state_bytes
        What would have to move with a key, over the window: S(k, w).
    capacities
        How fast each worker is; 0 for one that is not there (any more). One that the plan does
        not know is new.
    fixed
        What each worker has to do besides these keys, and cannot give away: that of keys too many
        to be told apart. Nothing if not given.
    """

    keys: Keys
    costs: Floats
    state_bytes: Floats
    capacities: Floats
    fixed: Floats | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", as_keys(self.keys))
        if self.fixed is None:
            object.__setattr__(self, "fixed", np.zeros(len(self.capacities)))
        for name in ("costs", "state_bytes", "capacities", "fixed"):
            array = np.ascontiguousarray(getattr(self, name), np.float64)
            object.__setattr__(self, name, array)
            if not (np.isfinite(array).all() and (array >= 0).all()):
                raise ValueError(f"{name} must be finite and not negative")
            if name in ("costs", "state_bytes") and array.shape != self.keys.shape:
                raise ValueError(f"{name} must have one entry for each of {len(self.keys)} keys")
        if len(self.fixed) != len(self.capacities):  # type: ignore[arg-type]
            raise ValueError(
                f"fixed must have one entry for each of {len(self.capacities)} workers"
            )
        if not self.capacities.any():
            raise ValueError("at least one worker must have a capacity above 0")


@dataclass
class Window:
    """Counts the records of each key by interval, over the last ``intervals`` of them.

    A record costs ``record_cost``, a key that comes at all ``key_cost``, and a record leaves
    ``record_bytes`` of state until the window has passed it. A key whose state has gone is
    forgotten.

    Examples
    --------
    >>> window = Window(intervals=2)
    >>> window.update([7, 7, 8])
    >>> window.close(capacities=[1, 1]).costs.tolist()
    [2.0, 1.0]
    >>> window.update([8])
    >>> later = window.close(capacities=[1, 1])
    >>> later.costs.tolist(), later.state_bytes.tolist()
    ([0.0, 1.0], [2.0, 2.0])
    """

    intervals: int = 5
    record_cost: float = 1.0
    key_cost: float = 0.0
    record_bytes: float = 1.0
    index: KeyIndex = field(init=False, default_factory=KeyIndex, repr=False)
    counts: NDArray[np.int64] = field(init=False, repr=False)
    """By interval, the one under way first, then by key number."""

    def __post_init__(self) -> None:
        whole("intervals", self.intervals, 1)
        for name in ("record_cost", "key_cost", "record_bytes"):
            at_least(name, getattr(self, name), 0.0)
        self.counts = np.zeros((self.intervals, 0), np.int64)

    def update(self, keys: Any) -> None:
        """Count the records of the interval under way."""
        ids = self.index.number(as_keys(keys))
        missing = len(self.index) - self.counts.shape[1]
        if missing > 0:
            room = max(missing, self.counts.shape[1])
            self.counts = np.pad(self.counts, ((0, 0), (0, room)))
        np.add.at(self.counts[0], ids, 1)

    def close(self, capacities: ArrayLike) -> Statistics:
        """End the interval; return its statistics, with the state of the whole window."""
        counts = self.counts[:, : len(self.index)]
        records, held = counts[0], counts.sum(axis=0)
        statistics = Statistics(
            self.index.keys(),
            self.record_cost * records + self.key_cost * (records > 0),
            self.record_bytes * held,
            np.asarray(capacities, np.float64),
        )
        # The oldest interval leaves the window, and with it keys that came in it only.
        alive = held > counts[-1]
        kept = np.zeros((self.intervals, int(alive.sum())), np.int64)
        kept[1:] = counts[:-1, alive]
        if not alive.all():
            self.index = KeyIndex()
            self.index.number(statistics.keys[alive])
        self.counts = kept
        return statistics
