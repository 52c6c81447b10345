"""Router state beside a query's checkpoint: one small file for each source and batch.

A task reads what its source wrote in the last batch before its own, and writes at its end. So a
task that is retried decides the same, and a query that is restarted continues where it stopped.
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

ROUTER_STATE_KIND = "router state 1"
KEPT_STATES = 8


class RouterStateError(ValueError):
    """A file of router state is corrupt."""


@dataclass(frozen=True)
class StateFiles(Rooted):
    """The files of one router in a query, under a path or a URI.

    ``<root>/<source>/<batch>`` holds the state of a source after a batch. The last eight are kept.
    """

    root: str

    def load(self, source: int, batch: int) -> Snapshot | None:
        """Return the state of a source before a batch; None if no source has one.

        A new source (there are more partitions now) starts with the state of another one, so that
        it knows the hot keys.
        """
        path = self._last(str(source), batch)
        if path is None:
            names = sorted(self._names(self._path), key=int)
            others = [last for name in names if (last := self._last(name, batch))]
            if not others:
                return None
            path = others[source % len(others)]
        return self._read(path)

    def after(self, batch: int) -> list[Snapshot]:
        """Return the states of all sources after a batch."""
        names = [name for name in self._names(self._path) if batch in self._batches(name)]
        return [self._read(self._path / name / str(batch)) for name in sorted(names, key=int)]

    def save(self, source: int, batch: int, snapshot: Snapshot) -> None:
        """Write the state of a source after a batch atomically."""
        folder = self._path / str(source)
        buffer = io.BytesIO()
        np.savez(buffer, **snapshot)  # type: ignore[arg-type]
        write_whole(self._system, folder / str(batch), seal(ROUTER_STATE_KIND, buffer.getvalue()))
        # Later ones may exist after a rollback; they will be written again.
        earlier = sorted(at for at in self._batches(str(source)) if at <= batch)
        for old in earlier[:-KEPT_STATES]:
            remove(self._system, folder / str(old))

    def _read(self, path: PurePosixPath) -> Snapshot:
        with self._system.open_input_stream(str(path)) as file:
            data = file.read()
        try:
            body = unseal(ROUTER_STATE_KIND, data)
        except SealError as error:
            raise RouterStateError(
                f"{path}: {error}; without the folder {self._path} the query starts with fresh "
                "routers, and its results stay correct"
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
        infos = self._system.get_file_info(selector)
        return [info.base_name for info in infos if info.base_name.isdigit()]
