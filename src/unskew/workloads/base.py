"""What a stream of keys is, and the laws it keeps.

- *replayable*: calling ``chunks`` twice gives the same stream.
- *size-free*: the concatenation of the chunks does not depend on their size; every chunk but the
  last holds exactly ``size`` records.
- *bounded*: no more than a few chunks sit in memory, however long the stream.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys

CHUNK_SIZE = 65_536


class Chunk(NamedTuple):
    """Some records of a stream: their keys and, where the stream has them, their source keys."""

    keys: Keys
    source_keys: Keys | None = None


class Stream(ABC):
    """A replayable stream of keys."""

    @property
    @abstractmethod
    def n_records(self) -> int | None:
        """Number of records, None where only reading it all would tell."""

    @abstractmethod
    def chunks(self, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """Return the stream from its start, ``size`` records at a time."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return kind, spec and parameters, as JSON can hold them."""


def recut(parts: Iterable[Chunk], size: int) -> Iterator[Chunk]:
    """Cut parts of any length into chunks of ``size`` records.

    Examples
    --------
    >>> parts = [Chunk(np.arange(n, dtype=np.uint64)) for n in (3, 0, 4)]
    >>> [chunk.keys.tolist() for chunk in recut(parts, 2)]
    [[0, 1], [2, 0], [1, 2], [3]]
    """
    held: list[Chunk] = []
    missing = size
    for part in parts:
        start = 0
        while len(part.keys) - start >= missing:
            yield _join([*held, _slice(part, start, start + missing)])
            start += missing
            held, missing = [], size
        if start < len(part.keys):
            held.append(_slice(part, start, len(part.keys)))
            missing -= len(part.keys) - start
    if held:
        yield _join(held)


def _slice(chunk: Chunk, start: int, stop: int) -> Chunk:
    sources = chunk.source_keys
    return Chunk(chunk.keys[start:stop], None if sources is None else sources[start:stop])


def _join(parts: list[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    sources: list[NDArray[np.uint64]] = [p.source_keys for p in parts if p.source_keys is not None]
    return Chunk(
        np.concatenate([p.keys for p in parts]), np.concatenate(sources) if sources else None
    )
