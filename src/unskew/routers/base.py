"""What every online scheme is: a router, which sends each record to a worker as it comes.

Laws, each with a test of the same name: *closed* (a record goes to one of ``candidates(key)``, as
they are right after it), *total* (any array of keys, also an empty one), *batch-free* (one call
with n keys = n calls with one), *replayable* (same state and input, same output), *restorable*
(snapshot, restore, go on = never stopped), *elastic* where ``elastic`` says so (workers come and go
while it runs), *fixed* where ``fixed`` says so (what was routed does not change the candidates of a
key, nor does the source).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys, as_keys
from unskew.kernels.choices import candidates as write_candidates
from unskew.kernels.choices import next_prime
from unskew.kernels.hashing import hash_seed
from unskew.state import Stateful, whole, within

Workers = NDArray[np.int32]

MOST_WORKERS = 2**20
BY_HASH, ALL_WORKERS, HOT_KEYS, SHARES = "by hash", "all workers", "hot keys", "shares"
"""What a plan says of keys: nothing, as a hash decides; that any may be on all workers; which
of them are hot, and the workers of these, as a router has them; as few workers as shares need."""


@dataclass(repr=False, eq=False)
class Router(Stateful, ABC):
    """A scheme at one source.

    Parameters
    ----------
    n_workers
        Workers, numbered from 0.
    seed
        Of the hash functions; the same at every source.
    source
        Which source this is; only where sources should differ, as in the start of a round robin.
    """

    n_workers: int
    seed: int = 0
    source: int = 0

    splits: ClassVar[bool] = True
    """Whether the records of one key may go to several workers."""
    elastic: ClassVar[bool] = False
    """Whether workers can be added and removed while it runs."""
    fixed: ClassVar[bool] = False
    """Whether the candidates of a key are the same at all sources and times, for given workers."""
    offline: ClassVar[bool] = False
    """Whether it needs the frequencies of all keys before the first record, see `learn`."""
    planned: ClassVar[str | None] = None
    """What a plan, made between batches of what was measured, has to say in its stead: `BY_HASH`,
    `ALL_WORKERS`, `HOT_KEYS` or `SHARES`; None if it has to decide record by record."""

    def __post_init__(self) -> None:
        whole("n_workers", self.n_workers, 1)
        if self.n_workers > MOST_WORKERS:
            raise ValueError(f"n_workers must be at most {MOST_WORKERS}, got {self.n_workers}")
        self.n_workers = int(self.n_workers)
        within("seed", self.seed, 0, 2**64 - 1)
        whole("source", self.source, 0)

    @property
    def shared(self) -> bool:
        """Whether all sources must decide as one, with one state for all of them."""
        return False

    @property
    def probe_every(self) -> int | None:
        """After how many records the true loads should be given to `probe`, if at all."""
        return None

    def learn(self, keys: Any, counts: Any) -> None:
        """Take in the frequencies of all keys, before the first record; most have no use for it."""

    def probe(self, loads: Any, sources: int) -> None:
        """Take in the true loads of workers, with so many sources; most have no use for them."""

    def route(self, keys: Any) -> Workers:
        """Return the worker of each record, in order."""
        array = as_keys(keys)
        out = np.empty(len(array), np.int32)
        if len(array):
            self._route(array, out)
        return out

    def candidates(self, key: int) -> Workers:
        """Return the workers that a record of this key may go to as things stand, in order."""
        return self._candidates(np.uint64(int(key) % 2**64))

    @abstractmethod
    def _candidates(self, key: np.uint64) -> Workers: ...

    @abstractmethod
    def _route(self, keys: Keys, out: Workers) -> None: ...

    @property
    def _hash_seed(self) -> np.uint64:
        return hash_seed(self.seed)

    @property
    def _prime(self) -> int:
        return next_prime(self.n_workers)

    def _choices(self, key: np.uint64, d: int) -> Workers:
        """Return the first d candidates of a key."""
        out = np.empty(min(d, self.n_workers), np.int32)
        write_candidates(key, self._hash_seed, self.n_workers, self._prime, out)
        return out

    def _all_workers(self) -> Workers:
        return np.arange(self.n_workers, dtype=np.int32)


def start_of(seed: int, source: int, n_workers: int) -> int:
    """Return where a source's round robin starts: at random, but the same in every run."""
    return int(np.random.default_rng([seed, source]).integers(n_workers))
