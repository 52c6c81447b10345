"""Parameters and streams that make small sketches work hard, and what is true of a stream."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import strategies as st

# Multiples of the inverse of the golden multiplier crowd around slot 0 of a hash table.
INVERSE = pow(0x9E3779B97F4A7C15, -1, 2**64)
ODD_KEYS = [0, 2**63, 2**64 - 1, *(INVERSE * offset % 2**64 for offset in range(-3, 4))]
ASKED = [*range(20), *ODD_KEYS]

keys = st.integers(0, 3) | st.integers(0, 19) | st.sampled_from(ODD_KEYS)
streams = st.lists(keys, max_size=150)
seeds = st.integers(0, 2**63 - 1)

PARAMETERS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "exact": st.just({}),
    "space-saving": st.fixed_dictionaries({"capacity": st.integers(1, 8)}),
    "decayed-space-saving": st.fixed_dictionaries(
        {
            "capacity": st.integers(1, 8),
            "epoch": st.integers(1, 40),
            "alpha": st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]),
        }
    ),
    "coin-flip": st.fixed_dictionaries(
        {
            "threshold": st.integers(0, 2),
            "length": st.integers(2, 8),
            "ones": st.integers(1, 2),
            "decline": st.sampled_from([0.0, 0.05, 0.3, 0.5]),
            "seed": seeds,
        }
    ),
    "counting-bloom": st.fixed_dictionaries(
        {"capacity": st.integers(1, 30), "false_positives": st.sampled_from([0.01, 0.3, 0.7])}
    ),
    "count-min": st.fixed_dictionaries(
        {"width": st.integers(1, 12), "depth": st.integers(1, 3), "seed": seeds}
    ),
    "adaptive-count-min": st.fixed_dictionaries(
        {
            "width": st.integers(1, 12),
            "depth": st.integers(1, 3),
            "seed": seeds,
            "epoch": st.integers(8, 40),
            "window": st.integers(1, 4),
            "growth": st.sampled_from([1.5, 2.0, 3.7]),
        }
    ),
}

# Small, so that their memory is full soon; one other value for each parameter.
SMALL: dict[str, dict[str, Any]] = {
    "exact": {},
    "space-saving": {"capacity": 7},
    "decayed-space-saving": {"capacity": 7, "epoch": 50, "alpha": 0.5},
    "coin-flip": {"threshold": 0, "length": 8, "ones": 2, "decline": 0.1, "seed": 3},
    "counting-bloom": {"capacity": 50, "false_positives": 0.02},
    "count-min": {"width": 32, "depth": 3, "seed": 5},
    "adaptive-count-min": {
        "width": 32,
        "depth": 3,
        "seed": 5,
        "epoch": 60,
        "window": 2,
        "growth": 1.5,
    },
}
OTHER: dict[str, Any] = {
    "capacity": 9,
    "epoch": 70,
    "alpha": 0.25,
    "threshold": 1,
    "length": 9,
    "ones": 1,
    "decline": 0.2,
    "seed": 6,
    "false_positives": 0.1,
    "width": 33,
    "depth": 4,
    "window": 3,
    "growth": 2.0,
}


class Truth:
    """The weights of the keys: here, how often each came."""

    def __init__(self) -> None:
        self.weights: Counter[int] = Counter()

    def update(self, key: int) -> None:
        self.weights[key] += 1

    def merge(self, other: Any) -> None:
        self.weights.update(other.weights)

    def total(self) -> float:
        return float(sum(self.weights.values()))

    def of(self, key: int) -> float:
        return float(self.weights[key])


class DecayedTruth(Truth):
    """Every record by itself: its key and how many decays it has seen."""

    def __init__(self, epoch: int, alpha: float) -> None:
        self.epoch, self.alpha = epoch, alpha
        self.seen = 0
        self.records: list[tuple[int, int]] = []

    def update(self, key: int) -> None:
        if self.seen == self.epoch:
            self.records = [(held, age + 1) for held, age in self.records]
            self.seen = 0
        self.seen += 1
        self.records.append((key, 0))

    def merge(self, other: Any) -> None:
        self.records += other.records

    def total(self) -> float:
        return sum(self.alpha**age for _, age in self.records)

    def of(self, key: int) -> float:
        return sum(self.alpha**age for held, age in self.records if held == key)


class WindowTruth(Truth):
    """Every record by itself: its key and its epoch; only the last epochs count."""

    def __init__(self, epoch: int, window: int) -> None:
        self.epoch, self.window = epoch, window
        self.now, self.filled = 0, 0
        self.records: list[tuple[int, int]] = []

    def update(self, key: int) -> None:
        if self.filled == self.epoch:
            self.now, self.filled = self.now + 1, 0
        self.filled += 1
        self.records.append((key, self.now))

    def merge(self, other: Any) -> None:
        self.records += other.records
        self.now, self.filled = max((self.now, self.filled), (other.now, other.filled))

    def total(self) -> float:
        return float(sum(epoch > self.now - self.window for _, epoch in self.records))

    def of(self, key: int) -> float:
        recent = (held for held, epoch in self.records if epoch > self.now - self.window)
        return float(sum(held == key for held in recent))


def truth_of(name: str, parameters: dict[str, Any]) -> Truth:
    """Return what a sketch's counts are to be held against."""
    if name == "decayed-space-saving":
        return DecayedTruth(parameters["epoch"], parameters["alpha"])
    if name == "adaptive-count-min":
        return WindowTruth(parameters["epoch"], parameters["window"])
    return Truth()
