"""Where states are, by keys: what tasks told, put together; and what follows for a batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.murmur import cell_workers, cells, homes, targets
from unskew.spark.state.exports import GONE, MOVED
from unskew.spark.state.protocol import STAY

PLACES = pa.schema(
    {"id": pa.int64(), "key": pa.large_string(), "worker": pa.int32(), "object": pa.large_string()}
)
"""A key by the id of plans and by its text, the worker that has its state, or will have it, and the
object that it is in, with block and row, if it is on its way. A worker of -1: there is no state; an
object of no name: there is none either, but a plan wants the key to be there."""
PARKED = ""
WANTED = pa.schema({"id": pa.int64(), "worker": pa.int32()})
KEYS = ["id", "key"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CellOwners:
    """Where keys are that no plan and no record tells of.

    Parameters
    ----------
    n_workers
        Shuffle partitions.
    active
        The workers that are active, if they come and go.
    """

    n_workers: int
    active: tuple[int, ...] | None = None

    @property
    def elastic(self) -> bool:
        """Whether workers come and go."""
        return self.active is not None

    @property
    def workers(self) -> tuple[int, ...]:
        """The workers that are active."""
        return (*range(self.n_workers),) if self.active is None else self.active

    @cached_property
    def by_cell(self) -> Ints:
        """The worker of every cell."""
        return cell_workers(self.n_workers, self.workers)

    def of(self, ids: Ints) -> Ints:
        """Return the workers of keys."""
        keys = ids.view(np.uint64)
        if self.active is None:
            return homes(keys, self.n_workers).astype(np.int64)
        return self.by_cell[cells(keys, self.n_workers)]


@dataclass(frozen=True)
class Wanted:
    """Where a plan wants keys to be; the others should be at home."""

    table: pa.Table

    @classmethod
    def none(cls) -> Wanted:
        """Return what no plan wants."""
        return cls(WANTED.empty_table())

    @classmethod
    def of(cls, keys: NDArray[np.uint64], workers: NDArray[Any]) -> Wanted:
        """Return what a plan wants."""
        order = np.argsort(keys.view(np.int64), kind="stable")
        columns = [keys.view(np.int64)[order], workers[order].astype(np.int32)]
        return cls(pa.table(columns, schema=WANTED))

    @cached_property
    def ids(self) -> Ints:
        """The keys, in order."""
        return np.asarray(self.table["id"].to_numpy())

    def workers(self, ids: Ints, homes: CellOwners) -> Ints:
        """Return where keys should be: not at a worker that is not active."""
        found = homes.of(ids)
        if not len(self.ids) or not len(ids):
            return found
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        workers = self.table["worker"].to_numpy().astype(np.int64)[at]
        known = (self.ids[at] == ids) & np.isin(workers, homes.workers)
        return np.where(known, workers, found)


@dataclass(frozen=True)
class Record:
    """Where states are that a key alone does not tell.

    Parameters
    ----------
    base, changed
        All of them, and what has changed since.
    """

    base: pa.Table
    changed: pa.Table

    @classmethod
    def empty(cls) -> Record:
        """Return the record of a query that begins."""
        return cls(PLACES.empty_table(), PLACES.empty_table())

    @property
    def changes(self) -> int:
        """How many keys have changed."""
        return len(self.changed)

    @cached_property
    def table(self) -> pa.Table:
        """All keys of the record."""
        kept = _without(self.base, self.changed)
        return pa.concat_tables([kept, _held(self.changed)])

    def settled(self) -> Record:
        """Return the same with nothing changed."""
        return Record(self.table.combine_chunks(), PLACES.empty_table())

    def after(self, told: pa.Table, homes: CellOwners, wanted: Wanted) -> Record:
        """Return what is known when tasks have told more.

        Without workers that come and go, keys that are at home are not recorded, and one without a
        state is taken to be where it should be.
        """
        if not len(told):
            return self
        if not homes.elastic:
            ids = told["id"].to_numpy()
            workers, at_home = told["worker"].to_numpy().astype(np.int64), homes.of(ids)
            goal, gone = wanted.workers(ids, homes), workers < 0
            objects = pc.if_else(pa.array(gone), PARKED, told["object"])
            workers = np.where(gone, goal, workers)
            still = gone | np.asarray(told["object"].is_null())
            workers = np.where(still & (workers == at_home), -1, workers)
            places = [pa.array(workers.astype(np.int32)), objects.cast(pa.large_string())]
            told = pa.table([told["id"], told["key"], *places], schema=PLACES)
        return self.replaced(told)

    def wanted_only(self, homes: CellOwners, wanted: Wanted) -> Record:
        """Return the record without keys that have no state, and that no plan wants there."""
        parked = self.table.filter(pc.equal(self.table["object"], PARKED))
        goal = wanted.workers(parked["id"].to_numpy(), homes)
        left = parked.filter(pa.array(parked["worker"].to_numpy() != goal))
        if not len(left):
            return self
        nowhere = pa.array(np.full(len(left), -1, np.int32))
        return self.replaced(left.set_column(2, "worker", nowhere))

    def replaced(self, places: pa.Table) -> Record:
        """Return the record with other places of some keys."""
        changed = pa.concat_tables([_without(self.changed, places), places])
        changed = changed if len(self.base) else _held(changed)
        return Record(self.base, changed.combine_chunks())

    @cached_property
    def pending(self) -> pa.Table:
        """The keys whose states are on their way."""
        return self.table.filter(pc.greater(pc.binary_length(self.table["object"]), 0))

    def awaited(self) -> Counter[str]:
        """Return the objects that states are in, with how many."""
        paths = pc.split_pattern(self.pending["object"], "#", max_splits=1)
        return Counter(pc.list_element(paths, 0).to_pylist()) if len(paths) else Counter()

    def in_object(self, path: str) -> list[dict[str, Any]]:
        """Return the keys whose states are in an object."""
        chosen = pc.starts_with(self.pending["object"], f"{path}#")
        found: list[dict[str, Any]] = self.pending.filter(chosen).to_pylist()
        return sorted(found, key=lambda row: [int(n) for n in row["object"].split("#")[1:]])

    @cached_property
    def on_their_way(self) -> dict[tuple[int, str], tuple[str, int]]:
        """The objects of states by keys, and where they go."""
        columns = (self.pending[name].to_pylist() for name in ("id", "key", "object", "worker"))
        return {(number, key): (path, to) for number, key, path, to in zip(*columns, strict=True)}

    def where(self, number: int, key: str, worker: int) -> str:
        """Return the object of a state that is on its way to a worker; none if none is."""
        path, to = self.on_their_way.get((number, key), ("", -1))
        return path if to == worker else ""


def _held(table: pa.Table) -> pa.Table:
    """Return the keys that have a state."""
    return table.filter(pc.greater_equal(table["worker"], 0))


def _without(table: pa.Table, others: pa.Table) -> pa.Table:
    """Return a table without the keys of another."""
    if not len(table) or not len(others):
        return table
    near = np.isin(table["id"].to_numpy(), others["id"].to_numpy())
    if not near.any():
        return table
    # Joins of Arrow do not take large texts; few rows are left here, so Python will do.
    known = {*zip(others["id"].to_pylist(), others["key"].to_pylist(), strict=True)}
    rows = np.flatnonzero(near)
    some = table.take(rows)
    same = [
        pair in known for pair in zip(some["id"].to_pylist(), some["key"].to_pylist(), strict=True)
    ]
    keep = np.ones(len(table), bool)
    keep[rows[np.array(same)]] = False
    return table.filter(pa.array(keep))


@dataclass(frozen=True)
class Orders:
    """What a batch does with keys.

    Parameters
    ----------
    log, batch
        The id of the record, and the batch.
    homes, record, wanted
        Where keys are, and where they should be.
    base
        The file of the record as a whole.
    """

    log: str
    batch: int
    homes: CellOwners
    record: Record
    wanted: Wanted
    base: str | None = None

    @property
    def telling(self) -> bool:
        """Whether tasks may have anything to tell."""
        return self.homes.elastic or len(self.wanted.ids) > 0 or len(self.record.table) > 0

    def by_id(self) -> pa.Table:
        """Return a row for each id that rows cannot be sent by alone.

        Where keys with this id go that are not ``known``, with what to do with their state; and for
        those that are, where they go, and so on.
        """
        place = np.asarray(self.record.table["worker"].to_numpy(), np.int64)
        ids = np.asarray(self.record.table["id"].to_numpy())
        goal = self.wanted.workers(ids, self.homes)
        if self.homes.elastic:
            away = (place != goal) | (place != self.homes.of(ids))
            away |= np.asarray(self.record.table["object"].is_valid())
            listed = np.isin(ids, ids[away])
        else:
            listed = np.ones(len(ids), bool)
        rows = np.flatnonzero(listed)
        rows = rows[np.argsort(ids[rows], kind="stable")]
        planned = self.wanted.ids
        wanted = self.wanted.workers(planned, self.homes)
        others = planned[wanted != self.homes.of(planned)]
        unique = np.union1d(ids[rows], others)
        generic = self.wanted.workers(unique, self.homes)
        start = generic if self.homes.elastic else self.homes.of(unique)
        offsets = np.searchsorted(ids[rows], np.append(unique, np.iinfo(np.int64).max), "left")
        offsets[-1] = len(rows)
        chosen = self.record.table.take(rows)
        known = pa.StructArray.from_arrays(
            [
                chosen["key"].combine_chunks().cast(pa.string()),
                *self._sent(place[rows], goal[rows]),
                chosen["object"].combine_chunks().cast(pa.string()),
            ],
            ["key", "target", "to", "announced", "object"],
        )
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), known)
        columns = [pa.array(unique), *self._sent(start, generic), lists]
        return pa.table(columns, ["id", "target", "to", "announced", "known"])

    def by_cell(self) -> pa.Table:
        """Return where new keys go, by their cells."""
        goal = targets(self.homes.n_workers)[self.homes.by_cell]
        return pa.table({"id": pa.array(np.arange(len(goal))), "target": pa.array(goal)})

    def _sent(self, place: Ints, goal: Ints) -> list[pa.Array]:
        """Return the targets of workers, what to do with states there, and targets to announce."""
        anchored, stays = targets(self.homes.n_workers), place == goal
        return [
            pa.array(anchored[place]),
            pa.array(np.where(stays, STAY, goal).astype(np.int32)),
            pa.array(anchored[goal], mask=stays),
        ]


def told_places(path: str, index: pa.RecordBatch) -> pa.Table:
    """Return where the states are of which a task told."""
    moved = pc.equal(index["kind"], MOVED)
    parts = [pa.scalar(path), index["block"].cast(pa.string()), index["row"].cast(pa.string())]
    where = pc.binary_join_element_wise(*parts, "#").cast(pa.large_string())
    gone = pc.equal(index["kind"], GONE)
    worker = pc.if_else(gone, pa.scalar(-1, pa.int32()), index["worker"])
    objects = pc.if_else(moved, where, pa.scalar(None, pa.large_string()))
    return pa.table([index["id"], index["key"], worker, objects], schema=PLACES)


def table_bytes(table: pa.Table) -> bytes:
    """Return a table as bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return bytes(sink.getvalue())


def read_table(data: bytes) -> pa.Table:
    """Return the table of some bytes."""
    return pa.ipc.open_stream(data).read_all()
