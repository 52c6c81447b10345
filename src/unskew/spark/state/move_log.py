"""The move log: where the states of keys are, and the orders of each batch, beside the checkpoint.

``orders/<batch>`` is written before the first task of a batch runs. It holds the places of states
that are not at home, as the tasks of previous batches reported them, and where the states should
go. ``moves/<batch>`` holds the objects of tasks; ``places`` holds snapshots of the whole record,
written when many places have changed. The laws are in `unskew.spark.state.protocol`.
"""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs

from unskew.sealed import SealError, seal, unseal
from unskew.spark.plans.split_plan import PlanFolder
from unskew.spark.runtime.files import remove, write_once, write_whole
from unskew.spark.runtime.tasks import attempt, running
from unskew.spark.state.exports import (
    MOVED,
    Object,
    ObjectError,
    Owner,
    StateChange,
    object_bytes,
    type_bytes,
)
from unskew.spark.state.log_identity import LogIdentity, LostStateError
from unskew.spark.state.record import (
    PLACES,
    CellOwners,
    Orders,
    PlannedWorkers,
    Record,
    read_table,
    reported_places,
    table_bytes,
)

ORDERS_KIND, SNAPSHOT_KIND = "orders 1", "places 1"
KEPT_ORDERS = 20
"""Batches whose orders are kept; objects that are older than that may be merged."""
MAX_CHANGES = 1000
"""Changes of places that are written with each batch's orders, before a snapshot is written."""
MAX_OLD_OBJECTS = 64
"""Old objects with states that are still awaited, before all of them are merged."""
READER_THREADS = 8

CACHED_BYTES = 64 << 20
"""Bytes of blocks that a Python worker caches, as several keys are read from one block."""

_ORDERS: dict[tuple[str, str | None, int], Orders] = {}
_BLOCKS: OrderedDict[tuple[str, str, str], pa.RecordBatch] = OrderedDict()


