"""Where the states of keys are: the orders of each batch, beside the checkpoint.

``orders/<batch>`` is written before the first task of a batch
runs: where states are that are not where their key says, by what the tasks of the batches before
told, and where they should go. ``moves/<batch>`` has the objects of tasks, ``places`` the record as
a whole, when changes have become many. The laws are in `unskew.spark.state.protocol`.
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
from unskew.spark.state.exports import MOVED, BrokenError, Note, Object, Owner, packed
from unskew.spark.state.log_identity import LogIdentity, LostStateError
from unskew.spark.state.record import (
    PLACES,
    CellOwners,
    Orders,
    Record,
    Wanted,
    read_table,
    table_bytes,
    told_places,
)

ORDERS, SNAPSHOT = "orders 1", "places 1"
KEPT = 20
"""Batches whose orders are kept, and after which states that are still awaited are put together."""
FEW = 1000
"""Changes that are written with each batch's orders; if there are more, the record as a whole."""
MANY = 64
"""Old objects that are awaited, at the most, before they are put together."""
READERS = 8

CACHED = 64 << 20
"""Bytes of blocks that a Python worker keeps, as several keys come from one."""

_ORDERS: dict[tuple[str, str | None, int], Orders] = {}
_BLOCKS: OrderedDict[tuple[str, str, str], pa.RecordBatch] = OrderedDict()


