"""One object for each task and batch: the states that leave, and what else the task has to tell.

An object is blocks, an index, a tail, and the length and the checksum of the tail. A block holds
states for one worker, as Arrow by the type of the state, about `BLOCK` bytes of them. The index has
a row for each key of which the task tells. The tail says whose object it is, and where the blocks
and the index are, with their checksums. So one state can be read without the others, and whatever
is cut, swapped or changed is found out. Nothing in an object is code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

MOVED, HERE, GONE = 0, 1, 2
"""A state left for a worker; it is at a worker, in Spark's own store; there is none any more."""
BLOCK = 1 << 20
KIND = "unskew exports 1"
END = 72
"""Bytes at the end of an object: the length of the tail, and its checksum."""
INDEX = pa.schema(
    {
        "kind": pa.int8(),
        "id": pa.int64(),
        "key": pa.large_string(),
        "worker": pa.int32(),
        "block": pa.int32(),
        "row": pa.int32(),
    }
)


class BrokenError(ValueError):
    """An object is not what it should be."""


class Note(NamedTuple):
    """What a task tells of a key.

    Parameters
    ----------
    kind
        `MOVED`, `HERE` or `GONE`.
    id, key
        The key, as plans know it, and its text.
    worker
        Where its state is from now on.
    state
        With `MOVED`: the state in the form of Arrow, None for a timeout alone.
    timeout
        With `MOVED`: when it times out, in milliseconds.
    type
        With `MOVED`: the type of the state, as Arrow writes a schema.
    size
        With `MOVED`: the bytes of the state, as they are reported.
    """

    kind: int
    id: int
    key: str
    worker: int
    state: Any = None
    timeout: int | None = None
    type: bytes = b""
    size: int = 0


class Owner(NamedTuple):
    """Whose object it is: the log of an operator, a batch, and a partition."""

    log: str
    batch: int
    partition: int


def type_bytes(kind: pa.DataType) -> bytes:
    """Return the type of a state, as notes have it."""
    return bytes(pa.schema({"state": kind}).serialize())


def packed(owner: Owner, notes: Sequence[Note]) -> bytes:
    """Return the object of a task that tells this."""
    parts: list[bytes] = []
    blocks: list[tuple[int, int, str, int]] = []
    places: dict[int, tuple[int, int]] = {}
    moved: dict[int, list[int]] = {}
    for at, note in enumerate(notes):
        if note.kind == MOVED:
            moved.setdefault(note.worker, []).append(at)
    offset = 0
    for worker, chosen in sorted(moved.items()):
        for some in _blocks(notes, chosen):
            data = _block([notes[at] for at in some])
            for row, at in enumerate(some):
                places[at] = (len(blocks), row)
            blocks.append((offset, len(data), _sum(data), worker))
            parts.append(data)
            offset += len(data)
    index = _index(notes, places)
    tail = json.dumps(
        {
            "kind": KIND,
            "owner": owner,
            "blocks": blocks,
            "index": (offset, len(index), _sum(index)),
        }
    ).encode()
    return b"".join([*parts, index, tail, f"{len(tail):08d}".encode(), _sum(tail).encode()])


def _blocks(notes: Sequence[Note], chosen: Sequence[int]) -> Iterable[Sequence[int]]:
    """Return notes in parts that make a block each."""
    first, size = 0, 0
    for n, at in enumerate(chosen):
        if n > first and size + notes[at].size > BLOCK:
            yield chosen[first:n]
            first, size = n, 0
        size += notes[at].size
    yield chosen[first:]


def _block(notes: Sequence[Note]) -> bytes:
    kind = pa.ipc.read_schema(pa.py_buffer(notes[0].type)).field("state").type
    columns = {
        "key": pa.array([note.key for note in notes], pa.large_string()),
        "timeout": pa.array([note.timeout for note in notes], pa.int64()),
        "state": pa.array([note.state for note in notes], kind),
    }
    return _stream(pa.record_batch(columns))


def _index(notes: Sequence[Note], places: dict[int, tuple[int, int]]) -> bytes:
    found = [places.get(at, (-1, -1)) for at in range(len(notes))]
    rows = [
        [note.kind for note in notes],
        [note.id for note in notes],
        [note.key for note in notes],
        [note.worker for note in notes],
        [block for block, _ in found],
        [row for _, row in found],
    ]
    columns = [pa.array(row, field.type) for row, field in zip(rows, INDEX, strict=True)]
    return _stream(pa.record_batch(columns, schema=INDEX))


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write_batch(batch)
    return bytes(sink.getvalue())


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Object:
    """An object that can be read: its file, and its tail.

    Parameters
    ----------
    file
        Open, as pyarrow has it.
    owner
        Whose it is.
    tail
        Says where the parts are.
    """

    file: pa.NativeFile
    owner: Owner
    tail: dict[str, Any]

    @classmethod
    def of(cls, file: pa.NativeFile, owner: Owner) -> Object:
        """Open an object of an owner; a `BrokenError` if it is something else."""
        size = file.size()
        if size < END:
            raise BrokenError(f"it has {size} bytes, too few for an object")
        end = file.read_at(END, size - END).decode("ascii", "replace")
        length = int(end[:8]) if end[:8].isdigit() else size
        if length > size - END:
            raise BrokenError("its end is not that of an object")
        data = file.read_at(length, size - END - length)
        if _sum(data) != end[8:]:
            raise BrokenError("the checksum of its tail does not match")
        tail = json.loads(data)
        if tail["kind"] != KIND:
            raise BrokenError(f"it is a {tail['kind']!r}, and not a {KIND!r}")
        found = Owner(*tail["owner"])
        if found != owner:
            raise BrokenError(f"it is that of {found}, and not of {owner}")
        return cls(file, owner, tail)

    def index(self) -> pa.RecordBatch:
        """Return what the task told, a row for each key."""
        return self._part("index", *self.tail["index"])

    def block(self, number: int, worker: int) -> pa.RecordBatch:
        """Return a block of states for a worker."""
        offset, length, checksum, to = self.tail["blocks"][number]
        if to != worker:
            raise BrokenError(f"block {number} is for worker {to}, and not for {worker}")
        return self._part(f"block {number}", offset, length, checksum)

    def _part(self, name: str, offset: int, length: int, checksum: str) -> pa.RecordBatch:
        data = self.file.read_at(length, offset)
        if len(data) != length or _sum(data) != checksum:
            raise BrokenError(f"the checksum of its {name} does not match")
        return pa.ipc.open_stream(data).read_next_batch()
