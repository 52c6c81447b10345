"""One object for each task and batch: the exported states and all other state changes of the task.

An object consists of blocks, an index, a tail, and the length and the checksum of the tail. A block
holds states for one worker, as Arrow in the type of the state, about `BLOCK_BYTES` of them. The
index has a row for each key that the task reports. The tail holds the owner of the object, and the
positions and checksums of the blocks and the index. So one state can be read without the others,
and an object that is truncated, swapped or changed is detected. Nothing in an object is code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

MOVED, HERE, GONE = 0, 1, 2
"""A state was exported for a worker; it is in Spark's store at a worker; it no longer exists."""
BLOCK_BYTES = 1 << 20
OBJECT_KIND = "unskew exports 1"
END_BYTES = 72
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


class ObjectError(ValueError):
    """An object is damaged, or belongs to another task, batch or query."""


class StateChange(NamedTuple):
    """A change of a key's state, or of its place, that a task reports.

    Parameters
    ----------
    kind
        `MOVED`, `HERE` or `GONE`.
    id, key
        The key's id in plans, and its text.
    worker
        The worker that has its state from now on.
    state
        With `MOVED`: the state in Arrow's form, None for a timeout alone.
    timeout
        With `MOVED`: when it times out, in milliseconds.
    type
        With `MOVED`: the type of the state, as a serialised Arrow schema.
    size
        With `MOVED`: the size of the state in bytes, for reports.
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
    """The owner of an object: the log of an operator, a batch, and a partition."""

    log: str
    batch: int
    partition: int


def type_bytes(kind: pa.DataType) -> bytes:
    """Return the type of a state as a serialised Arrow schema."""
    return bytes(pa.schema({"state": kind}).serialize())


def object_bytes(owner: Owner, changes: Sequence[StateChange]) -> bytes:
    """Return the object of a task that reports these changes."""
    parts: list[bytes] = []
    blocks: list[tuple[int, int, str, int]] = []
    positions: dict[int, tuple[int, int]] = {}
    moved: dict[int, list[int]] = {}
    for i, change in enumerate(changes):
        if change.kind == MOVED:
            moved.setdefault(change.worker, []).append(i)
    offset = 0
    for worker, indices in sorted(moved.items()):
        for group in _grouped(changes, indices):
            data = _block([changes[i] for i in group])
            for row, i in enumerate(group):
                positions[i] = (len(blocks), row)
            blocks.append((offset, len(data), _checksum(data), worker))
            parts.append(data)
            offset += len(data)
    index = _index(changes, positions)
    tail = json.dumps(
        {
            "kind": OBJECT_KIND,
            "owner": owner,
            "blocks": blocks,
            "index": (offset, len(index), _checksum(index)),
        }
    ).encode()
    return b"".join([*parts, index, tail, f"{len(tail):08d}".encode(), _checksum(tail).encode()])


def _grouped(changes: Sequence[StateChange], indices: Sequence[int]) -> Iterable[Sequence[int]]:
    """Return the indices of changes in groups that make a block each."""
    first, size = 0, 0
    for n, i in enumerate(indices):
        if n > first and size + changes[i].size > BLOCK_BYTES:
            yield indices[first:n]
            first, size = n, 0
        size += changes[i].size
    yield indices[first:]


def _block(changes: Sequence[StateChange]) -> bytes:
    kind = pa.ipc.read_schema(pa.py_buffer(changes[0].type)).field("state").type
    columns = {
        "key": pa.array([change.key for change in changes], pa.large_string()),
        "timeout": pa.array([change.timeout for change in changes], pa.int64()),
        "state": pa.array([change.state for change in changes], kind),
    }
    return _stream(pa.record_batch(columns))


def _index(changes: Sequence[StateChange], positions: dict[int, tuple[int, int]]) -> bytes:
    block_rows = [positions.get(i, (-1, -1)) for i in range(len(changes))]
    values = [
        [change.kind for change in changes],
        [change.id for change in changes],
        [change.key for change in changes],
        [change.worker for change in changes],
        [block for block, _ in block_rows],
        [row for _, row in block_rows],
    ]
    columns = [pa.array(column, field.type) for column, field in zip(values, INDEX, strict=True)]
    return _stream(pa.record_batch(columns, schema=INDEX))


def _stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as out:
        out.write_batch(batch)
    return bytes(sink.getvalue())


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Object:
    """An object that is open for reading: its file and its tail.

    Parameters
    ----------
    file
        The open file.
    owner
        The owner of the object.
    tail
        Positions and checksums of the index and the blocks.
    """

    file: pa.NativeFile
    owner: Owner
    tail: dict[str, Any]

    @classmethod
    def of(cls, file: pa.NativeFile, owner: Owner) -> Object:
        """Return the object of an owner; raise an `ObjectError` if the file is anything else."""
        size = file.size()
        if size < END_BYTES:
            raise ObjectError(f"it has {size} bytes, too few for an object")
        end = file.read_at(END_BYTES, size - END_BYTES).decode("ascii", "replace")
        length = int(end[:8]) if end[:8].isdigit() else size
        if length > size - END_BYTES:
            raise ObjectError("it does not end like an object")
        data = file.read_at(length, size - END_BYTES - length)
        if _checksum(data) != end[8:]:
            raise ObjectError("the checksum of its tail does not match")
        tail = json.loads(data)
        if tail["kind"] != OBJECT_KIND:
            raise ObjectError(f"its kind must be {OBJECT_KIND!r}, got {tail['kind']!r}")
        actual = Owner(*tail["owner"])
        if actual != owner:
            raise ObjectError(f"it belongs to {actual}, not to {owner}")
        return cls(file, owner, tail)

    def index(self) -> pa.RecordBatch:
        """Return the index: a row for each key that the task reported."""
        return self._part("index", *self.tail["index"])

    def block(self, number: int, worker: int) -> pa.RecordBatch:
        """Return a block of states for a worker."""
        offset, length, checksum, to = self.tail["blocks"][number]
        if to != worker:
            raise ObjectError(f"block {number} is for worker {to}, not for worker {worker}")
        return self._part(f"block {number}", offset, length, checksum)

    def _part(self, name: str, offset: int, length: int, checksum: str) -> pa.RecordBatch:
        data = self.file.read_at(length, offset)
        if len(data) != length or _checksum(data) != checksum:
            raise ObjectError(f"the checksum of its {name} does not match")
        return pa.ipc.open_stream(data).read_next_batch()
