"""What the reference routers stand on: hashes, candidates, SpaceSaving, and so on."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

MASK = 2**64 - 1
BLOOM_SEED = 0x5851F42D4C957F2D


def mix(key: int, seed: int) -> int:
    h = (key ^ seed) & MASK
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = ((h ^ (h >> 33)) * factor) & MASK
    return h ^ (h >> 33)


def scaled(bits: int, n: int) -> int:
    """Return a number below n from 32 random bits."""
    return bits * n // 2**32


@functools.cache
def choices(key: int, seed: int, n: int, d: int) -> list[int]:
    """Return the first d of a walk through 0..p-1 in equal steps, without what is no worker."""
    prime = next(p for p in range(max(n, 2), 3 * n + 3) if all(p % q for q in range(2, p)))
    h = mix(key, seed)
    first, step = scaled(h >> 32, n), scaled(h & 0xFFFFFFFF, prime - 1) + 1
    walk = [(first + i * step) % prime for i in range(prime)]
    return [worker for worker in walk if worker < n][:d]


def start_of(seed: int, source: int, n: int) -> int:
    return int(np.random.default_rng([seed, source]).integers(n))


def least(workers: Iterable[int], loads: Sequence[float]) -> int:
    """Return the least loaded worker, the first of equals."""
    return min(workers, key=lambda worker: loads[worker])


GOLDEN = 0x9E3779B97F4A7C15


class Reference:
    """A scheme at one source."""

    def __init__(self, n_workers: int, *, seed: int = 0, source: int = 0) -> None:
        self.n, self.seed, self.source = n_workers, seed, source
        self.hash_seed = (seed + 45) * GOLDEN % 2**64
        self.loads: list[float] = [0] * n_workers

    def route(self, key: int) -> int:
        worker = self.choose(key)
        self.loads[worker] += 1
        return worker

    def choose(self, key: int) -> int:
        raise NotImplementedError

    def choices(self, key: int, d: int) -> list[int]:
        return choices(key, self.hash_seed, self.n, d)


class Counters:
    """SpaceSaving by the book: the least counter is looked for, the lowest slot of equals."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.keys: list[int] = []
        self.counts: list[float] = []
        self.total = 0.0

    def count(self, key: int) -> int | None:
        """Count a record; return the key that had to go, if one had."""
        self.total += 1.0
        gone = None
        if key not in self.keys:
            if len(self.keys) < self.capacity:
                self.keys.append(key)
                self.counts.append(0.0)
            else:
                slot = self.counts.index(min(self.counts))
                gone, self.keys[slot] = self.keys[slot], key
        self.counts[self.keys.index(key)] += 1.0
        return gone

    def decay(self, alpha: float) -> None:
        self.counts = [count * alpha for count in self.counts]
        self.total *= alpha

    def of(self, key: int) -> float:
        return self.counts[self.keys.index(key)]


class Bloom:
    """A counting Bloom filter: counters by place, so that it errs where the real one errs."""

    def __init__(self, capacity: int, false_positives: float) -> None:
        cells = capacity * math.log(1 / false_positives) / math.log(2) ** 2
        self.size = 2 ** max(4, math.ceil(math.log2(cells)))
        self.probes = max(1, math.ceil(math.log2(1 / false_positives)))
        self.cells: Counter[int] = Counter()

    def places(self, key: int) -> list[int]:
        h = mix(key, BLOOM_SEED)
        return [(h + i * (h >> 32 | 1)) % 2**64 % self.size for i in range(self.probes)]

    def __contains__(self, key: int) -> bool:
        return all(self.cells[place] > 0 for place in self.places(key))

    def add(self, key: int, times: int) -> None:
        for place in self.places(key):
            self.cells[place] += times


def constraint_holds(n: int, d: int, epsilon: float, shares: Sequence[float], h: int) -> bool:
    """Say whether the poster's constraint holds for the first h keys of the head."""
    reach = 1.0 - ((n - 1.0) / n) ** (h * d)
    first, head = 0.0, 0.0
    for i, share in enumerate(shares):
        head += share
        if i < h:
            first += share
    load = first + reach**d * (head - first) + reach**2 * (1.0 - head)
    return load <= reach + epsilon


def solve_choices(n: int, epsilon: float, shares: Sequence[float]) -> int:
    """Return the least d from max(2, p1 n) on that keeps the constraint for every prefix."""
    start = max(2, math.ceil(shares[0] * n - 1e-9)) if shares else 2
    for d in range(start, n):
        if all(constraint_holds(n, d, epsilon, shares, h) for h in range(1, len(shares) + 1)):
            return d
    return n
