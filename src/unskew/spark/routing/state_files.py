"""Router state beside a query's checkpoint: one small file for each source and batch.

A task reads what its source wrote in the last batch before its own, and writes at its end. So a
task that is tried again decides the same, and a query that is started again goes on where it was.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import pyarrow.fs as fs

from unskew.sealed import SealError, seal, unseal
from unskew.spark.runtime.files import Rooted, remove, write_whole
from unskew.state import Snapshot

KIND = "router state 1"
KEPT = 8


class RouterStateError(ValueError):
    """A file of router state is corrupt."""


@dataclass(frozen=True)
class StateFiles(Rooted):
    """The files of one router in a query, under a path or a URI.

    ``<root>/<source>/<batch>`` holds the state of a source after a batch. The last eight are kept.
    """

    root: str

    def load(self, source: int, batch: int) -> Snapshot | None:
        """Return the state of a source before a batch; of another one if it is new; None if none.

        A source that was not there before (there are more partitions now) goes on from one that
        was, so that it knows what is hot.
        """
        at = self._last(str(source), batch)
        if at is None:
            names = sorted(self._names(self._path), key=int)
            others = [last for name in names if (last := self._last(name, batch))]
            if not others:
                return None
            at = others[source % len(others)]
        return self._read(at)

    def after(self, batch: int) -> list[Snapshot]:
        """Return the states of all sources after a batch."""
        names = [name for name in self._names(self._path) if batch in self._batches(name)]
        return [self._read(self._path / name / str(batch)) for name in sorted(names, key=int)]

    def save(self, source: int, batch: int, snapshot: Snapshot) -> None:
        """Write the state of a source after a batch, all or nothing."""
        folder = self._path / str(source)
        buffer = io.BytesIO()
        np.savez(buffer, **snapshot)  # type: ignore[arg-type]
        write_whole(self._system, folder / str(batch), seal(KIND, buffer.getvalue()))
        # Later ones may be there after a rollback; they will be written again.
        earlier = sorted(at for at in self._batches(str(source)) if at <= batch)
        for old in earlier[:-KEPT]:
            remove(self._system, folder / str(old))

    def _read(self, path: PurePosixPath) -> Snapshot:
        with self._system.open_input_stream(str(path)) as file:
            data = file.read()
        try:
            body = unseal(KIND, data)
        except SealError as error:
            raise RouterStateError(
                f"{path}: {error}; without the folder {self._path} the query starts with fresh "
                "routers, and its results stay right"
            ) from None
        with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}

    def _last(self, name: str, batch: int) -> PurePosixPath | None:
        before = [at for at in self._batches(name) if at < batch]
        return self._path / name / str(max(before)) if before else None

    def _batches(self, name: str) -> list[int]:
        return [int(at) for at in self._names(self._path / name)]

    def _names(self, folder: PurePosixPath) -> list[str]:
        selector = fs.FileSelector(str(folder), allow_not_found=True)
        found = self._system.get_file_info(selector)
        return [info.base_name for info in found if info.base_name.isdigit()]
