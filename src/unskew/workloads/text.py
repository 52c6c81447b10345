"""Streams in plain text: words, and the edges of a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from unskew.hashing import hash_keys
from unskew.workloads.base import Chunk
from unskew.workloads.files import FileStream

WHITESPACE = b" \t\n\v\f\r"


@dataclass(frozen=True)
class WordFile(FileStream):
    """Words of a UTF-8 text as they stand, split on ASCII whitespace, perhaps compressed.

    Parameters
    ----------
    path
        The file.
    """

    kind: ClassVar[str] = "words"

    def parts(self) -> Iterator[Chunk]:
        """Yield the words in pieces of any length."""
        for text in self.blocks(WHITESPACE):
            words = pc.ascii_split_whitespace(text).flatten()
            yield Chunk(hash_keys(words.filter(pc.not_equal(words, ""))))


@dataclass(frozen=True)
class EdgeFile(FileStream):
    """Edges ``source destination`` of a graph, one a line, as SNAP has them; ``#`` is a comment.

    The key is the destination, the source key the source vertex: the PKG paper's schema for
    sources fed by key.

    Parameters
    ----------
    path
        The file.
    """

    kind: ClassVar[str] = "edges"

    def parts(self) -> Iterator[Chunk]:
        """Yield the edges in pieces of any length."""
        for text in self.blocks(b"\n"):
            lines = pc.ascii_trim_whitespace(pc.split_pattern(text, "\n").flatten())
            lines = lines.filter(
                pc.and_(pc.not_equal(lines, ""), pc.invert(pc.starts_with(lines, "#")))
            )
            yield self._edges(lines)

    def _edges(self, lines: pa.Array) -> Chunk:
        edges = pc.ascii_split_whitespace(lines)
        odd = lines.filter(pc.not_equal(pc.list_value_length(edges), 2))
        if len(odd):
            raise ValueError(
                f"cannot read {self.path} as edges: a line must hold two vertices, got {odd[0]}"
            )
        vertices = edges.flatten().cast(pa.int64())
        return Chunk(hash_keys(vertices[1::2]), hash_keys(vertices[::2]))