class MoveLog(LogIdentity):
    """The moves of one operator: see `LogIdentity` for its parameters."""

    def activate(self, workers: Collection[int], begin: bool = False) -> None:
        """Say which workers are active from the next batch on; to begin with, if nobody did."""
        most = self.n_workers
        if not workers or min(workers) < 0 or (most and max(workers) >= most):
            some = f"some of 0 to {most - 1}" if most else "numbers from 0 on"
            raise ValueError(f"active workers must be {some}, got {sorted(workers)}")
        write = write_once if begin else write_whole
        write(self._system, self._path / "active", json.dumps(sorted(workers)).encode())

    def homes(self) -> CellOwners:
        """Return where keys are that nothing tells of."""
        if not self.elastic:
            return CellOwners(self.n_workers)
        path = self._path / "active"
        try:
            active = tuple(json.loads(self._bytes(path)))
            if not active or min(active) < 0 or max(active) >= self.n_workers:
                raise ValueError(f"{active} are not some of 0 to {self.n_workers - 1}")
            return CellOwners(self.n_workers, active)
        except (FileNotFoundError, ValueError) as error:
            raise LostStateError(
                f"{path}, the workers that are active: {error}; say it again, by activate(...)"
            ) from None

    def orders(self, batch: int) -> Orders:
        """Return the orders of a batch, those of its first try."""
        this = self.root, running(), batch
        if this not in _ORDERS:
            if not self._there(self._orders / str(batch)):
                self._make(batch)
            found = self._load(batch)
            _ORDERS.clear()
            _ORDERS[this] = found
        return _ORDERS[this]

    def tell(self, batch: int, partition: int, notes: Sequence[Note]) -> None:
        """Write the object of a task, if any can be told of in its batch."""
        orders = self.orders(batch)
        notes = [*{(note.id, note.key): note for note in notes}.values()]  # the last one counts
        moved = [note for note in notes if note.kind == MOVED]
        if not orders.telling:
            if moved:
                raise LostStateError(f"task {partition} of batch {batch} moved states unasked")
            return  # what is at home, or is gone, nobody has to know
        name = f"{partition}.{attempt()}.{len(moved)}.{sum(note.size for note in moved)}"
        data = packed(Owner(orders.log, batch, partition), notes)
        write_whole(self._system, self._moves / str(batch) / name, data)

    def fetch(self, where: str, key: str, worker: int, kind: pa.DataType) -> Any:
        """Return the state of a key and when it times out, as they were exported for a worker."""
        path, block, row = where.split("#")
        try:
            states = self._block(path, block, worker)
            if states.schema.field("state").type != kind:
                raise BrokenError(
                    f"its states are {states.schema.field('state').type}, and those of the query "
                    f"are {kind}"
                )
            state = states.slice(int(row), 1)
            if state["key"][0].as_py() != key:
                raise BrokenError(f"it has another key in row {row} of block {block}")
        except (FileNotFoundError, BrokenError, pa.ArrowInvalid, ValueError) as error:
            raise self._lost(self._moves / path, f"the state of key {key}", error) from None
        return state["state"][0].as_py(), state["timeout"][0].as_py()

    def _block(self, path: str, number: str, worker: int) -> pa.RecordBatch:
        this = self._log_id, path, number
        if this not in _BLOCKS:
            with self._open(path, self._log_id) as found:
                _BLOCKS[this] = found.block(int(number), worker)
            while len(_BLOCKS) > 1 and sum(block.nbytes for block in _BLOCKS.values()) > CACHED:
                _BLOCKS.popitem(last=False)
        _BLOCKS.move_to_end(this)
        return _BLOCKS[this]

    def sizes(self, batch: int) -> tuple[int, int]:
        """Return how many states left in a batch, and their bytes."""
        found = [name.split(".") for name in self._newest(batch).values()]
        return sum(int(name[2]) for name in found), sum(int(name[3]) for name in found)

    def _make(self, batch: int) -> None:
        """Write down the orders of a batch, unless somebody else was faster."""
        log, before = self._begun(batch), self._before(batch)
        record = Record.empty() if before is None else before.record
        if before is not None and before.telling:
            told = self._told(before)
            record = record.after(told, before.homes, before.wanted)
        record = self._carried(record, batch, log)
        homes, wanted = self.homes(), self._wanted()
        record = record if homes.elastic else record.wanted_only(homes, wanted)
        base = before.base if before is not None else None
        if record.changes > max(FEW, len(record.base) // 4):
            base, record = self._snapshot(batch, record), record.settled()
        changed = table_bytes(record.changed)
        header = {
            "log": log,
            "batch": batch,
            "active": homes.active,
            "base": base,
            "changed": len(changed),
        }
        body = json.dumps(header).encode() + b"\n" + changed + table_bytes(wanted.table)
        write_once(self._system, self._orders / str(batch), seal(ORDERS, body))
        with suppress(OSError):  # others may be at it, too; what is left goes the next time
            self._clean(batch, before, record)

    def _before(self, batch: int) -> Orders | None:
        return None if batch == self._about["first"] else self._load(batch - 1)

    def _load(self, batch: int) -> Orders:
        path = self._orders / str(batch)
        try:
            line, _, body = unseal(ORDERS, self._bytes(path)).partition(b"\n")
            header = json.loads(line)
            if (header["log"], header["batch"]) != (self._log_id, batch):
                raise SealError(f"these are orders of batch {header['batch']} of another record")
            length = header["changed"]
            base = header["base"]
            record = Record(
                PLACES.empty_table() if base is None else self._places_of(base),
                read_table(body[:length]),
            )
            return Orders(
                header["log"],
                batch,
                CellOwners(self.n_workers, None if not self.elastic else tuple(header["active"])),
                record,
                Wanted(read_table(body[length:])),
                base,
            )
        except (FileNotFoundError, SealError, pa.ArrowInvalid) as error:
            raise self._lost(path, "where states are", error) from None

    def _places_of(self, name: str) -> pa.Table:
        return read_table(unseal(SNAPSHOT, self._bytes(self._path / "places" / name)))

    def _snapshot(self, batch: int, record: Record) -> str:
        name = f"{batch}-{uuid.uuid4().hex[:8]}"
        data = seal(SNAPSHOT, table_bytes(record.settled().base))
        write_whole(self._system, self._path / "places" / name, data)
        return name

    def _wanted(self) -> Wanted:
        plan = PlanFolder(self.place.plans).latest()
        return Wanted.none() if plan is None else Wanted.of(plan.keys, plan.workers)

    def _told(self, before: Orders) -> pa.Table:
        """Return what the tasks of a batch told: places, with a worker of -1 for no state."""
        newest = self._newest(before.batch)
        missing = {*range(self.n_workers)} - newest.keys()
        if missing:
            lost = BrokenError(f"the objects of tasks {sorted(missing)} are not there")
            raise self._lost(self._moves / str(before.batch), "what tasks told", lost)

        def read(name: str) -> pa.Table:
            path = f"{before.batch}/{name}"
            try:
                with self._open(path, before.log) as found:
                    return told_places(path, found.index())
            except (FileNotFoundError, BrokenError, pa.ArrowInvalid) as error:
                raise self._lost(self._moves / path, "what a task told", error) from None

        if isinstance(self._system, fs.LocalFileSystem):
            return pa.concat_tables(map(read, newest.values()))
        with ThreadPoolExecutor(READERS) as pool:
            return pa.concat_tables(pool.map(read, newest.values()))

    def _newest(self, batch: int) -> dict[int, str]:
        """Return the newest object of each task of a batch."""
        infos = sorted(self._infos(self._moves / str(batch)), key=lambda info: info.mtime_ns or 0)
        names = [info.base_name for info in infos]
        return {int(name.split(".")[0]): name for name in names if name[0].isdigit()}

    def _carried(self, record: Record, batch: int, log: str) -> Record:
        """Return the record with states that are long awaited in one new object."""
        awaited = record.awaited()
        old = {p: n for p, n in awaited.items() if int(p.split("/")[0]) < batch - KEPT}
        few = {path for path, n in old.items() if 2 * n < int(path.split(".")[2])}
        chosen = {*old} if len(old) > MANY else few
        if not chosen:
            return record
        notes = [note for path in sorted(chosen) for note in self._awaited(path, record, log)]
        size = sum(note.size for note in notes)
        path = f"{batch}/carried.{uuid.uuid4().hex[:8]}.{len(notes)}.{size}"
        write_whole(self._system, self._moves / path, packed(Owner(log, batch, -1), notes))
        with self._open(path, log) as found:
            return record.replaced(told_places(path, found.index()))

    def _awaited(self, path: str, record: Record, log: str) -> Iterator[Note]:
        """Return the states of an object that were not imported yet."""
        try:
            blocks: dict[int, pa.RecordBatch] = {}
            with self._open(path, log) as found:
                for row in record.in_object(path):
                    block, at = map(int, row["object"].split("#")[1:])
                    if block not in blocks:
                        blocks = {block: found.block(block, row["worker"])}
                    state = blocks[block].slice(at, 1)
                    if state["key"][0].as_py() != row["key"]:
                        raise BrokenError(f"it has another key in row {at} of block {block}")
                    kind = bytes(pa.schema({"state": state.schema.field("state").type}).serialize())
                    size = state.nbytes
                    values = state["state"][0].as_py(), state["timeout"][0].as_py()
                    yield Note(MOVED, row["id"], row["key"], row["worker"], *values, kind, size)
        except (FileNotFoundError, BrokenError, pa.ArrowInvalid) as error:
            raise self._lost(self._moves / path, "states on their way", error) from None

    @contextmanager
    def _open(self, path: str, log: str) -> Iterator[Object]:
        batch, name = path.split("/")
        partition = name.split(".")[0]
        owner = Owner(log, int(batch), int(partition) if partition.isdigit() else -1)
        with self._system.open_input_file(str(self._moves / path)) as file:
            yield Object.of(file, owner)

    def _clean(self, batch: int, before: Orders | None, record: Record) -> None:
        """Remove what no batch that may run again needs."""
        known = self._numbers(self._orders)
        kept = {*known[-KEPT:], batch}
        for old in known:
            if old not in kept and old < batch:
                remove(self._system, self._orders / str(old))
        needed = {*record.awaited(), *(before.record.awaited() if before is not None else ())}
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
        # The one before the oldest orders that are kept may be theirs.
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
