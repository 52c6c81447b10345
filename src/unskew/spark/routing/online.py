"""Online routing: a router in each source task, which gets only the hashes of keys."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
from pyspark.sql.types import IntegerType

from unskew.murmur import anchors
from unskew.routers import Router, Scheme
from unskew.spark.control.controller import Controller
from unskew.spark.control.observed import BatchObservation
from unskew.spark.placement.slots import slots_for
from unskew.spark.routing.state_files import RouterStateError, StateFiles
from unskew.spark.runtime.places import Place
from unskew.spark.runtime.tasks import freeze_imports, partition_and_batch
from unskew.state import WHOSE

SECONDS = "seconds"
"""The name of the seconds that routing took, stored with the router's state."""


def slot_udf(scheme: Scheme, n_workers: int, place: Place | None) -> Callable[..., Any]:
    """Return the UDF that routes: from a key and the hash of the grouping columns to a slot."""
    files = None if place is None else StateFiles(place.root)

    def slots(batches: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        source, batch = partition_and_batch()
        if place is not None:
            place.claim()
        router = start(scheme, n_workers, source, batch, files)
        seconds, worker_anchors = 0.0, anchors(n_workers)
        for keys, hashes in batches:
            started = time.perf_counter()
            workers = router.route(keys.to_numpy(zero_copy_only=False).view(np.uint64))
            slots = slots_for(hashes.to_numpy(zero_copy_only=False), workers, worker_anchors)
            seconds += time.perf_counter() - started
            yield pa.array(slots)
        freeze_imports()
        if files is not None and batch is not None:
            files.save(source, batch, {**router.snapshot(), SECONDS: np.array(seconds)})

    # Spark must not evaluate it twice, nor move it past a filter.
    return arrow_udf(slots, returnType=IntegerType()).asNondeterministic()  # type: ignore[no-any-return]


def start(
    scheme: Scheme, n_workers: int, source: int, batch: int | None, files: StateFiles | None
) -> Router:
    """Return the router of a source with its state after the previous batch."""
    router = scheme.router(n_workers, **{"source": source, **scheme.given})
    snapshot = None if files is None or batch is None else files.load(source, batch)
    if snapshot is not None:
        assert files is not None
        if _kind(str(snapshot[WHOSE])) != _kind(repr(router)):
            raise RouterStateError(
                f"{files.root} has the state of {snapshot[WHOSE]}, not of {router!r}: give the "
                "balancer another name, or remove that folder"
            )
        # The state of another source will do: only the start of round robins differs.
        state = {name: value for name, value in snapshot.items() if name != SECONDS}
        router.restore({**state, WHOSE: np.array(repr(router))})
    return router


class RouterController(Controller):
    """The controller of online routing, which reads the states that routers saved."""

    def __init__(self, scheme: Scheme, n_workers: int, files: StateFiles) -> None:
        self.scheme, self.n_workers, self.files = scheme, n_workers, files
        self._router: Router | None = None

    def learn(self, batch: BatchObservation) -> None:
        """Read the router of the first source; routers learn by themselves."""
        self._router = start(self.scheme, self.n_workers, 0, sys.maxsize, self.files)

    def workers(self, key: int) -> list[int]:
        """Return the workers that a key may be on, by the router of the first source."""
        assert self._router is not None
        return sorted(int(worker) for worker in self._router.candidates(key % 2**64))

    def seconds(self, batch: int) -> float:
        """Return the seconds that the routers of all sources took for a batch."""
        return sum(float(snapshot[SECONDS]) for snapshot in self.files.after(batch))


def _kind(text: str) -> str:
    """Return a router's description without its source."""
    return re.sub(r"\bsource=\d+", "source", text)
