"""Plans for Spark: the workers of hot keys, in versioned files beside a query's checkpoint."""

from __future__ import annotations

import io
import logging
from collections.abc import Collection, Sequence
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

PLAN_KIND = "split plan 1"
KEPT_PLANS = 100

log = logging.getLogger("unskew.spark")


@dataclass(frozen=True, eq=False)
class SplitPlan:
    """Pairs of a key and a worker; all other keys go by Spark's hash.

    A worker that is paired twice with a key gets twice the records.

    Parameters
    ----------
    n_workers
        Shuffle partitions.
    keys, workers
        The pairs, sorted by key.
    version
        The version of the plan; 0 for the empty plan before the first one.
    scheme
        The scheme that made the plan.
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
        """Return the keys that have a single worker, and their workers."""
        keys, first, counts = np.unique(self.keys, return_index=True, return_counts=True)
        return keys[counts == 1], self.workers[first[counts == 1]]

    def without(self, keys: Keys) -> SplitPlan:
        """Return the plan without some keys."""
        kept = ~np.isin(self.keys, keys)
        return replace(self, keys=self.keys[kept], workers=self.workers[kept])

    def same_pairs(self, other: SplitPlan) -> bool:
        """Return whether another plan has the same pairs."""
        return np.array_equal(self.keys, other.keys) and np.array_equal(self.workers, other.workers)

    def to_bytes(self) -> bytes:
        """Return the plan as bytes with a checksum."""
        buffer = io.BytesIO()
        facts = np.array([self.n_workers, self.version], np.int64)
        np.savez(
            buffer,
            keys=self.keys,
            workers=self.workers,
            facts=facts,
            scheme=np.array(self.scheme),
        )
        return seal(PLAN_KIND, buffer.getvalue())

    @classmethod
    def from_bytes(cls, data: bytes) -> SplitPlan:
        """Return the plan that `to_bytes` wrote; raise a `SealError` if it is damaged."""
        with np.load(io.BytesIO(unseal(PLAN_KIND, data)), allow_pickle=False) as arrays:
            n_workers, version = map(int, arrays["facts"])
            scheme = str(arrays["scheme"])
            return cls(n_workers, arrays["keys"], arrays["workers"], version, scheme)


@dataclass(frozen=True)
class PlanFolder:
    """The plans of a query, one file for each version; at least the last hundred are kept."""

    root: str

    def save(self, plan: SplitPlan, *, renumber: bool = True) -> SplitPlan:
        """Write a plan atomically, and return it with the version that it was saved as.

        An existing version is never overwritten: the last progress event of a stopped query may
        arrive when the next run has begun. By default the plan then gets the next free version;
        without ``renumber`` it is not written, and no old plan is removed.
        """
        system, path = located(self.root)
        if renumber and plan.version in (versions := self._versions(system, path)):
            plan = replace(plan, version=versions[-1] + 1)
        write_once(system, PurePosixPath(path) / str(plan.version), plan.to_bytes())
        if renumber:
            self.remove_old()
        return plan

    def remove_old(self, used: Collection[int] = ()) -> None:
        """Remove all plans but the last hundred and those that are used."""
        system, path = located(self.root)
        for old in self._versions(system, path)[:-KEPT_PLANS]:
            if old not in used:
                remove(system, PurePosixPath(path) / str(old))

    def load(self, version: int) -> SplitPlan:
        """Return a plan; raise a `SealError` if it is damaged."""
        system, path = located(self.root)
        with system.open_input_stream(f"{path}/{version}") as file:
            return SplitPlan.from_bytes(file.read())

    def latest(self) -> SplitPlan | None:
        """Return the newest plan that can be read; damaged ones are logged and skipped."""
        system, path = located(self.root)
        for version in reversed(self._versions(system, path)):
            try:
                return self.load(version)
            except (SealError, OSError) as error:
                log.warning("plan %s/%s is skipped: %s", path, version, error)
        return None

    @staticmethod
    def _versions(system: fs.FileSystem, path: str) -> list[int]:
        infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(int(info.base_name) for info in infos if info.base_name.isdigit())
