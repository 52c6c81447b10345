"""Streams read from files: the format by the file's ending, errors that name the file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from unskew.state import at_least
from unskew.workloads.base import CHUNK_SIZE, Chunk, Stream, recut

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class FileStream(Stream):
    """A stream in one file; a frozen dataclass whose fields are the path and the options."""

    kind: ClassVar[str]
    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        check_file(self.path)

    @abstractmethod
    def parts(self) -> Iterator[Chunk]:
        """Yield the records in pieces of any length; not called for a file of zero bytes."""

    @property
    def n_records(self) -> int | None:
        """Number of records, None where only reading it all would tell."""
        return 0 if self.is_blank else None

    @property
    def is_blank(self) -> bool:
        """Whether the file has zero bytes: an empty stream in every format."""
        return self.path.stat().st_size == 0

    def chunks(self, size: int = CHUNK_SIZE) -> Iterator[Chunk]:
        """Return the stream from its start, ``size`` records at a time."""
        at_least("size", size, 1)
        return recut([] if self.is_blank else self._checked_parts(), size)

    def _checked_parts(self) -> Iterator[Chunk]:
        with self.reading():
            yield from self.parts()

    def describe(self) -> dict[str, Any]:
        """Return kind, spec and options, as JSON can hold them."""
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "path"}
        options = {"format": self.kind} | {k: v for k, v in given.items() if v is not None}
        spec = ",".join(f"{name}={value}" for name, value in options.items())
        return {"kind": self.kind, "spec": f"{self.path}:{spec}", "path": str(self.path), **given}

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what goes wrong inside the file into one line that names it."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(f"cannot read {self.path} as {self.kind}: {reason}") from error

    def blocks(self, ends: bytes) -> Iterator[pa.Array]:
        """Yield the text in blocks of about 1 MiB that end at one of the bytes ``ends``.

        Each block is a string array of one element. Compressed files are read by their ending.
        """
        held: list[bytes] = []
        with pa.input_stream(str(self.path)) as file:
            while block := file.read(BLOCK_BYTES):
                cut = max(block.rfind(end) for end in ends) + 1
                if cut:
                    yield _text(b"".join([*held, block[:cut]]))
                    held = []
                held.append(block[cut:])
        yield _text(b"".join(held))


def check_file(path: Path) -> None:
    """Refuse what is no file that can be read more than once."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a directory: give one file of it")
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    if not path.is_file():
        raise ValueError(f"{path} is no regular file: save the stream to one first")


def _text(data: bytes) -> pa.Array:
    return pa.array([data], pa.large_binary()).cast(pa.large_string())
