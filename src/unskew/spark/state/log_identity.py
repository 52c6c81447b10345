"""The identity of a move log: its query, its number of workers, and whether they come and go.

It is stored in the file ``log``, which the first batch of a query writes once.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import pyarrow.fs as fs

from unskew.sealed import SealError, seal, unseal
from unskew.spark.runtime.files import Rooted, located, write_once
from unskew.spark.runtime.places import Place

LOG_KIND = "log of states 1"


class LostStateError(RuntimeError):
    """A file of the record of moved states is lost, damaged, or from another query."""


@dataclass(frozen=True)
class LogIdentity(Rooted):
    """The query and the workers that a log belongs to.

    Parameters
    ----------
    place
        The folder of its files.
    n_workers
        Shuffle partitions.
    elastic
        Whether workers come and go.
    """

    place: Place
    n_workers: int
    elastic: bool = False

    @property
    def root(self) -> str:  # type: ignore[override]
        """The folder of the log."""
        return self.place.root

    def saved(self) -> dict[str, Any] | None:
        """Return the identity that the file ``log`` holds; None if the query has not run yet."""
        try:
            identity: dict[str, Any] = json.loads(unseal(LOG_KIND, self._bytes(self._path / "log")))
        except FileNotFoundError:
            return None
        except SealError as error:
            raise self._lost(self._path / "log", "the identity of the record", error) from None
        return identity

    def check(self) -> None:
        """Refuse a log with another number of workers, or with ``active`` added or left out."""
        saved = self.saved()
        if saved is None:
            return
        if saved["workers"] != self.n_workers:
            raise LostStateError(
                f"{self.root} belongs to a query with {saved['workers']} workers, and now there "
                f"are {self.n_workers}: set spark.sql.shuffle.partitions to {saved['workers']}, or "
                "begin with a new checkpoint"
            )
        if saved["elastic"] != self.elastic:
            had, way = ("had", "give it again") if saved["elastic"] else ("had no", "leave it out")
            raise LostStateError(
                f"the balancer of this checkpoint {had} active=...: {way}, or begin with a new "
                f"checkpoint ({self.root})"
            )

    def _begin(self, batch: int) -> str:
        """Return the id of the log; begin a log for a query that has not run yet."""
        self.check()
        path = self._path / "log"
        if not self._exists(path):
            self._check_new()
            identity = {
                "id": uuid.uuid4().hex,
                "first": batch,
                "workers": self.n_workers,
                "elastic": self.elastic,
            }
            write_once(self._system, path, seal(LOG_KIND, json.dumps(identity).encode()))
        return self._log_id

    @cached_property
    def _identity(self) -> dict[str, Any]:
        saved = self.saved()
        if saved is None:
            raise self._lost(self._path / "log", "the identity of the record", FileNotFoundError())
        return saved

    @property
    def _log_id(self) -> str:
        return str(self._identity["id"])

    def _check_new(self) -> None:
        """Refuse to begin a record for a query that has run without one."""
        system, path = located(self.place.checkpoint)
        selector = fs.FileSelector(f"{path}/commits", allow_not_found=True)
        if any(info.base_name.isdigit() for info in system.get_file_info(selector)):
            raise LostStateError(
                f"the query of {self.place.checkpoint} has run before, and there is no record of "
                f"its states in {self.root}: restore that folder, give the balancer the name that "
                "it had, or begin with a new checkpoint"
            )

    def _exists(self, path: PurePosixPath) -> bool:
        return bool(self._system.get_file_info(str(path)).type != fs.FileType.NotFound)

    def _lost(self, path: PurePosixPath, what: str, error: Exception) -> LostStateError:
        text = "the file is missing" if isinstance(error, FileNotFoundError) else str(error)
        return LostStateError(
            f"{path} ({what}): {text}; restore that file as it was, and start the query again"
        )
