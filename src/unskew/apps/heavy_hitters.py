"""The items that come most often, found by sketches: one for each worker, however many items."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from unskew.apps.base import App, names, times
from unskew.apps.by_worker import AWAY, KEY_ID, WORKER, PossibleWorkers, by_worker
from unskew.sketches import SpaceSaving
from unskew.spark import Balancer

FOUND = (
    "records bigint, loads array<bigint>, unlisted bigint, "
    "items array<struct<item:string, lower:bigint, upper:bigint, workers:array<int>>>"
)


def heavy_hitters(
    rows: DataFrame, balance: Balancer, *, share: float = 0.01, counters: int = 1000
) -> DataFrame:
    """Return the items that may have a share of all records, with bounds of their counts.

    Each worker has as many counters. An item's count is known up to the sum of what the workers do
    not know that it may have been on: one by key grouping, two by ``pkg``, all by ``shuffle``. And
    none of them is wrong by more than its records over its counters.

    There is a row for each number of ``records`` so far, with the ``loads`` of workers. An item
    without a counter came ``unlisted`` times at most: if that is below the share, none is missing.
    """
    reach = PossibleWorkers.of(balance, rows)
    summaries = (
        by_worker(rows, balance, "item")
        .select(WORKER, "slot", "item", KEY_ID, AWAY)
        .groupBy(WORKER, "slot")
        .applyInPandasWithState(
            counting(counters),
            f"{WORKER} int, records bigint, summary binary",
            "summary binary",
            "append",
            GroupStateTimeout.NoTimeout,
        )
    )
    merged = F.udf(lambda latest: merge(latest, reach, share, counters), FOUND)
    latest = summaries.groupBy().agg(newest_summaries(reach.n_workers).alias("latest"))
    return latest.select(merged("latest").alias("found")).select("found.*")


def newest_summaries(n_workers: int) -> Column:
    """Return an aggregate: the summary of each worker that has the most records, or null."""
    mine = [F.col(WORKER) == n for n in range(n_workers)]
    return F.array(
        *(F.max_by(F.when(m, F.col("summary")), F.when(m, F.col("records"))) for m in mine)
    )


@dataclass
class Summary:
    """What a worker knows of its items.

    Parameters
    ----------
    sketch
        Counts of items, by the 64 bits that stand for them.
    items
        The items that have a counter.
    away
        Those that a plan sent here, few, and for good: also without a counter they may have come.
    """

    sketch: SpaceSaving
    items: dict[int, str] = field(default_factory=dict)
    away: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))

    def update(self, rows: pd.DataFrame) -> None:
        """Count items."""
        keys = rows[KEY_ID].to_numpy().view(np.uint64)
        self.sketch.update(keys)
        distinct, first = np.unique(keys, return_index=True)
        known = self.items | dict(zip(distinct.tolist(), rows["item"].iloc[first], strict=True))
        self.items = {key: known[key] for key in self.sketch.hot()[0].tolist()}
        self.away = np.union1d(self.away, keys[rows[AWAY].to_numpy(np.bool_)])


def counting(
    counters: int,
) -> Callable[[Any, Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """Return the function that a worker runs: it counts, and tells what it knows by now."""

    def count(
        key: tuple[int, int], chunks: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        kept = state.getOption
        summary = pickle.loads(kept[0]) if kept else Summary(SpaceSaving(counters))
        for rows in chunks:
            summary.update(rows)
        data, records = pickle.dumps(summary), int(summary.sketch.total)
        state.update((data,))
        yield pd.DataFrame({WORKER: [key[0]], "records": [records], "summary": [data]})

    return count


def merge(
    latest: Sequence[bytes | None], reach: PossibleWorkers, share: float, counters: int
) -> tuple[Any, ...]:
    """Return what all workers know together, of the latest summary of each: a row of `FOUND`."""
    known = [pickle.loads(data) if data else Summary(SpaceSaving(counters)) for data in latest]
    loads = [int(summary.sketch.total) for summary in known]
    items = {key: item for summary in known for key, item in summary.items.items()}
    away = [summary.away for summary in known]
    keys = np.array([*items], np.uint64)
    may = reach.workers(keys, away)
    bounds = np.array([summary.sketch.bounds(keys) for summary in known])
    lower, upper = bounds[:, 0].sum(axis=0), (bounds[:, 1] * may.T).sum(axis=0)
    listed = np.flatnonzero(upper >= share * sum(loads))
    found = [
        (items[int(keys[i])], int(lower[i]), int(upper[i]), np.flatnonzero(may[i]).tolist())
        for i in listed[np.argsort(-upper[listed], kind="stable")]
    ]
    return sum(loads), loads, unlisted(known, reach, keys), found


def unlisted(known: Sequence[Summary], reach: PossibleWorkers, listed: NDArray[np.uint64]) -> int:
    """Return how often an item without a counter may have come: the least counts, added up."""
    counts = [(summary.sketch.hot()[1], summary.sketch.capacity) for summary in known]
    least = np.array([found[-1] if len(found) == room else 0 for found, room in counts])
    away = [np.setdiff1d(summary.away, listed) for summary in known]
    moved = reach.workers(np.unique(np.concatenate(away)), away) @ least
    return int(max([np.sort(least)[-reach.usual :].sum(), *moved]))


def make_items(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Make items."""
    return {"item": names("item", ids), "ts": times(ids, first)}


HEAVY_HITTERS = App(
    "heavy-hitters", "item string, ts timestamp", make_items, heavy_hitters, ("records",)
)
