"""A plan: the routing table of an interval, with a version, and the hash for all other keys.

F(k) = the worker of k's entry if there is one, else h(k)
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys, as_keys
from unskew.sealed import SealError, seal, unseal
from unskew.state import whole, within

FALLBACKS = ("consistent", "key", "spark")
KIND = "plan 1"
ROW = np.dtype([("keys", "<u8"), ("workers", "<i4")])


class PlanError(ValueError):
    """A plan's file is corrupt, or of another scheme, or its entries make no sense."""


@dataclass(frozen=True, eq=False)
class Difference:
    """The entries in which two plans differ, by key."""

    added: Keys
    removed: Keys
    changed: Keys

    def __len__(self) -> int:
        return sum(map(np.size, (self.added, self.removed, self.changed)))


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """A routing table with a version; immutable.

    Parameters
    ----------
    capacities
        Of the workers, as the ring of the fallback takes them: 0 for one that left.
    keys, workers
        The entries, by ascending key.
    version
        0 for a plan without entries that nobody made; each change adds 1.
    scheme
        Who made it.
    fallback
        The hash of keys without an entry: ``consistent`` (workers may come and go), ``key``, or
        ``spark``: where Spark puts a key, by the Murmur3 hash in its lower half, with a slot of 0.
    seed, nodes
        Of the hash; points on the ring of a worker of capacity 1.

    Examples
    --------
    >>> plan = Plan.empty(3).with_entries([9, 7], [2, 0], scheme="mixed")
    >>> plan
    Plan(version=1, scheme='mixed', workers=3, entries=2, fallback='consistent')
    >>> Plan.from_bytes(plan.to_bytes()) == plan
    True
    >>> plan.difference(plan.with_entries([7, 8], [1, 1])).changed.tolist()
    [7]
    """

    capacities: tuple[float, ...]
    keys: Keys = field(default_factory=lambda: np.empty(0, np.uint64))
    workers: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    version: int = 0
    scheme: str = "none"
    fallback: str = "consistent"
    seed: int = 0
    nodes: int = 128

    def __post_init__(self) -> None:
        whole("version", self.version, 0)
        whole("nodes", self.nodes, 1)
        within("seed", self.seed, 0, 2**64 - 1)
        if int(self.seed) != self.seed:
            raise ValueError(f"seed must be a whole number, got {self.seed}")
        for name in ("version", "nodes", "seed"):
            object.__setattr__(self, name, int(getattr(self, name)))
        for name in ("keys", "workers"):
            array = np.array(getattr(self, name))
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        if self.fallback not in FALLBACKS:
            raise PlanError(f"fallback must be one of {', '.join(FALLBACKS)}, got {self.fallback}")
        if not (
            self.active.any() and np.isfinite(self.capacities).all() and min(self.capacities) >= 0
        ):
            raise PlanError(f"capacities must be finite, some above 0, got {self.capacities}")
        if self.fallback != "consistent" and not self.active.all():
            raise PlanError(
                f"with the fallback {self.fallback!r} no worker can leave: use 'consistent'"
            )
        if len(self.keys) != len(self.workers):
            raise PlanError(f"{len(self.keys)} keys for {len(self.workers)} workers")
        if (self.keys[1:] <= self.keys[:-1]).any():
            raise PlanError("the keys of a plan must ascend, each once")
        bounds = (self.workers >= 0) & (self.workers < self.n_workers)
        if not (bounds.all() and self.active[self.workers].all()):
            raise PlanError(f"a plan must send keys to active workers of {self.n_workers}")

    @classmethod
    def empty(
        cls, workers: int | Sequence[float], *, fallback: str = "consistent", seed: int = 0
    ) -> Plan:
        """Return a plan without entries, for a number of workers or for their capacities."""
        given = [1.0] * workers if isinstance(workers, int | np.integer) else workers
        return cls(tuple(map(float, given)), fallback=fallback, seed=seed)

    @property
    def n_workers(self) -> int:
        """Workers, those that left included."""
        return len(self.capacities)

    @property
    def active(self) -> NDArray[np.bool_]:
        """Which workers have not left."""
        return np.array(self.capacities, np.float64) > 0

    def with_entries(self, keys: Any, workers: Any, *, scheme: str | None = None) -> Plan:
        """Return the next version, with these entries and no others."""
        given, targets = as_keys(keys), np.asarray(workers)
        if len(targets) != len(given):
            raise PlanError(f"{len(given)} keys for {len(targets)} workers")
        known = targets.dtype.kind in "iu" and (targets < self.n_workers).all()
        if len(targets) and not known:
            raise PlanError(f"a plan must send keys to active workers of {self.n_workers}")
        order = np.argsort(given, kind="stable")
        return replace(
            self,
            keys=given[order],
            workers=targets.astype(np.int32)[order],
            version=self.version + 1,
            scheme=self.scheme if scheme is None else scheme,
        )

    def with_workers(self, capacities: Sequence[float]) -> Plan:
        """Return the next version for other workers; entries of those that left are dropped.

        A worker that stays keeps its capacity on the ring, so that only keys of workers that come
        or go change place.
        """
        given = np.zeros(max(len(capacities), self.n_workers))
        given[: len(capacities)] = capacities
        old = np.zeros(len(given))
        old[: self.n_workers] = self.capacities
        ring = np.where((old > 0) & (given > 0), old, given)
        if self.fallback != "consistent" and not np.array_equal(ring, self.capacities):
            raise PlanError(
                f"with the fallback {self.fallback!r} workers cannot change: use 'consistent'"
            )
        stay = ring[self.workers] > 0
        return replace(
            self,
            capacities=tuple(ring.tolist()),
            keys=self.keys[stay],
            workers=self.workers[stay],
            version=self.version + 1,
        )

    def difference(self, other: Plan) -> Difference:
        """Return the keys whose entries another plan adds, removes, or sends elsewhere."""
        both, mine, theirs = np.intersect1d(
            self.keys, other.keys, assume_unique=True, return_indices=True
        )
        return Difference(
            added=np.setdiff1d(other.keys, both, assume_unique=True),
            removed=np.setdiff1d(self.keys, both, assume_unique=True),
            changed=both[self.workers[mine] != other.workers[theirs]],
        )

    def to_bytes(self) -> bytes:
        """Return the plan as one small, checksummed piece."""
        rows = np.empty(len(self.keys), ROW)
        rows["keys"], rows["workers"] = self.keys, self.workers
        names = ("version", "scheme", "fallback", "seed", "nodes", "capacities")
        header = json.dumps({name: getattr(self, name) for name in names}).encode()
        return seal(KIND, header + b"\n" + rows.tobytes())

    @classmethod
    def from_bytes(cls, data: bytes, *, scheme: str | None = None) -> Plan:
        """Return the plan that `to_bytes` gave; refuse a broken one, or one of another scheme."""
        try:
            body = unseal(KIND, data)
        except SealError as error:
            raise PlanError(str(error)) from None
        header, _, rows = body.partition(b"\n")
        try:
            known, table = json.loads(header), np.frombuffer(rows, ROW)
            known["capacities"] = tuple(known["capacities"])
            keys, workers = table["keys"].astype(np.uint64), table["workers"].astype(np.int32)
            plan = cls(keys=keys, workers=workers, **known)
        except (ValueError, KeyError, TypeError) as error:
            raise PlanError(f"the plan makes no sense: {error}") from error
        if scheme is not None and plan.scheme != scheme:
            raise PlanError(f"a plan of the scheme {plan.scheme!r}, not of {scheme!r}")
        return plan

    def save(self, path: str | Path) -> None:
        """Write the plan to a file, all or nothing."""
        path = Path(path)
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with part.open("wb") as file:
                file.write(self.to_bytes())
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path, *, scheme: str | None = None) -> Plan:
        """Read a plan from a file; refuse a broken one, or one of another scheme."""
        try:
            return cls.from_bytes(Path(path).read_bytes(), scheme=scheme)
        except PlanError as error:
            raise PlanError(f"{path}: {error}") from None

    def __repr__(self) -> str:
        return (
            f"Plan(version={self.version}, scheme={self.scheme!r}, workers={self.n_workers}, "
            f"entries={len(self.keys)}, fallback={self.fallback!r})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.to_bytes())