class MoveLog(LogIdentity):
    """The log of moved states of one operator; `LogIdentity` describes its parameters."""

    def activate(self, workers: Collection[int], begin: bool = False) -> None:
        """Set the workers that are active from the next batch on.

        With ``begin`` they are set only if they have not been set before.
        """
        n = self.n_workers
        if not workers or min(workers) < 0 or (n and max(workers) >= n):
            allowed = f"some of 0 to {n - 1}" if n else "one or more numbers from 0 up"
            raise ValueError(f"active workers must be {allowed}, got {sorted(workers)}")
        write = write_once if begin else write_whole
        write(self._system, self._path / "active", json.dumps(sorted(workers)).encode())

    def cell_owners(self) -> CellOwners:
        """Return the workers of keys that are in no plan and not in the record."""
        if not self.elastic:
            return CellOwners(self.n_workers)
        path = self._path / "active"
        try:
            active = tuple(json.loads(self._bytes(path)))
            if not active or min(active) < 0 or max(active) >= self.n_workers:
                raise ValueError(f"they must be some of 0 to {self.n_workers - 1}, got {active}")
            return CellOwners(self.n_workers, active)
        except (FileNotFoundError, ValueError) as error:
            raise LostStateError(
                f"{path} (the active workers): {error}; set them again, by activate(...)"
            ) from None

    def orders(self, batch: int) -> Orders:
        """Return the orders of a batch: those of its first attempt."""
        cache_key = self.root, running(), batch
        if cache_key not in _ORDERS:
            if not self._exists(self._orders / str(batch)):
                self._write_orders(batch)
            orders = self._load_orders(batch)
            _ORDERS.clear()
            _ORDERS[cache_key] = orders
        return _ORDERS[cache_key]

    def write_object(self, batch: int, partition: int, changes: Sequence[StateChange]) -> None:
        """Write the object of a task, if tasks report state changes in its batch."""
        orders = self.orders(batch)
        # The last change of a key counts.
        changes = [*{(change.id, change.key): change for change in changes}.values()]
        moved = [change for change in changes if change.kind == MOVED]
        if not orders.tasks_report:
            if moved:
                raise LostStateError(f"task {partition} of batch {batch} moved states unasked")
            return  # states that are at home, or removed, need no record
        name = f"{partition}.{attempt()}.{len(moved)}.{sum(change.size for change in moved)}"
        data = object_bytes(Owner(orders.log, batch, partition), changes)
        write_whole(self._system, self._moves / str(batch) / name, data)

    def fetch(self, location: str, key: str, worker: int, kind: pa.DataType) -> Any:
        """Return the state of a key and its timeout, as they were exported for a worker."""
        path, block, row = location.split("#")
        try:
            states = self._block(path, block, worker)
            if states.schema.field("state").type != kind:
                raise ObjectError(
                    f"its states are {states.schema.field('state').type}, and those of the query "
                    f"are {kind}"
                )
            state = states.slice(int(row), 1)
            if state["key"][0].as_py() != key:
                raise ObjectError(f"row {row} of block {block} has another key")
        except (FileNotFoundError, ObjectError, pa.ArrowInvalid, ValueError) as error:
            raise self._lost(self._moves / path, f"the state of key {key}", error) from None
        return state["state"][0].as_py(), state["timeout"][0].as_py()

    def _block(self, path: str, number: str, worker: int) -> pa.RecordBatch:
        cache_key = self._log_id, path, number
        if cache_key not in _BLOCKS:
            with self._open(path, self._log_id) as source:
                _BLOCKS[cache_key] = source.block(int(number), worker)
            while len(_BLOCKS) > 1 and sum(b.nbytes for b in _BLOCKS.values()) > CACHED_BYTES:
                _BLOCKS.popitem(last=False)
        _BLOCKS.move_to_end(cache_key)
        return _BLOCKS[cache_key]

    def sizes(self, batch: int) -> tuple[int, int]:
        """Return the number and the bytes of the states that were exported in a batch."""
        names = [name.split(".") for name in self._newest_objects(batch).values()]
        return sum(int(name[2]) for name in names), sum(int(name[3]) for name in names)

    def _write_orders(self, batch: int) -> None:
        """Write the orders of a batch, unless another process was faster."""
        log, previous = self._begin(batch), self._previous_orders(batch)
        record = Record.empty() if previous is None else previous.record
        if previous is not None and previous.tasks_report:
            reported = self._reported_places(previous)
            record = record.after(reported, previous.owners, previous.planned)
        record = self._carry_over(record, batch, log)
        owners, planned = self.cell_owners(), self._planned_workers()
        record = record if owners.elastic else record.without_unplanned(owners, planned)
        base = previous.base if previous is not None else None
        if record.changes > max(MAX_CHANGES, len(record.base) // 4):
            base, record = self._write_snapshot(batch, record), record.compacted()
        changed = table_bytes(record.changed)
        header = {
            "log": log,
            "batch": batch,
            "active": owners.active,
            "base": base,
            "changed": len(changed),
        }
        body = json.dumps(header).encode() + b"\n" + changed + table_bytes(planned.table)
        write_once(self._system, self._orders / str(batch), seal(ORDERS_KIND, body))
        with suppress(OSError):  # others may clean up, too; the next batch removes the rest
            self._clean(batch, previous, record)

    def _previous_orders(self, batch: int) -> Orders | None:
        return None if batch == self._identity["first"] else self._load_orders(batch - 1)

    def _load_orders(self, batch: int) -> Orders:
        path = self._orders / str(batch)
        try:
            line, _, body = unseal(ORDERS_KIND, self._bytes(path)).partition(b"\n")
            header = json.loads(line)
            if (header["log"], header["batch"]) != (self._log_id, batch):
                raise SealError(f"these are orders of batch {header['batch']} of another record")
            length = header["changed"]
            base = header["base"]
            record = Record(
                PLACES.empty_table() if base is None else self._load_snapshot(base),
                read_table(body[:length]),
            )
            return Orders(
                header["log"],
                batch,
                CellOwners(self.n_workers, None if not self.elastic else tuple(header["active"])),
                record,
                PlannedWorkers(read_table(body[length:])),
                base,
                first=batch == self._identity["first"],
            )
        except (FileNotFoundError, SealError, pa.ArrowInvalid) as error:
            raise self._lost(path, "the orders of a batch", error) from None

    def _load_snapshot(self, name: str) -> pa.Table:
        return read_table(unseal(SNAPSHOT_KIND, self._bytes(self._path / "places" / name)))

    def _write_snapshot(self, batch: int, record: Record) -> str:
        name = f"{batch}-{uuid.uuid4().hex[:8]}"
        data = seal(SNAPSHOT_KIND, table_bytes(record.compacted().base))
        write_whole(self._system, self._path / "places" / name, data)
        return name

    def _planned_workers(self) -> PlannedWorkers:
        plan = PlanFolder(self.place.plans).latest()
        if plan is None:
            return PlannedWorkers.none()
        return PlannedWorkers.of(plan.keys, plan.workers)

    def _reported_places(self, orders: Orders) -> pa.Table:
        """Return the places that the tasks of a batch reported; worker -1 means no state."""
        newest = self._newest_objects(orders.batch)
        missing = {*range(self.n_workers)} - newest.keys()
        if missing:
            lost = ObjectError(f"the objects of tasks {sorted(missing)} are missing")
            raise self._lost(self._moves / str(orders.batch), "the reports of tasks", lost)

        def read(name: str) -> pa.Table:
            path = f"{orders.batch}/{name}"
            try:
                with self._open(path, orders.log) as source:
                    return reported_places(path, source.index())
            except (FileNotFoundError, ObjectError, pa.ArrowInvalid) as error:
                raise self._lost(self._moves / path, "the report of a task", error) from None

        if isinstance(self._system, fs.LocalFileSystem):
            return pa.concat_tables(map(read, newest.values()))
        with ThreadPoolExecutor(READER_THREADS) as pool:
            return pa.concat_tables(pool.map(read, newest.values()))

    def _newest_objects(self, batch: int) -> dict[int, str]:
        """Return the name of the newest object of each task of a batch."""
        infos = sorted(self._infos(self._moves / str(batch)), key=lambda info: info.mtime_ns or 0)
        names = [info.base_name for info in infos]
        return {int(name.split(".")[0]): name for name in names if name[0].isdigit()}

    def _carry_over(self, record: Record, batch: int, log: str) -> Record:
        """Return the record after long-awaited states were copied to one new object."""
        awaited = record.awaited()
        old = {p: n for p, n in awaited.items() if int(p.split("/")[0]) < batch - KEPT_ORDERS}
        sparse = {path for path, n in old.items() if 2 * n < int(path.split(".")[2])}
        chosen = {*old} if len(old) > MAX_OLD_OBJECTS else sparse
        if not chosen:
            return record
        states = [state for path in sorted(chosen) for state in self._awaited(path, record, log)]
        size = sum(state.size for state in states)
        path = f"{batch}/carried.{uuid.uuid4().hex[:8]}.{len(states)}.{size}"
        data = object_bytes(Owner(log, batch, -1), states)
        write_whole(self._system, self._moves / path, data)
        with self._open(path, log) as source:
            return record.replaced(reported_places(path, source.index()))

    def _awaited(self, path: str, record: Record, log: str) -> Iterator[StateChange]:
        """Return the states of an object that have not been imported yet."""
        try:
            blocks: dict[int, pa.RecordBatch] = {}
            with self._open(path, log) as source:
                for row in record.in_object(path):
                    block, at = map(int, row["object"].split("#")[1:])
                    if block not in blocks:
                        blocks = {block: source.block(block, row["worker"])}
                    state = blocks[block].slice(at, 1)
                    if state["key"][0].as_py() != row["key"]:
                        raise ObjectError(f"row {at} of block {block} has another key")
                    kind = type_bytes(state.schema.field("state").type)
                    place = row["id"], row["key"], row["worker"]
                    values = state["state"][0].as_py(), state["timeout"][0].as_py()
                    yield StateChange(MOVED, *place, *values, kind, state.nbytes)
        except (FileNotFoundError, ObjectError, pa.ArrowInvalid) as error:
            raise self._lost(self._moves / path, "states on their way", error) from None

    @contextmanager
    def _open(self, path: str, log: str) -> Iterator[Object]:
        batch, name = path.split("/")
        partition = name.split(".")[0]
        owner = Owner(log, int(batch), int(partition) if partition.isdigit() else -1)
        with self._system.open_input_file(str(self._moves / path)) as file:
            yield Object.of(file, owner)

    def _clean(self, batch: int, previous: Orders | None, record: Record) -> None:
        """Remove the files that no batch needs that may still be retried."""
        batches = self._numbers(self._orders)
        kept = {*batches[-KEPT_ORDERS:], batch}
        for old in batches:
            if old not in kept and old < batch:
                remove(self._system, self._orders / str(old))
        needed = {*record.awaited(), *(previous.record.awaited() if previous is not None else ())}
        for number in self._numbers(self._moves):
            if number >= batch - 1:
                continue
            names = [info.base_name for info in self._infos(self._moves / str(number))]
            unused = [name for name in names if f"{number}/{name}" not in needed]
            if len(unused) == len(names):
                self._system.delete_dir(str(self._moves / str(number)))
                continue
            for name in unused:
                remove(self._system, self._moves / str(number) / name)
        self._clean_places(kept)

    def _clean_places(self, kept: set[int]) -> None:
        names = [info.base_name for info in self._infos(self._path / "places")]
        numbers = sorted({int(name.partition("-")[0]) for name in names})
        # The oldest orders that are kept may refer to the last snapshot before them.
        first = max((n for n in numbers if n <= min(kept)), default=0)
        for name in names:
            if int(name.partition("-")[0]) < first:
                remove(self._system, self._path / "places" / name)

    @property
    def _moves(self) -> PurePosixPath:
        return self._path / "moves"

    @property
    def _orders(self) -> PurePosixPath:
        return self._path / "orders"
