"""Plans for Spark: the workers of each hot key, versioned files beside a query's checkpoint."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.fs as fs
from numpy.typing import NDArray

from unskew.sealed import SealError, seal, unseal
from unskew.spark.files import located, remove, write_whole

if TYPE_CHECKING:
    # Tasks that read plans should start fast: no kernels.
    from unskew.hashing import Keys

KIND = "split plan 2"
KEPT = 100

log = logging.getLogger("unskew.spark")


class PlanFolderError(ValueError):
    """A plan that is in force cannot be read."""


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """Keys with their workers, a row for each pair; all other keys go by Spark's hash.

    A pair that comes twice gets twice the records.

    Parameters
    ----------
    n_workers
        Shuffle partitions.
    keys, workers
        The pairs, by key.
    version
        0 for a plan without pairs that nobody made.
    scheme
        Who made it.
    moved, origins
        Keys whose state may still be elsewhere, each with a worker where it may be.
    """

    n_workers: int
    keys: Keys
    workers: NDArray[np.int32]
    version: int = 0
    scheme: str = "none"
    moved: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    origins: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    @classmethod
    def empty(cls, n_workers: int) -> SplitPlan:
        """Return a plan without pairs."""
        return cls(n_workers, np.empty(0, np.uint64), np.empty(0, np.int32))

    @classmethod
    def of(
        cls, n_workers: int, rows: Sequence[tuple[int, int]], version: int, scheme: str
    ) -> SplitPlan:
        """Return the plan with these pairs."""
        keys = np.array([key for key, _ in rows], np.uint64)
        order = np.argsort(keys, kind="stable")
        workers = np.array([worker for _, worker in rows], np.int32)
        return cls(n_workers, keys[order], workers[order], version, scheme)

    def whole(self) -> tuple[Keys, NDArray[np.int32]]:
        """Return the keys that have one worker, and it."""
        keys, first, counts = np.unique(self.keys, return_index=True, return_counts=True)
        return keys[counts == 1], self.workers[first[counts == 1]]

    def without(self, keys: Keys) -> SplitPlan:
        """Return the plan without some keys."""
        stay = ~np.isin(self.keys, keys)
        return replace(self, keys=self.keys[stay], workers=self.workers[stay])

    def places(self, keys: Sequence[int]) -> NDArray[np.int32]:
        """Return the worker of each key, where keys are whole."""
        from unskew.plan import Plan
        from unskew.routers import TableRouter

        whole = Plan((1.0,) * self.n_workers, self.keys, self.workers, fallback="spark")
        return TableRouter.of(whole).route(np.array(keys, np.uint64))

    def with_origins(self, pairs: Sequence[tuple[int, int]]) -> SplitPlan:
        """Return the plan with keys whose state may be elsewhere, each with a worker."""
        keys, workers = zip(*pairs, strict=True) if pairs else ((), ())
        return replace(self, moved=np.array(keys, np.uint64), origins=np.array(workers, np.int32))

    def same_pairs(self, other: SplitPlan) -> bool:
        """Say whether another plan does the same."""
        return np.array_equal(self.keys, other.keys) and np.array_equal(self.workers, other.workers)

    def to_bytes(self) -> bytes:
        """Return the plan as one checksummed piece."""
        buffer = io.BytesIO()
        facts = np.array([self.n_workers, self.version], np.int64)
        np.savez(
            buffer,
            keys=self.keys,
            workers=self.workers,
            moved=self.moved,
            origins=self.origins,
            facts=facts,
            scheme=np.array(self.scheme),
        )
        return seal(KIND, buffer.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes) -> SplitPlan:
        """Return the plan that `to_bytes` gave; refuse a broken one."""
        with np.load(io.BytesIO(unseal(KIND, data)), allow_pickle=False) as arrays:
            n_workers, version = map(int, arrays["facts"])
            scheme = str(arrays["scheme"])
            pairs, moves = (arrays["keys"], arrays["workers"]), (arrays["moved"], arrays["origins"])
            return cls(n_workers, *pairs, version, scheme, *moves)


@dataclass(frozen=True)
class PlanFolder:
    """The plans of a query, one file a version; the last hundred are kept."""

    root: str

    def save(self, plan: SplitPlan) -> None:
        """Write a plan, all or nothing."""
        system, path = located(self.root)
        write_whole(system, PurePosixPath(path) / str(plan.version), plan.to_bytes())
        for old in self._versions(system, path)[:-KEPT]:
            remove(system, PurePosixPath(path) / str(old))

    def load(self, version: int) -> SplitPlan:
        """Return a plan; refuse a broken one."""
        system, path = located(self.root)
        with system.open_input_stream(f"{path}/{version}") as file:
            return SplitPlan.from_bytes(file.read())

    def latest(self) -> SplitPlan | None:
        """Return the newest plan that can be read; broken ones are reported and passed over."""
        system, path = located(self.root)
        for version in reversed(self._versions(system, path)):
            try:
                return self.load(version)
            except (SealError, OSError) as error:
                log.warning("plan %s/%s is passed over: %s", path, version, error)
        return None

    def since(self, version: int) -> int | None:
        """Return the batch that a plan came into force with; None if it has not."""
        system, path = located(f"{self.root}/in-force")
        for batch in reversed(self._versions(system, path)):
            found = self._read(system, f"{path}/{batch}")
            if found["version"] == version:
                return found["since"]
        return None

    def in_force(self, batch: int) -> tuple[SplitPlan | None, int]:
        """Return the plan of a batch, and the batch that it came into force with.

        The first who asks for a batch decides, and that is written down: however often the batch is
        tried, it has one plan. Where state follows the plan, a broken one may not be passed over.
        """
        system, path = located(f"{self.root}/in-force")
        known = self._versions(system, path)
        if batch not in known:
            newest = self._versions(*located(self.root))
            found = {"version": newest[-1] if newest else 0, "since": batch}
            earlier = [at for at in known if at < batch]
            if earlier:
                last = self._read(system, f"{path}/{earlier[-1]}")
                found = last if last["version"] == found["version"] else found
            write_whole(system, PurePosixPath(path) / str(batch), json.dumps(found).encode())
            for old in earlier[:-KEPT]:
                remove(system, PurePosixPath(path) / str(old))
        found = self._read(system, f"{path}/{batch}")
        if not found["version"]:
            return None, found["since"]
        try:
            return self.load(found["version"]), found["since"]
        except (SealError, OSError) as error:
            raise PlanFolderError(
                f"plan {self.root}/{found['version']}, in force in batch {batch}, cannot be read: "
                f"{error}; keys may have moved by it, so no other one will do: restore the file"
            ) from None

    @staticmethod
    def _read(system: fs.FileSystem, path: str) -> dict[str, int]:
        with system.open_input_stream(path) as file:
            data = file.read()
        try:
            return {name: int(value) for name, value in json.loads(data).items()}
        except (ValueError, AttributeError):
            raise PlanFolderError(f"{path} is broken: restore the file") from None

    @staticmethod
    def _versions(system: fs.FileSystem, path: str) -> list[int]:
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(int(info.base_name) for info in found if info.base_name.isdigit())
