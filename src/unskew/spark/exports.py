"""Exported state on its way to another worker: files beside the checkpoint.

``<root>/<batch>/<plan key>.<key>.<worker>`` is what a worker had of a key when it was asked to give
it up in a batch; empty if it had nothing. A batch that is tried again writes the same. It is read
in later batches only, so it is there as a whole then.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as fs

from unskew.sealed import SealError, seal, unseal
from unskew.spark.files import located, write_whole

KIND = "exported state 1"
KEPT = 100


class LostStateError(RuntimeError):
    """The state of a key that moved cannot be read."""


@dataclass(frozen=True)
class Export:
    """An export as its file's name tells it."""

    batch: int
    plan_key: int
    worker: int


@dataclass(frozen=True)
class Exports:
    """The exported states of one operator, under a path or a URI; those of 100 batches are kept."""

    root: str

    def write(
        self, batch: int, plan_key: int, key: Sequence[Any], worker: int, state: bytes | None
    ) -> None:
        """Write what a worker has of a key, None for nothing, all or nothing."""
        name = f"{plan_key % 2**64:016x}.{_digest(key)}.{worker}"
        data = b"" if state is None else seal(KIND, state)
        write_whole(self._system, self._path / str(batch) / name, data)

    def read(self, batch: int, key: Sequence[Any]) -> bytes | None:
        """Return the state of a key that was exported in a batch; None if it had none."""
        folder, digest = self._path / str(batch), _digest(key)
        names = [name for name in self._names(folder) if name.split(".")[1] == digest]
        if not names:
            raise LostStateError(
                f"the state of key {tuple(key)!r}, exported in batch {batch}, is not in {folder}: "
                "restore that folder, and start the query again"
            )
        found = []
        for name in names:
            with self._system.open_input_stream(str(folder / name)) as file:
                data = file.read()
            try:
                found += [unseal(KIND, data)] if data else []
            except SealError as error:
                raise LostStateError(
                    f"{folder / name}, the state of key {tuple(key)!r}: {error}; restore that "
                    "file, and start the query again"
                ) from None
        if len(found) > 1:
            raise LostStateError(f"{len(found)} workers had state of key {tuple(key)!r}: {names}")
        return found[0] if found else None

    def since(self, batch: int, until: int = sys.maxsize) -> Iterable[Export]:
        """Return the exports of the batches from one to another, the last one excluded."""
        for at in self._batches():
            if batch <= at < until:
                for name in self._names(self._path / str(at)):
                    plan_key, _, worker = name.split(".")
                    yield Export(at, int(plan_key, 16), int(worker))

    def sizes(self, batch: int) -> tuple[int, int]:
        """Return how many states were exported in a batch, and their bytes."""
        selector = fs.FileSelector(str(self._path / str(batch)), allow_not_found=True)
        found = [info.size for info in self._system.get_file_info(selector) if info.size]
        return len(found), sum(found)

    def clean(self, before: int) -> None:
        """Remove the exports of batches long before one."""
        for at in self._batches():
            if at < before - KEPT:
                self._system.delete_dir(str(self._path / str(at)))

    def _batches(self) -> list[int]:
        return sorted(int(name) for name in self._names(self._path) if name.isdigit())

    def _names(self, folder: PurePosixPath) -> list[str]:
        selector = fs.FileSelector(str(folder), allow_not_found=True)
        found = self._system.get_file_info(selector)
        return [info.base_name for info in found if not info.base_name.startswith(".")]

    @cached_property
    def _located(self) -> tuple[fs.FileSystem, str]:
        return located(self.root)

    @property
    def _system(self) -> fs.FileSystem:
        return self._located[0]

    @property
    def _path(self) -> PurePosixPath:
        return PurePosixPath(self._located[1])


def _digest(key: Sequence[Any]) -> str:
    return hashlib.blake2b(repr(tuple(key)).encode(), digest_size=16).hexdigest()
