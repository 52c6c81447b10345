"""The record of where states are, merged from the reports of tasks, and the orders of a batch."""

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
"""A key by its id in plans and by its text, the worker that has its state or will have it, and, for
a state on its way, its object with block and row. Worker -1 means that there is no state; the
object `RESERVED` that there is none either, but that a plan assigns the key to the worker."""
RESERVED = ""
PLANNED = pa.schema({"id": pa.int64(), "worker": pa.int32()})

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CellOwners:
    """The workers of keys that are in no plan and not in the record.

    Parameters
    ----------
    n_workers
        Shuffle partitions.
    active
        The active workers, if workers come and go.
    """

    n_workers: int
    active: tuple[int, ...] | None = None

    @property
    def elastic(self) -> bool:
        """Whether workers come and go."""
        return self.active is not None

    @property
    def workers(self) -> tuple[int, ...]:
        """The active workers."""
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
class PlannedWorkers:
    """The workers that a plan assigns to keys; all other keys belong at home."""

    table: pa.Table

    @classmethod
    def none(cls) -> PlannedWorkers:
        """Return the assignment without a plan: all keys belong at home."""
        return cls(PLANNED.empty_table())

    @classmethod
    def of(cls, keys: NDArray[np.uint64], workers: NDArray[Any]) -> PlannedWorkers:
        """Return the assignment of a plan."""
        order = np.argsort(keys.view(np.int64), kind="stable")
        columns = [keys.view(np.int64)[order], workers[order].astype(np.int32)]
        return cls(pa.table(columns, schema=PLANNED))

    @cached_property
    def ids(self) -> Ints:
        """The ids of the keys, in ascending order."""
        return np.asarray(self.table["id"].to_numpy())

    def workers(self, ids: Ints, owners: CellOwners) -> Ints:
        """Return the workers that keys belong on, all of them active."""
        at_home = owners.of(ids)
        if not len(self.ids) or not len(ids):
            return at_home
        at = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        workers = self.table["worker"].to_numpy().astype(np.int64)[at]
        usable = (self.ids[at] == ids) & np.isin(workers, owners.workers)
        return np.where(usable, workers, at_home)


@dataclass(frozen=True)
class Record:
    """The places of states that do not follow from their keys alone.

    Parameters
    ----------
    base, changed
        The places of the last snapshot, and those that have changed since.
    """

    base: pa.Table
    changed: pa.Table

    @classmethod
    def empty(cls) -> Record:
        """Return the record of a new query."""
        return cls(PLACES.empty_table(), PLACES.empty_table())

    @property
    def changes(self) -> int:
        """The number of keys whose places have changed."""
        return len(self.changed)

    @cached_property
    def table(self) -> pa.Table:
        """The places of all keys of the record."""
        unchanged = _without(self.base, self.changed)
        return pa.concat_tables([unchanged, _placed(self.changed)])

    def compacted(self) -> Record:
        """Return the same record with all places in its base."""
        return Record(self.table.combine_chunks(), PLACES.empty_table())

    def after(self, reported: pa.Table, owners: CellOwners, planned: PlannedWorkers) -> Record:
        """Return the record with the places that tasks reported.

        If workers do not come and go, keys at home are not recorded, and a key without a state
        counts as being on the worker that it belongs on.
        """
        if not len(reported):
            return self
        if not owners.elastic:
            ids = reported["id"].to_numpy()
            workers, at_home = reported["worker"].to_numpy().astype(np.int64), owners.of(ids)
            goal, gone = planned.workers(ids, owners), workers < 0
            objects = pc.if_else(pa.array(gone), RESERVED, reported["object"])
            workers = np.where(gone, goal, workers)
            still = gone | np.asarray(reported["object"].is_null())
            workers = np.where(still & (workers == at_home), -1, workers)
            places = [pa.array(workers.astype(np.int32)), objects.cast(pa.large_string())]
            reported = pa.table([reported["id"], reported["key"], *places], schema=PLACES)
        return self.replaced(reported)

    def without_unplanned(self, owners: CellOwners, planned: PlannedWorkers) -> Record:
        """Return the record without reserved places that the plan does not assign any more."""
        reserved = self.table.filter(pc.equal(self.table["object"], RESERVED))
        goal = planned.workers(reserved["id"].to_numpy(), owners)
        unplanned = reserved.filter(pa.array(reserved["worker"].to_numpy() != goal))
        if not len(unplanned):
            return self
        nowhere = pa.array(np.full(len(unplanned), -1, np.int32))
        return self.replaced(unplanned.set_column(2, "worker", nowhere))

    def replaced(self, places: pa.Table) -> Record:
        """Return the record with new places of some keys."""
        changed = pa.concat_tables([_without(self.changed, places), places])
        changed = changed if len(self.base) else _placed(changed)
        return Record(self.base, changed.combine_chunks())

    @cached_property
    def pending(self) -> pa.Table:
        """The places of states that are on their way."""
        return self.table.filter(pc.greater(pc.binary_length(self.table["object"]), 0))

    def awaited(self) -> Counter[str]:
        """Return the objects with states that are on their way, and how many each has."""
        paths = pc.split_pattern(self.pending["object"], "#", max_splits=1)
        return Counter(pc.list_element(paths, 0).to_pylist()) if len(paths) else Counter()

    def in_object(self, path: str) -> list[dict[str, Any]]:
        """Return the places of states in an object, in the order of its blocks and rows."""
        chosen = pc.starts_with(self.pending["object"], f"{path}#")
        places: list[dict[str, Any]] = self.pending.filter(chosen).to_pylist()
        return sorted(places, key=lambda row: [int(n) for n in row["object"].split("#")[1:]])

    @cached_property
    def in_transit(self) -> dict[tuple[int, str], tuple[str, int]]:
        """The locations and the target workers of states that are on their way, by key."""
        columns = (self.pending[name].to_pylist() for name in ("id", "key", "object", "worker"))
        return {(number, key): (path, to) for number, key, path, to in zip(*columns, strict=True)}

    def location(self, number: int, key: str, worker: int) -> str:
        """Return the location of a state that is on its way to a worker; empty if none is."""
        path, to = self.in_transit.get((number, key), ("", -1))
        return path if to == worker else ""


