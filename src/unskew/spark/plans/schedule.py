"""Which plan serves which event times: a window keeps the plan that was in force when it opened.

A new plan holds for windows that start after all that were seen so far, so no state moves, late
rows included. ``seen/<batch>`` is written by the driver after each batch: the latest start that was
seen up to then, and the watermark. ``schedule/<batch>`` is written before the first task of a batch
runs: versions of plans, each with the time from which on it holds. A new version is taken up only
if the driver has told of the batch before; else that waits for the next batch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from unskew.sealed import SealError, seal, unseal
from unskew.spark.plans.split_plan import PlanFolder
from unskew.spark.runtime.files import Rooted, remove, write_once, write_whole

KIND = "schedule 1"
KEPT, MOST = 20, 50
"""Batches whose files are kept, and plans that may be in use at a time."""
BEGIN = -(2**62)
"""A time before all others, in microseconds."""

log = logging.getLogger("unskew.spark")


class ScheduleError(RuntimeError):
    """The schedule of a query cannot be read."""


@dataclass(frozen=True)
class Term:
    """A plan, and the times that it holds for, in microseconds; version 0 is none."""

    version: int
    since: int
    until: int = 2**62


Terms = list[Term]


@dataclass(frozen=True)
class Schedule(Rooted):
    """The terms of plans, under a path or a URI.

    Parameters
    ----------
    root
        The folder.
    horizon_us
        How long after its start a window may get rows, apart from the watermark's delay.
    """

    root: str
    horizon_us: int

    def record_progress(self, batch: int, latest_us: int | None, watermark_us: int) -> None:
        """Note what is known after a batch: the latest time in it, the watermark."""
        before = self._seen(batch - 1)
        if batch > 0 and before is None:
            log.warning("nothing was told of batch %s, so plans stay as they are", batch - 1)
            return
        known = [at for at in ((before or {}).get("latest_us"), latest_us) if at is not None]
        told = {"latest_us": max(known, default=None), "watermark_us": watermark_us}
        write_whole(self._system, self._path / "seen" / str(batch), json.dumps(told).encode())
        for old in self._numbers(self._path / "seen")[:-KEPT]:
            remove(self._system, self._path / "seen" / str(old))

    def terms(self, batch: int, newest: int) -> Terms:
        """Return the terms of a batch; the newest plan is asked for in its first try only."""
        known = self._numbers(self._path / "schedule")
        if batch not in known:
            earlier = [at for at in known if at < batch]
            terms = self._load(earlier[-1]) if earlier else [Term(0, BEGIN)]
            terms = self._next(terms, newest, self._seen(batch - 1))
            body = json.dumps([[term.version, term.since, term.until] for term in terms])
            path = self._path / "schedule" / str(batch)
            write_once(self._system, path, seal(KIND, body.encode()))
            for old in earlier[:-KEPT]:
                remove(self._system, self._path / "schedule" / str(old))
        return self._load(batch)

    def _next(self, terms: Terms, newest: int, seen: Mapping[str, int] | None) -> Terms:
        """Return the terms with a new plan, if there is one, without those that are over."""
        if seen is None or seen["latest_us"] is None:
            return terms
        *over, last = terms
        if newest != last.version and len(terms) < MOST:
            since = seen["latest_us"] + 1
            terms = [*over, Term(last.version, last.since, since), Term(newest, since)]
        return [t for t in terms if t.until + self.horizon_us > seen["watermark_us"]]

    def _seen(self, batch: int) -> dict[str, int] | None:
        try:
            data = self._bytes(self._path / "seen" / str(batch))
        except FileNotFoundError:
            return None
        return dict(json.loads(data))

    def _load(self, batch: int) -> Terms:
        path = self._path / "schedule" / str(batch)
        try:
            rows = json.loads(unseal(KIND, self._bytes(path)))
        except SealError as error:
            raise ScheduleError(
                f"{path}, which plans serve which windows: {error}; restore that file, and start "
                "the query again"
            ) from None
        return [Term(*row) for row in rows]

    @property
    def serving(self) -> PlanFolder:
        """The plans that are in use, or were lately."""
        return PlanFolder(f"{self.root}/serving")
