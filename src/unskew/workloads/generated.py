"""Generated streams: parameters and a seed in, integer keys out.

The integers are hashed as Spark hashes a BIGINT, so the simulator and Spark see the same keys.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import hash_longs
from unskew.state import at_least
from unskew.workloads.base import CHUNK_SIZE, Chunk, Stream

Ids = NDArray[np.int64]
Sampler = Callable[[int], Ids]


class Generated(Stream):
    """A stream drawn from a distribution; a frozen dataclass whose fields are its parameters."""

    kind: ClassVar[str]
    records: int
    seed: int

    def __post_init__(self) -> None:
        at_least("records", self.records, 1)
        at_least("seed", self.seed, 0)

    @abstractmethod
    def sampler(self) -> Sampler:
        """Return a freshly seeded function that gives the next n integer keys at each call."""

    @property
    def n_records(self) -> int:
        """Number of records."""
        return self.records

    def ids(self, size: int = CHUNK_SIZE) -> Iterator[Ids]:
        """Return the integer keys before hashing, ``size`` at a time."""
        at_least("size", size, 1)
        draw = self.sampler()
        return (draw(min(size, self.records - at)) for at in range(0, self.records, size))

    def chunks(self, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """Return the stream from its start, ``size`` records at a time."""
        return (Chunk(hash_longs(ids)) for ids in self.ids(size))

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def describe(self) -> dict[str, Any]:
        """Return kind, spec and parameters, as JSON can hold them."""
        parameters = self.parameters()
        spec = ",".join(f"{name}={value}" for name, value in parameters.items())
        return {"kind": self.kind, "spec": f"{self.kind}:{spec}", **parameters}

    def generator(self) -> np.random.Generator:
        """Return the random numbers of this stream, from their start."""
        return np.random.Generator(np.random.PCG64(self.seed))