def _placed(table: pa.Table) -> pa.Table:
    """Return the rows of keys that have a place."""
    return table.filter(pc.greater_equal(table["worker"], 0))


def _without(table: pa.Table, others: pa.Table) -> pa.Table:
    """Return a table without the keys of another."""
    if not len(table) or not len(others):
        return table
    same_id = np.isin(table["id"].to_numpy(), others["id"].to_numpy())
    if not same_id.any():
        return table
    # Arrow cannot join by large strings; few rows are left here, so Python is fast enough.
    removed = {*zip(others["id"].to_pylist(), others["key"].to_pylist(), strict=True)}
    rows = np.flatnonzero(same_id)
    similar = table.take(rows)
    keys = zip(similar["id"].to_pylist(), similar["key"].to_pylist(), strict=True)
    keep = np.ones(len(table), bool)
    keep[rows[np.array([key in removed for key in keys])]] = False
    return table.filter(pa.array(keep))


@dataclass(frozen=True)
class Orders:
    """The orders of a batch: where states are, and where they should go.

    Parameters
    ----------
    log, batch
        The id of the log, and the batch.
    owners, record, planned
        The workers of keys by default, by the record, and by the plan.
    base
        The file of the last snapshot of the record.
    first
        Whether this is the first batch of the query, so that no key has a state yet.
    """

    log: str
    batch: int
    owners: CellOwners
    record: Record
    planned: PlannedWorkers
    base: str | None = None
    first: bool = False

    @property
    def tasks_report(self) -> bool:
        """Whether the tasks of the batch report state changes, as states may move."""
        return self.owners.elastic or len(self.planned.ids) > 0 or len(self.record.table) > 0

    def by_id(self) -> pa.Table:
        """Return a row for each id whose keys are not all at home, or should not stay there.

        A row has the keys of the record with this id in ``known``, each with its target, the orders
        for its state and its object; the other columns are for all other keys with this id.
        """
        place = np.asarray(self.record.table["worker"].to_numpy(), np.int64)
        ids = np.asarray(self.record.table["id"].to_numpy())
        goal = self.planned.workers(ids, self.owners)
        if self.owners.elastic:
            away = (place != goal) | (place != self.owners.of(ids))
            away |= np.asarray(self.record.table["object"].is_valid())
            listed = np.isin(ids, ids[away])
        else:
            listed = np.ones(len(ids), bool)
        rows = np.flatnonzero(listed)
        rows = rows[np.argsort(ids[rows], kind="stable")]
        planned = self.planned.ids
        assigned = self.planned.workers(planned, self.owners)
        others = planned[assigned != self.owners.of(planned)]
        unique = np.union1d(ids[rows], others)
        generic = self.planned.workers(unique, self.owners)
        all_new = self.owners.elastic or self.first
        start = generic if all_new else self.owners.of(unique)
        offsets = np.searchsorted(ids[rows], np.append(unique, np.iinfo(np.int64).max), "left")
        offsets[-1] = len(rows)
        chosen = self.record.table.take(rows)
        known = pa.StructArray.from_arrays(
            [
                chosen["key"].combine_chunks().cast(pa.string()),
                *self._targets(place[rows], goal[rows]),
                chosen["object"].combine_chunks().cast(pa.string()),
            ],
            ["key", "target", "to", "announced", "object"],
        )
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), known)
        columns = [pa.array(unique), *self._targets(start, generic), lists]
        return pa.table(columns, ["id", "target", "to", "announced", "known"])

    def by_cell(self) -> pa.Table:
        """Return the targets of new keys, by cell."""
        goal = targets(self.owners.n_workers)[self.owners.by_cell]
        return pa.table({"id": pa.array(np.arange(len(goal))), "target": pa.array(goal)})

    def _targets(self, place: Ints, goal: Ints) -> list[pa.Array]:
        """Return the targets of rows, the orders for their states, and announcement targets."""
        anchored, stays = targets(self.owners.n_workers), place == goal
        return [
            pa.array(anchored[place]),
            pa.array(np.where(stays, STAY, goal).astype(np.int32)),
            pa.array(anchored[goal], mask=stays),
        ]


def reported_places(path: str, index: pa.RecordBatch) -> pa.Table:
    """Return the places of states by the index of a task's object."""
    moved = pc.equal(index["kind"], MOVED)
    parts = [pa.scalar(path), index["block"].cast(pa.string()), index["row"].cast(pa.string())]
    locations = pc.binary_join_element_wise(*parts, "#").cast(pa.large_string())
    gone = pc.equal(index["kind"], GONE)
    worker = pc.if_else(gone, pa.scalar(-1, pa.int32()), index["worker"])
    objects = pc.if_else(moved, locations, pa.scalar(None, pa.large_string()))
    return pa.table([index["id"], index["key"], worker, objects], schema=PLACES)


def table_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as out:
        out.write_table(table)
    return bytes(sink.getvalue())


def read_table(data: bytes) -> pa.Table:
    """Return the table of an Arrow stream."""
    return pa.ipc.open_stream(data).read_all()
