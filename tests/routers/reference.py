"""Every router again: slow, in plain Python, and without a line of the package's own code.

Each class follows the docstring of its scheme. Searches are scans, tables are dicts and lists, and
64-bit numbers are Python's integers with a mask. Sums and products stand in the order in which the
kernels take them, so that floats come out equal to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from routers.primitives import (
    GOLDEN,
    Bloom,
    Counters,
    Reference,
    least,
    mix,
    scaled,
    solve_choices,
    start_of,
)
from routers.reference_ring import Consistent, Fish
from routers.reference_waterline import Waterline

BUCKET_SALT = 0x94D049BB133111EB
DECLINE_SALT = 0xD1B54A32D192ED03


class Key(Reference):
    def choose(self, key: int) -> int:
        return scaled(mix(key, self.hash_seed) >> 32, self.n)


class Shuffle(Reference):
    def __init__(self, n_workers: int, **parameters: Any) -> None:
        super().__init__(n_workers, **parameters)
        self.turn = start_of(self.seed, self.source, self.n)

    def choose(self, key: int) -> int:
        worker, self.turn = self.turn, (self.turn + 1) % self.n
        return worker


class StaticChoices(Reference):
    def __init__(self, n_workers: int, **parameters: Any) -> None:
        super().__init__(n_workers, **parameters)
        self.homes: dict[int, int] = {}

    def choose(self, key: int) -> int:
        if key not in self.homes:
            self.homes[key] = self.home(key)
        return self.homes[key]

    def home(self, key: int) -> int:
        return least(self.choices(key, 2), self.loads)


class OnGreedy(StaticChoices):
    def home(self, key: int) -> int:
        return least(range(self.n), self.loads)


class OffGreedy(StaticChoices):
    def learn(self, keys: Sequence[int], counts: Sequence[float]) -> None:
        weights = [0.0] * self.n
        self.homes = {}
        for count, key in sorted(
            zip(counts, keys, strict=True), key=lambda pair: (-pair[0], pair[1])
        ):
            self.homes[key] = least(range(self.n), weights)
            weights[self.homes[key]] += count

    def home(self, key: int) -> int:
        return self.choices(key, 1)[0]


class GreedyD(Reference):
    def __init__(
        self,
        n_workers: int,
        *,
        d: int = 2,
        load: str = "local",
        probe_records: int = 100_000,
        **parameters: Any,
    ) -> None:
        super().__init__(n_workers, **parameters)
        self.d = d

    def choose(self, key: int) -> int:
        return least(self.choices(key, self.d), self.loads)

    def probe(self, loads: Sequence[float], sources: int) -> None:
        self.loads = [load / sources for load in loads]


class DChoices(Reference):
    def __init__(
        self,
        n_workers: int,
        *,
        theta: float | None = None,
        capacity: int | None = None,
        warm_up: int | None = None,
        epsilon: float = 1e-4,
        **parameters: Any,
    ) -> None:
        super().__init__(n_workers, **parameters)
        self.theta = 1.0 / (5 * n_workers) if theta is None else theta
        self.counters = Counters(max(1000, round(4 / self.theta)) if capacity is None else capacity)
        self.warm_up = round(10 / self.theta) if warm_up is None else warm_up
        self.epsilon = epsilon
        self.d, self.due = n_workers, self.warm_up
        self.boost, self.last_imbalance = 0, 0.0
        self.turn = start_of(self.seed, self.source, self.n)

    def choose(self, key: int) -> int:
        self.counters.count(key)
        total, counts = self.counters.total, self.counters.counts
        floor = self.theta * max(total, float(self.warm_up))
        if total >= self.due and max(counts) >= floor:
            hot = sorted((count for count in counts if count >= floor), reverse=True)
            self.raise_boost(total)
            shares = [count / total for count in hot]
            d = solve_choices(self.n, self.epsilon, shares) + self.boost
            self.d = self.n if 2 * d >= self.n else d
            self.due = math.ceil(1.05 * total)
        if self.counters.of(key) < floor:
            return least(self.choices(key, 2), self.loads)
        return self.choose_hot(key)

    def raise_boost(self, total: float) -> None:
        imbalance = max(self.loads) - total / self.n
        too_large = imbalance > self.epsilon * total and imbalance >= self.last_imbalance
        if too_large and total >= 10.0 * self.warm_up:
            self.boost += 1 + self.boost // 4
        self.last_imbalance = imbalance

    def choose_hot(self, key: int) -> int:
        return least(self.choices(key, self.d), self.loads)


class WChoices(DChoices):
    def choose_hot(self, key: int) -> int:
        return least(self.choices(key, self.n), self.loads)


class RoundRobinHead(DChoices):
    def choose_hot(self, key: int) -> int:
        worker, self.turn = self.turn, (self.turn + 1) % self.n
        return worker


class DistributionKey(Reference):
    def __init__(
        self,
        n_workers: int,
        *,
        learning: int = 100_000,
        theta: float | None = None,
        buckets: int | None = None,
        **parameters: Any,
    ) -> None:
        super().__init__(n_workers, **parameters)
        self.theta = 1.0 / (5 * n_workers) if theta is None else theta
        self.learning = learning
        self.buckets = 2 * n_workers if buckets is None else buckets
        self.counters = Counters(max(1000, round(4 / self.theta)))
        self.bucket_counts = [0.0] * self.buckets
        self.places: dict[tuple[str, int], int] | None = None

    def bucket(self, key: int) -> int:
        return scaled(mix(key, self.hash_seed ^ BUCKET_SALT) >> 32, self.buckets)

    def choose(self, key: int) -> int:
        if self.places is not None:
            return self.places.get(("key", key), self.places["bucket", self.bucket(key)])
        self.counters.count(key)
        self.bucket_counts[self.bucket(key)] += 1
        if self.counters.total == self.learning:
            self.places = self.place()
        return self.choices(key, 1)[0]

    def place(self) -> dict[tuple[str, int], int]:
        counted = zip(self.counters.keys, self.counters.counts, strict=True)
        floor = self.theta * self.counters.total
        heavy = sorted(((-count, key) for key, count in counted if count >= floor))
        rest = list(self.bucket_counts)
        for negative, key in heavy:
            rest[self.bucket(key)] += negative
        items = [(negative, ("key", key)) for negative, key in heavy]
        items += [(-max(0.0, load), ("bucket", bucket)) for bucket, load in enumerate(rest)]
        weights, places = [0.0] * self.n, {}
        for negative, item in sorted(items, key=lambda pair: pair[0]):
            places[item] = least(range(self.n), weights)
            weights[places[item]] -= negative
        return places


class DStream(Shuffle):
    def __init__(
        self,
        n_workers: int,
        *,
        threshold: int = 6,
        length: int = 16,
        ones: int = 2,
        decline: float = 0.01,
        false_positives: float = 0.001,
        predictor: str = "central",
        **parameters: Any,
    ) -> None:
        super().__init__(n_workers, **parameters)
        self.r, self.length, self.ones, self.p = threshold, length, ones, decline
        self.room = math.ceil(4 / decline) if decline else 2**16
        self.filter = Bloom(math.ceil(1 / decline) if decline else 2**16, false_positives)
        self.vectors: list[tuple[int, int]] = []
        self.hot: set[int] = set()
        self.records, self.draws = 0, 0

    def choose(self, key: int) -> int:
        self.observe(key)
        return super().choose(key) if key in self.filter else self.choices(key, 1)[0]

    def observe(self, key: int) -> None:
        self.records += 1
        coins = mix(self.records * GOLDEN % 2**64, self.seed)
        heads = 0
        while heads < self.r + self.length and coins >> heads & 1:
            heads += 1
        if heads <= self.r:
            return
        known = [other for other, _ in self.vectors]
        if key not in known and len(known) < self.room:
            self.vectors.append((key, 0))
            known.append(key)
        if key in known:
            slot = known.index(key)
            self.vectors[slot] = (key, self.vectors[slot][1] | 1 << (heads - self.r - 1))
            self.signal(*self.vectors[slot])
        if self.p > 0:
            self.decline()

    def decline(self) -> None:
        left = self.gap()
        for slot in reversed(range(len(self.vectors))):
            key, vector = self.vectors[slot]
            if left == 0:
                self.vectors[slot] = (key, vector >> 1)
                self.signal(key, vector >> 1)
                left = self.gap() + 1
            left -= 1
        for slot in reversed(range(len(self.vectors))):
            if self.vectors[slot][1] == 0:
                self.vectors[slot] = self.vectors[-1]
                self.vectors.pop()

    def gap(self) -> int:
        """Return how many vectors are passed over before the next one that shifts."""
        self.draws += 1
        bits = mix(self.draws * GOLDEN % 2**64, self.seed ^ DECLINE_SALT) >> 11
        return int(min(math.log((bits + 0.5) / 2**53) / math.log1p(-self.p), 4e18))

    def signal(self, key: int, vector: int) -> None:
        """Tell the filter of a key that has become hot, or is hot no more."""
        hot = bin(vector).count("1") >= self.ones
        if hot != (key in self.hot):
            self.filter.add(key, 1 if hot else -1)
            self.hot ^= {key}


REFERENCES: dict[str, type[Reference]] = {
    "key": Key,
    "shuffle": Shuffle,
    "potc": StaticChoices,
    "on-greedy": OnGreedy,
    "off-greedy": OffGreedy,
    "greedy-d": GreedyD,
    "pkg": GreedyD,
    "d-choices": DChoices,
    "w-choices": WChoices,
    "round-robin-head": RoundRobinHead,
    "dkg": DistributionKey,
    "dstream": DStream,
    "fish": Fish,
    "consistent": Consistent,
    "waterline": Waterline,
}
