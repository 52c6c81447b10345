"""Every sketch again, slowly: Python integers, lists and dictionaries, and no code of the package.

Each has the parameters of its twin, `update` with one key, `total` and `bounds` of one key; those
that name hot keys have `hot`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from fractions import Fraction

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
BLOOM_SEED = 0x5851F42D4C957F2D
DECLINE_SALT = 0xD1B54A32D192ED03
FULL = 65535


def mix(key: int, seed: int) -> int:
    """Murmur3's finaliser (Appleby's fmix64) over ``key ^ seed``."""
    h = key ^ seed
    h ^= h >> 33
    h = h * 0xFF51AFD7ED558CCD % WORD
    h ^= h >> 33
    h = h * 0xC4CEB9FE1A85EC53 % WORD
    return h ^ (h >> 33)


class Reference(ABC):
    """What the tests ask of a reference."""

    @abstractmethod
    def update(self, key: int) -> None: ...

    @abstractmethod
    def total(self) -> float: ...

    @abstractmethod
    def bounds(self, key: int) -> tuple[float, float]: ...

    def hot(self) -> list[int] | None:
        """Return the keys that are reported as hot, in the order of the report."""
        return None


class ExactReference(Reference):
    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def update(self, key: int) -> None:
        self.counts[key] += 1

    def total(self) -> float:
        return self.counts.total()

    def bounds(self, key: int) -> tuple[float, float]:
        return self.counts[key], self.counts[key]

    def hot(self) -> list[int]:
        return sorted(self.counts, key=lambda key: (-self.counts[key], key))


class SpaceSavingReference(Reference):
    """Slots in the order they were first taken: the least count, then the lowest slot, goes."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.keys: list[int] = []
        self.counts: list[float] = []
        self.errors: list[float] = []
        self.weight = 0.0

    def update(self, key: int) -> None:
        self.weight += 1.0
        if key not in self.keys:
            if len(self.keys) < self.capacity:
                self.keys.append(key)
                self.counts.append(0.0)
                self.errors.append(0.0)
            else:
                least = self.counts.index(min(self.counts))
                self.keys[least] = key
                self.errors[least] = self.counts[least]
        self.counts[self.keys.index(key)] += 1.0

    def total(self) -> float:
        return self.weight

    def bounds(self, key: int) -> tuple[float, float]:
        if key in self.keys:
            slot = self.keys.index(key)
            return self.counts[slot] - self.errors[slot], self.counts[slot]
        return 0.0, min(self.counts) if len(self.keys) == self.capacity else 0.0

    def hot(self) -> list[int]:
        pairs = zip(self.counts, self.keys, strict=True)
        return [key for _, key in sorted(pairs, key=lambda pair: (-pair[0], pair[1]))]


class DecayedSpaceSavingReference(SpaceSavingReference):
    """The first record after ``epoch`` others is preceded by a decay."""

    def __init__(self, capacity: int, epoch: int, alpha: float) -> None:
        super().__init__(capacity)
        self.epoch, self.alpha = epoch, alpha
        self.records = 0

    def update(self, key: int) -> None:
        if self.records and self.records % self.epoch == 0:
            self.counts = [count * self.alpha for count in self.counts]
            self.errors = [error * self.alpha for error in self.errors]
            self.weight *= self.alpha
        self.records += 1
        super().update(key)


class CoinFlipReference(Reference):
    """Coins one by one; a vector is the list of its ones' places."""

    def __init__(self, threshold: int, length: int, ones: int, decline: float, seed: int) -> None:
        self.threshold, self.length, self.ones = threshold, length, ones
        self.decline, self.seed = decline, seed
        self.room = math.ceil(4 / decline) if decline else 65536
        self.vectors: list[tuple[int, set[int]]] = []
        self.records = self.draws = self.dropped = 0

    def flips(self) -> int:
        """Count the heads before the first tail."""
        coins = mix(self.records * GOLDEN % WORD, self.seed)
        heads = 0
        while heads < self.threshold + self.length and coins % 2 == 1:
            coins //= 2
            heads += 1
        return heads

    def passed_over(self) -> int:
        """Draw a geometric number by inversion of a uniform one in (0, 1)."""
        self.draws += 1
        bits = mix(self.draws * GOLDEN % WORD, self.seed ^ DECLINE_SALT) // 2**11
        return int(math.log((bits + 0.5) / 2**53) / math.log1p(-self.decline))

    def update(self, key: int) -> None:
        self.records += 1
        heads = self.flips()
        if heads <= self.threshold:
            return
        bits = next((bits for held, bits in self.vectors if held == key), None)
        if bits is None and len(self.vectors) == self.room:
            self.dropped += 1
        elif bits is None:
            self.vectors.append((key, {heads - self.threshold - 1}))
        else:
            bits.add(heads - self.threshold - 1)
        if self.decline:
            self.shift_some()
            self.forget_empty()

    def shift_some(self) -> None:
        at = len(self.vectors) - 1 - self.passed_over()
        while at >= 0:
            key, bits = self.vectors[at]
            self.vectors[at] = key, {bit - 1 for bit in bits if bit > 0}
            at -= 1 + self.passed_over()

    def forget_empty(self) -> None:
        """From the last to the first; the last one fills the gap."""
        for at in reversed(range(len(self.vectors))):
            if not self.vectors[at][1]:
                last = self.vectors.pop()
                if at < len(self.vectors):
                    self.vectors[at] = last

    def total(self) -> float:
        return self.records

    def bounds(self, key: int) -> tuple[float, float]:
        return sum(len(bits) for held, bits in self.vectors if held == key), self.records

    def hot(self) -> list[int]:
        return sorted(key for key, bits in self.vectors if len(bits) >= self.ones)


