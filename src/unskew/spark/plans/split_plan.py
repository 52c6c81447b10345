"""Plans for Spark: the workers of each hot key, versioned files beside a query's checkpoint."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.fs as fs
from numpy.typing import NDArray

from unskew.sealed import SealError, seal, unseal
from unskew.spark.runtime.files import located, remove, write_once

if TYPE_CHECKING:
    # Tasks that read plans should start fast: no kernels.
    from unskew.hashing import Keys

KIND = "split plan 1"
KEPT = 100

log = logging.getLogger("unskew.spark")


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
    """

    n_workers: int
    keys: Keys
    workers: NDArray[np.int32]
    version: int = 0
    scheme: str = "none"

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
            return cls(n_workers, arrays["keys"], arrays["workers"], version, scheme)


@dataclass(frozen=True)
class PlanFolder:
    """The plans of a query, one file a version; the last hundred are kept."""

    root: str

    def save(self, plan: SplitPlan) -> SplitPlan:
        """Write a plan, all or nothing; return it as saved, with the next version that is free.

        The last words of a query that was stopped may come when the next one has begun: a version
        that is there stays what it is.
        """
        system, path = located(self.root)
        versions = self._versions(system, path)
        if plan.version in versions:
            plan = replace(plan, version=versions[-1] + 1)
        write_once(system, PurePosixPath(path) / str(plan.version), plan.to_bytes())
        for old in self._versions(system, path)[:-KEPT]:
            remove(system, PurePosixPath(path) / str(old))
        return plan

    def keep(self, plan: SplitPlan) -> None:
        """Write a plan by its version, unless it is there."""
        system, path = located(self.root)
        write_once(system, PurePosixPath(path) / str(plan.version), plan.to_bytes())
        for old in self._versions(system, path)[:-KEPT]:
            remove(system, PurePosixPath(path) / str(old))

    def load(self, version: int) -> SplitPlan:
        """Return a plan; a broken one is an error."""
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

    @staticmethod
    def _versions(system: fs.FileSystem, path: str) -> list[int]:
        found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(int(info.base_name) for info in found if info.base_name.isdigit())
