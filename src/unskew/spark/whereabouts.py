"""Where the states of keys are: a log of moves beside the checkpoint, and what follows from it.

``moves/<batch>/<plan key>.<key>.<worker>`` is a state that left for a worker in a batch, empty if
there was none; ``moves/<batch>/<plan key>.<key>.in`` notes that it has come. Before the first task
of a batch runs, ``whereabouts/<batch>`` is written: where all states are that are not at home, by
the log of the batches before, and where the plan wants them. So a batch does the same however often
it is tried. In names of files keys are hashed; plan keys are those of plans.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.murmur import cell_workers, cells
from unskew.sealed import SealError, seal, unseal
from unskew.spark.files import Rooted, remove, write_once, write_whole
from unskew.spark.moving import ARRIVED, STAY

STATE, PLACES = "exported state 1", "whereabouts 2"
KEPT = 20
COME = "in"


class LostStateError(RuntimeError):
    """A file that tells of moved states cannot be read."""


@dataclass(frozen=True)
class Order:
    """What to do with a key in a batch.

    Parameters
    ----------
    key
        As plans know it.
    worker
        Where its state is, and its rows go.
    to
        Where the state should go; `STAY` if it should not.
    since
        The batch in which it was exported; `ARRIVED` if it came since.
    """

    key: int
    worker: int
    to: int = STAY
    since: int = ARRIVED


Orders = dict[int, Order]


@dataclass(frozen=True)
class Homes:
    """Where keys are that no plan and no move tells of.

    Parameters
    ----------
    n_workers
        Shuffle partitions.
    first
        The workers that were active when the query began: keys that never moved are at home there.
    active
        Those that are active now.
    """

    n_workers: int
    first: tuple[int, ...]
    active: tuple[int, ...]

    @classmethod
    def all(cls, n_workers: int) -> Homes:
        """Return the homes of workers that are all active."""
        return cls(n_workers, (*range(n_workers),), (*range(n_workers),))

    def of(self, keys: Sequence[int]) -> Iterator[tuple[int, int, int]]:
        """Return keys, each with its first home and its present one."""
        at = cells(np.array(keys, np.uint64), self.n_workers)
        first, now = self.first_cells[at], self.now_cells[at]
        return zip(keys, first.tolist(), now.tolist(), strict=True)

    @cached_property
    def first_cells(self) -> NDArray[np.int64]:
        """The first worker of every cell."""
        return cell_workers(self.n_workers, self.first)

    @cached_property
    def now_cells(self) -> NDArray[np.int64]:
        """The present worker of every cell."""
        return cell_workers(self.n_workers, self.active)


def given(places: Orders, wanted: Mapping[int, int], homes: Homes) -> Orders:
    """Return what to do with keys, from where they are and should be; the others are at home.

    Examples
    --------
    >>> [key for key, _, home in Homes.all(3).of(range(8)) if home == 1]
    [0, 5, 7]
    >>> orders = given({5: Order(5, worker=2)}, wanted={0: 2, 7: 1}, homes=Homes.all(3))
    >>> [(order.key, order.worker, order.to) for order in orders.values()]
    [(0, 1, 2), (5, 2, 1)]
    """
    keys = [*wanted, *(key for key in places if key not in wanted)]
    found = {}
    for key, first, home in homes.of(keys):
        order = places.get(key, Order(key, first))
        place = wanted.get(key, home)
        order = replace(order, to=STAY if place == order.worker else place)
        if order != Order(key, first) or home != first:
            found[key] = order
    return found


ROW = np.dtype([("key", "<u8"), ("worker", "<i4"), ("to", "<i4"), ("since", "<i8")])


@dataclass(frozen=True)
class MoveLog(Rooted):
    """The moves of one operator, under a path or a URI."""

    root: str

    def export(
        self, batch: int, plan_key: int, key: Sequence[Any], to: int, state: bytes | None
    ) -> None:
        """Write a state that leaves for a worker, None for nothing, all or nothing."""
        data = b"" if state is None else seal(STATE, state)
        path = self._moves / str(batch) / _name(plan_key, key, str(to))
        write_whole(self._system, path, data)

    def fetch(
        self, batch: int, plan_key: int, key: Sequence[Any], worker: int, since: int
    ) -> bytes | None:
        """Return the state of a key that was exported in an earlier batch; note that it came."""
        path = self._moves / str(since) / _name(plan_key, key, str(worker))
        try:
            data = self._bytes(path)
            state = unseal(STATE, data) if data else None
        except (FileNotFoundError, SealError) as error:
            raise LostStateError(
                f"{path}, the state of key {tuple(key)!r}: {error}; restore that file, and start "
                "the query again"
            ) from None
        come = self._moves / str(batch) / _name(plan_key, key, COME)
        write_whole(self._system, come, b"")
        return state

    def orders(
        self, batch: int, wanted: Callable[[], Mapping[int, int]], n_workers: int
    ) -> tuple[Orders, Homes]:
        """Return what to do with keys in a batch, and where all others are.

        What is wanted, and which workers are active, is asked in the first try of a batch only.
        """
        known = self._numbers(self._places)
        if batch not in known:
            earlier = [at for at in known if at < batch]
            places = self._load(earlier[-1])[0] if earlier else {}
            places = self._followed(places, earlier[-1] if earlier else 0, batch)
            homes = self.homes(n_workers)
            made = given(places, wanted(), homes)
            rows = [(o.key, o.worker, o.to, o.since) for o in made.values()]
            header = json.dumps([homes.n_workers, homes.first, homes.active]).encode()
            data = seal(PLACES, header + b"\n" + np.array(rows, ROW).tobytes())
            write_once(self._system, self._places / str(batch), data)
            self._clean(earlier, made)
        return self._load(batch)

    def activate(self, workers: Collection[int]) -> None:
        """Say which workers are active from the next batch on."""
        data = json.dumps(sorted(workers)).encode()
        write_once(self._system, self._path / "first-active", data)
        write_whole(self._system, self._path / "active", data)

    def homes(self, n_workers: int) -> Homes:
        """Return where keys are by the workers that are active, all of them if nobody said."""
        try:
            first = json.loads(self._bytes(self._path / "first-active"))
            now = json.loads(self._bytes(self._path / "active"))
        except FileNotFoundError:
            return Homes.all(n_workers)
        return Homes(n_workers, tuple(first), tuple(now))

    def sizes(self, batch: int) -> tuple[int, int]:
        """Return how many states left in a batch, and their bytes."""
        infos = self._infos(self._moves / str(batch))
        sealed = [info.size for info in infos if not info.base_name.endswith(COME) and info.size]
        found = [size - len(seal(STATE, b"")) for size in sealed]
        return len(found), sum(found)

    def _followed(self, places: Orders, first: int, until: int) -> Orders:
        """Return where keys are after the moves of some batches."""
        places = dict(places)
        for batch in self._numbers(self._moves):
            if not first <= batch < until:
                continue
            moves = [name.split(".") for name in self._names(self._moves / str(batch))]
            # A state that came and left again in one batch came first.
            for text, _, to in sorted(moves, key=lambda move: move[2] != COME):
                key = int(text, 16)
                if to != COME:
                    places[key] = Order(key, int(to), since=batch)
                elif key in places:
                    places[key] = replace(places[key], since=ARRIVED)
        return places

    def _clean(self, earlier: list[int], orders: Orders) -> None:
        """Remove what no batch that may run again needs."""
        for old in earlier[:-KEPT]:
            remove(self._system, self._places / str(old))
        if len(earlier) > KEPT:
            awaited = {order.since for order in orders.values()}
            for batch in self._numbers(self._moves):
                if batch < earlier[-KEPT] and batch not in awaited:
                    self._system.delete_dir(str(self._moves / str(batch)))

    def _load(self, batch: int) -> tuple[Orders, Homes]:
        path = self._places / str(batch)
        try:
            header, _, rows = unseal(PLACES, self._bytes(path)).partition(b"\n")
        except SealError as error:
            raise LostStateError(
                f"{path}, where states are: {error}; restore that file, and start the query again"
            ) from None
        n_workers, first, active = json.loads(header)
        orders = {row[0]: Order(*row) for row in np.frombuffer(rows, ROW).tolist()}
        return orders, Homes(n_workers, tuple(first), tuple(active))

    def _names(self, folder: PurePosixPath) -> list[str]:
        return [info.base_name for info in self._infos(folder)]

    @property
    def _moves(self) -> PurePosixPath:
        return self._path / "moves"

    @property
    def _places(self) -> PurePosixPath:
        return self._path / "whereabouts"


def _name(plan_key: int, key: Sequence[Any], last: str) -> str:
    plain = [value.item() if isinstance(value, np.generic) else value for value in key]
    digest = hashlib.blake2b(repr(plain).encode(), digest_size=16).hexdigest()
    return f"{plan_key % 2**64:016x}.{digest}.{last}"
