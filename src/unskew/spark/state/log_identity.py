"""What a log of moved states belongs to: a query, its number of workers, and whether they change.

It is kept in the file ``log``, which is written once, by the first batch of a query.
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

LOG = "log of states 1"


class LostStateError(RuntimeError):
    """A file that tells of moved states is lost, broken, or another's."""


@dataclass(frozen=True)
class LogIdentity(Rooted):
    """The query and the workers that a log belongs to.

    Parameters
    ----------
    place
        Where its files are.
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
        """The folder."""
        return self.place.root

    def known(self) -> dict[str, Any] | None:
        """Return what the record is of; None if there is none yet."""
        try:
            found: dict[str, Any] = json.loads(unseal(LOG, self._bytes(self._path / "log")))
        except FileNotFoundError:
            return None
        except SealError as error:
            raise self._lost(self._path / "log", "what the record is of", error) from None
        return found

    def check(self) -> None:
        """Refuse to go on with a log that is of other workers, or of workers that stay."""
        known = self.known()
        if known is None:
            return
        if known["workers"] != self.n_workers:
            raise LostStateError(
                f"{self.root} is of a query with {known['workers']} workers, and now there are "
                f"{self.n_workers}: set spark.sql.shuffle.partitions as it was, or "
                "begin with a new checkpoint"
            )
        if known["elastic"] != self.elastic:
            had, way = ("had", "give it again") if known["elastic"] else ("had no", "leave it out")
            raise LostStateError(
                f"the balancer of this checkpoint {had} active=...: {way}, or begin with a new "
                f"checkpoint ({self.root})"
            )

    def _begun(self, batch: int) -> str:
        """Return the id of the log; begin one for a query that has not run yet."""
        self.check()
        path = self._path / "log"
        if not self._there(path):
            self._check_new()
            about = {
                "id": uuid.uuid4().hex,
                "first": batch,
                "workers": self.n_workers,
                "elastic": self.elastic,
            }
            write_once(self._system, path, seal(LOG, json.dumps(about).encode()))
        return self._log_id

    @cached_property
    def _about(self) -> dict[str, Any]:
        found = self.known()
        if found is None:
            raise self._lost(self._path / "log", "what the record is of", FileNotFoundError())
        return found

    @property
    def _log_id(self) -> str:
        return str(self._about["id"])

    def _check_new(self) -> None:
        """Refuse to begin a record for a query that has run without one."""
        system, path = located(self.place.checkpoint)
        selector = fs.FileSelector(f"{path}/commits", allow_not_found=True)
        if any(info.base_name.isdigit() for info in system.get_file_info(selector)):
            raise LostStateError(
                f"the query of {self.place.checkpoint} has run before, and there is no record of "
                f"where its states are in {self.root}: restore that folder, give the balancer the "
                "name that it had, or begin with a new checkpoint"
            )

    def _there(self, path: PurePosixPath) -> bool:
        return bool(self._system.get_file_info(str(path)).type != fs.FileType.NotFound)

    def _lost(self, path: PurePosixPath, what: str, error: Exception) -> LostStateError:
        text = "it is not there" if isinstance(error, FileNotFoundError) else str(error)
        return LostStateError(
            f"{path}, {what}: {text}; restore that file as it was, and start the query again"
        )
