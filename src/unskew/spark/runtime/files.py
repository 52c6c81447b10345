"""Files under a path or a URI, local or remote."""

from __future__ import annotations

import contextlib
import os
import uuid
from functools import cached_property
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.fs as fs

SPELLINGS = {"s3a": "s3", "s3n": "s3"}


def located(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system and the path of a plain path or a URI; also of Hadoop's schemes."""
    scheme, colon, rest = uri.partition(":")
    if not colon:
        return fs.LocalFileSystem(), uri
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.lstrip("/")
    system, path = fs.FileSystem.from_uri(f"{SPELLINGS.get(scheme, scheme)}:{rest}")
    return system, path


def write_whole(system: fs.FileSystem, path: PurePosixPath, data: bytes) -> None:
    """Write a file that readers see as a whole or not at all."""
    system.create_dir(str(path.parent), recursive=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    with system.open_output_stream(str(part)) as out:
        out.write(data)
    system.move(str(part), str(path))


def write_once(system: fs.FileSystem, path: PurePosixPath, data: bytes) -> None:
    """Write a file as a whole unless it exists; on a local disk, the first of several wins."""
    if not isinstance(system, fs.LocalFileSystem):
        if system.get_file_info(str(path)).type == fs.FileType.NotFound:
            write_whole(system, path, data)
        return
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    write_whole(system, part, data)
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    finally:
        remove(system, part)


def check_writable(uri: str) -> None:
    """Raise an OSError if a folder is not writable."""
    system, path = located(uri)
    probe = PurePosixPath(path) / ".writable"
    write_whole(system, probe, b"")
    remove(system, probe)


def append_line(uri: str, line: str) -> None:
    """Append a line to a file; where files cannot grow (S3), write one numbered file a line."""
    system, path = located(uri)
    system.create_dir(str(PurePosixPath(path).parent), recursive=True)
    try:
        out = system.open_append_stream(path)
    except (NotImplementedError, pa.ArrowNotImplementedError):
        lines = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        write_whole(system, PurePosixPath(path) / f"{len(lines):06d}", f"{line}\n".encode())
    else:
        with out:
            out.write(f"{line}\n".encode())


def remove(system: fs.FileSystem, path: PurePosixPath) -> None:
    """Remove a file if it still exists."""
    with contextlib.suppress(FileNotFoundError):
        system.delete_file(str(path))


class Rooted:
    """A group of files under one root, a path or a URI."""

    root: str

    @cached_property
    def _located(self) -> tuple[fs.FileSystem, str]:
        return located(self.root)

    @property
    def _system(self) -> fs.FileSystem:
        return self._located[0]

    @property
    def _path(self) -> PurePosixPath:
        return PurePosixPath(self._located[1])

    def _bytes(self, path: PurePosixPath) -> bytes:
        with self._system.open_input_stream(str(path)) as file:
            return bytes(file.read())

    def _infos(self, folder: PurePosixPath) -> list[fs.FileInfo]:
        """Return the files of a folder, without those that are being written."""
        infos = self._system.get_file_info(fs.FileSelector(str(folder), allow_not_found=True))
        return [info for info in infos if not info.base_name.startswith(".")]

    def _numbers(self, folder: PurePosixPath) -> list[int]:
        """Return the names of the files of a folder that are numbers, in order."""
        names = (info.base_name for info in self._infos(folder))
        return sorted(int(name) for name in names if name.isdigit())
