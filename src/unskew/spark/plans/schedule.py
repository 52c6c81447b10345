"""The schedule of plans: a window keeps the plan that was in force when it opened.

A new plan holds for windows that start after all windows seen so far, so no state has to move, even
for late rows. The driver writes ``seen/<batch>`` after each batch: the latest window start seen so
far, and the watermark. ``schedule/<batch>`` is written before the first task of a batch runs: the
versions of plans, each with the times that it holds for. A new version is added only if the driver
has recorded the progress of the previous batch; otherwise it waits for the next batch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from unskew.sealed import SealError, seal, unseal
from unskew.spark.plans.split_plan import PlanFolder
from unskew.spark.runtime.files import Rooted, remove, write_once, write_whole

SCHEDULE_KIND = "schedule 1"
KEPT_SCHEDULES = 20
"""Batches whose files are kept."""
MAX_TERMS = 50
"""Plans that may be in use at the same time."""
BEGIN = -(2**62)
"""A time before all others, in microseconds."""

log = logging.getLogger("unskew.spark")


class ScheduleError(RuntimeError):
    """The schedule of a query cannot be read."""


@dataclass(frozen=True)
class Term:
    """A plan's version, and the times it holds for, in microseconds; version 0 means no plan."""

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
        How long after its start a window may get rows, without the delay of the watermark.
    """

    root: str
    horizon_us: int

    def record_progress(self, batch: int, latest_us: int | None, watermark_us: int) -> None:
        """Record the progress of a batch: its latest event time, and the watermark."""
        previous = self._seen(batch - 1)
        if batch > 0 and previous is None:
            log.warning("no progress was recorded for batch %s, so plans stay", batch - 1)
            return
        times = [at for at in ((previous or {}).get("latest_us"), latest_us) if at is not None]
        seen = {"latest_us": max(times, default=None), "watermark_us": watermark_us}
        write_whole(self._system, self._path / "seen" / str(batch), json.dumps(seen).encode())
        for old in self._numbers(self._path / "seen")[:-KEPT_SCHEDULES]:
            remove(self._system, self._path / "seen" / str(old))

    def terms(self, batch: int, newest: int) -> Terms:
        """Return the terms of a batch; the newest plan counts only in its first attempt."""
        batches = self._numbers(self._path / "schedule")
        if batch not in batches:
            earlier = [number for number in batches if number < batch]
            # Before the first batch no window is open, so a plan may hold for all of them.
            first = newest if batch == 0 else 0
            terms = self._load(earlier[-1]) if earlier else [Term(first, BEGIN)]
            terms = self._next(terms, newest, self._seen(batch - 1))
            body = json.dumps([[term.version, term.since, term.until] for term in terms])
            path = self._path / "schedule" / str(batch)
            write_once(self._system, path, seal(SCHEDULE_KIND, body.encode()))
            for old in earlier[:-KEPT_SCHEDULES]:
                remove(self._system, self._path / "schedule" / str(old))
        return self._load(batch)

    def _next(self, terms: Terms, newest: int, seen: Mapping[str, int] | None) -> Terms:
        """Return the terms with the new plan, if there is one, without those that have ended."""
        if seen is None or seen["latest_us"] is None:
            return terms
        *earlier, last = terms
        if newest != last.version and len(terms) < MAX_TERMS:
            since = seen["latest_us"] + 1
            terms = [*earlier, Term(last.version, last.since, since), Term(newest, since)]
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
            rows = json.loads(unseal(SCHEDULE_KIND, self._bytes(path)))
        except SealError as error:
            raise ScheduleError(
                f"{path} (the schedule of plans): {error}; restore that file, and start the query "
                "again"
            ) from None
        return [Term(*row) for row in rows]

    @property
    def serving(self) -> PlanFolder:
        """The folder of plans that are in use, or were recently."""
        return PlanFolder(f"{self.root}/serving")