class CountingBloomReference(Reference):
    def __init__(self, capacity: int, false_positives: float) -> None:
        cells = -capacity * math.log(false_positives) / math.log(2) ** 2
        self.size = 16
        while self.size < cells:
            self.size *= 2
        self.probes = 1
        while 0.5**self.probes > false_positives:
            self.probes += 1
        self.cells: Counter[int] = Counter()
        self.records = 0

    def places(self, key: int) -> list[int]:
        h = mix(key, BLOOM_SEED)
        return [(h + probe * (h // 2**32 | 1)) % self.size for probe in range(self.probes)]

    def update(self, key: int) -> None:
        self.records += 1
        for place in self.places(key):
            self.cells[place] = min(self.cells[place] + 1, FULL)

    def total(self) -> float:
        return self.records

    def bounds(self, key: int) -> tuple[float, float]:
        least = min(self.cells[place] for place in self.places(key))
        return 0.0, math.inf if least == FULL else least


class CountMinReference(Reference):
    def __init__(self, width: int, depth: int, seed: int) -> None:
        self.width, self.depth, self.seed = width, depth, seed
        self.cells: Counter[tuple[int, int, int]] = Counter()
        self.records = 0

    def cell(self, key: int, epoch: int, row: int) -> tuple[int, int]:
        salt = (self.seed + 1 + epoch) * GOLDEN + row * 0xBF58476D1CE4E5B9
        return row, mix(key, salt % WORD) // 2**32 * self.width // 2**32

    def update(self, key: int) -> None:
        self.records += 1
        for row in range(self.depth):
            self.cells[(*self.cell(key, 0, row), 0)] += 1

    def total(self) -> float:
        return self.records

    def bounds(self, key: int) -> tuple[float, float]:
        return 0.0, min(self.cells[(*self.cell(key, 0, row), 0)] for row in range(self.depth))


class AdaptiveCountMinReference(CountMinReference):
    """Cells keep the counts of every epoch apart; the weights come in when a question is asked."""

    def __init__(
        self, width: int, depth: int, seed: int, epoch: int, window: int, growth: float
    ) -> None:
        super().__init__(width, depth, seed)
        self.epoch, self.window, self.growth = epoch, window, Fraction(growth)

    def epochs(self) -> range:
        """Return the last ``window`` epochs."""
        now = max(0, self.records - 1) // self.epoch
        return range(max(0, now - self.window + 1), now + 1)

    def update(self, key: int) -> None:
        now = self.records // self.epoch
        self.records += 1
        for row in range(self.depth):
            self.cells[(*self.cell(key, now, row), now)] += 1

    def total(self) -> float:
        return self.records - self.epochs()[0] * self.epoch

    def bounds(self, key: int) -> tuple[float, float]:
        now = self.epochs()[-1]
        upper = Fraction(0)
        for asked in self.epochs():
            weights = [self.growth ** (epoch - asked) for epoch in range(now + 1)]
            upper += min(
                sum(
                    (
                        self.cells[(*self.cell(key, asked, row), epoch)] * weight
                        for epoch, weight in enumerate(weights)
                    ),
                    Fraction(0),
                )
                for row in range(self.depth)
            )
        return 0.0, math.ceil(upper)


REFERENCES: dict[str, type[Reference]] = {
    "exact": ExactReference,
    "space-saving": SpaceSavingReference,
    "decayed-space-saving": DecayedSpaceSavingReference,
    "coin-flip": CoinFlipReference,
    "counting-bloom": CountingBloomReference,
    "count-min": CountMinReference,
    "adaptive-count-min": AdaptiveCountMinReference,
}
