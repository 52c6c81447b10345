"""The sources of a simulated stream, each of which routes its part of the records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.routers import Router, Scheme
from unskew.routers.consistent import ElasticRouter
from unskew.routers.key import KeyGrouping
from unskew.sketches import Exact
from unskew.workloads import Chunk

Feed = Literal["round-robin", "key"]
FEEDS = ("round-robin", "key")
FEED_SEED = 0xA0761D6478BD642F


@dataclass
class Sources:
    """S routers of one scheme, or a single one where the scheme needs all sources to agree.

    Parameters
    ----------
    scheme
        The scheme with its parameters.
    n_workers, n_sources
        The numbers of workers and sources.
    feed
        How records are assigned to sources: ``round-robin``, or by the hash of their source key
        (``key``; their own key if the stream has no source keys).
    defaults
        Values for parameters that the scheme accepts and that are not set.
    """

    scheme: Scheme
    n_workers: int
    n_sources: int = 1
    feed: Feed = "round-robin"
    defaults: dict[str, Any] = field(default_factory=dict)
    routers: list[Router] = field(init=False)
    fed: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.feed not in FEEDS:
            raise ValueError(f"feed must be one of {', '.join(FEEDS)}, got {self.feed!r}")
        usable = {name: v for name, v in self.defaults.items() if self.scheme.accepts(name)}
        options = {**usable, **self.scheme.given}
        first = self.scheme.router(self.n_workers, **options)
        count = 1 if first.shared else self.n_sources
        others = ({**options, "source": i} for i in range(1, count))
        self.routers = [first, *(self.scheme.router(self.n_workers, **other) for other in others)]

    @property
    def probe_every(self) -> int | None:
        """The number of records between two probes of the true loads; None without probes."""
        return self.routers[0].probe_every

    def learn(self, frequencies: Exact) -> None:
        """Give the routers of an offline scheme all frequencies."""
        for router in self.routers:
            if router.offline:
                router.learn(*frequencies.hot())

    def probe(self, loads: NDArray[np.int64]) -> None:
        """Give every source the true loads."""
        for router in self.routers:
            router.probe(loads, self.n_sources)

    def add_worker(self) -> None:
        """Add a new worker at every source."""
        for router in self._elastic():
            router.add_worker()

    def remove_worker(self, worker: int) -> None:
        """Remove a worker at every source, so that it receives no more records."""
        for router in self._elastic():
            router.remove_worker(worker)

    def route(self, chunk: Chunk) -> NDArray[np.int32]:
        """Return the workers of a chunk's records."""
        if len(self.routers) == 1:
            workers = self.routers[0].route(chunk.keys)
        elif self.feed == "round-robin":
            workers = self._in_turn(chunk.keys)
        else:
            workers = self._by_key(chunk)
        self.fed += len(chunk.keys)
        return workers

    def _in_turn(self, keys: Keys) -> NDArray[np.int32]:
        workers = np.empty(len(keys), np.int32)
        for source, router in enumerate(self.routers):
            part = slice((source - self.fed) % self.n_sources, None, self.n_sources)
            workers[part] = router.route(keys[part])
        return workers

    def _by_key(self, chunk: Chunk) -> NDArray[np.int32]:
        source_keys = chunk.keys if chunk.source_keys is None else chunk.source_keys
        sources = KeyGrouping(self.n_sources, seed=FEED_SEED).route(source_keys)
        workers = np.empty(len(chunk.keys), np.int32)
        for source, router in enumerate(self.routers):
            part = np.flatnonzero(sources == source)
            workers[part] = router.route(chunk.keys[part])
        return workers

    def _elastic(self) -> list[ElasticRouter]:
        return [router for router in self.routers if isinstance(router, ElasticRouter)]
