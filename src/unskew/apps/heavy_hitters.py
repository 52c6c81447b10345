"""The most frequent items, from one sketch for each worker, however many items there are."""

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

RESULT = (
    "records bigint, loads array<bigint>, unlisted bigint, "
    "items array<struct<item:string, lower:bigint, upper:bigint, workers:array<int>>>"
)


def heavy_hitters(
    rows: DataFrame, balance: Balancer, *, share: float = 0.01, counters: int = 1000
) -> DataFrame:
    """Return the items that may have a share of all records, with bounds on their counts.

    Each worker has this number of counters. The error of an item's count is at most the sum of the
    errors of the workers that it may have been on: one with key grouping, two with ``pkg``, all
    with ``shuffle``. The error of a worker is at most its records over its counters.

    There is a row for each number of ``records`` so far, with the ``loads`` of workers. An item
    without a counter occurred at most ``unlisted`` times: if that is below the share, no item is
    missing.
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
    merged = F.udf(lambda latest: merge(latest, reach, share, counters), RESULT)
    latest = summaries.groupBy().agg(newest_summaries(reach.n_workers).alias("latest"))
    return latest.select(merged("latest").alias("result")).select("result.*")


def newest_summaries(n_workers: int) -> Column:
    """Return an aggregate: the summary with the most records of each worker, or null."""
    summary, records = F.col("summary"), F.col("records")
    of_worker = [F.col(WORKER) == n for n in range(n_workers)]
    return F.array(*(F.max_by(F.when(w, summary), F.when(w, records)) for w in of_worker))


@dataclass
class Summary:
    """The counts of items on one worker.

    Parameters
    ----------
    sketch
        The counts of items by their 64-bit hashes.
    items
        The items that have a counter, by hash.
    away
        The hashes of items that a plan sent here. They are few and are never removed, because such
        an item may have occurred here even if it has no counter.
    """

    sketch: SpaceSaving
    items: dict[int, str] = field(default_factory=dict)
    away: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))

    def update(self, rows: pd.DataFrame) -> None:
        """Count the items of rows."""
        keys = rows[KEY_ID].to_numpy().view(np.uint64)
        self.sketch.update(keys)
        distinct, first = np.unique(keys, return_index=True)
        known = self.items | dict(zip(distinct.tolist(), rows["item"].iloc[first], strict=True))
        self.items = {key: known[key] for key in self.sketch.hot()[0].tolist()}
        self.away = np.union1d(self.away, keys[rows[AWAY].to_numpy(np.bool_)])


def counting(
    counters: int,
) -> Callable[[Any, Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]:
    """Return the function that a worker runs: it counts, and emits its summary so far."""

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
    """Return the merged counts of the latest summary of each worker: a row of `RESULT`."""
    summaries = [pickle.loads(data) if data else Summary(SpaceSaving(counters)) for data in latest]
    loads = [int(summary.sketch.total) for summary in summaries]
    items = {key: item for summary in summaries for key, item in summary.items.items()}
    away = [summary.away for summary in summaries]
    keys = np.array([*items], np.uint64)
    possible = reach.workers(keys, away)
    bounds = np.array([summary.sketch.bounds(keys) for summary in summaries])
    lower, upper = bounds[:, 0].sum(axis=0), (bounds[:, 1] * possible.T).sum(axis=0)
    listed = np.flatnonzero(upper >= share * sum(loads))
    hitters = [
        (items[int(keys[i])], int(lower[i]), int(upper[i]), np.flatnonzero(possible[i]).tolist())
        for i in listed[np.argsort(-upper[listed], kind="stable")]
    ]
    return sum(loads), loads, unlisted(summaries, reach, keys), hitters


def unlisted(
    summaries: Sequence[Summary], reach: PossibleWorkers, listed: NDArray[np.uint64]
) -> int:
    """Return how often an item without a counter may have occurred: a sum of least counts."""
    sketches = [(summary.sketch.hot()[1], summary.sketch.capacity) for summary in summaries]
    least = np.array([counts[-1] if len(counts) == size else 0 for counts, size in sketches])
    away = [np.setdiff1d(summary.away, listed) for summary in summaries]
    moved = reach.workers(np.unique(np.concatenate(away)), away) @ least
    return int(max([np.sort(least)[-reach.usual :].sum(), *moved]))


def make_items(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Return generated items."""
    return {"item": names("item", ids), "ts": times(ids, first)}


HEAVY_HITTERS = App(
    "heavy-hitters", "item string, ts timestamp", make_items, heavy_hitters, ("records",)
)
