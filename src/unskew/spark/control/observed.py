"""What a query observes of its rows, in the JVM, and tells after each micro-batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from unskew.spark.placement.names import Names
from unskew.spark.state.costs import Cost

TRACKED = 500
NAMED = 20
PER_WORKER = 5
"""Keys with a share of 1 / (5 W) or more are hot to most schemes: there are no more than that."""
ROOM = 8
"""Counters of a sketch for each key that it is asked for. All tasks hand them in at their end."""
SAMPLE = 0.25
"""The part of the rows that is looked at: a sketch costs more than all the rest of routing."""
NAMES_SAMPLE = SAMPLE / 8
"""The part whose keys are made texts, as that costs as much as all the sketches."""
FINE = 2**24
"""Which rows are looked at is told by the lower bits of what slots are drawn by."""


@dataclass(frozen=True)
class Observation:
    """What is observed of rows: columns of a share of them, in nulls for the others.

    These are columns, as Spark interprets the arguments of a sketch, but compiles columns.

    Parameters
    ----------
    names
        Of hidden columns; the rows need the one of random numbers.
    columns
        ``hot`` are keys, ``names`` their texts, ``homes`` their workers by Spark's hash alone, and
        ``loads`` those that they go to.
    latest
        The column of times, if these are observed.
    """

    names: Names
    columns: Mapping[str, Column]
    latest: Column | None = None

    def at(self, df: DataFrame) -> DataFrame:
        """Return the rows with what is to be observed."""
        fine = F.col(self.names("drawn")) * FINE
        part = fine - F.floor(fine)
        found = {
            self._seen(what): F.when(part < (NAMES_SAMPLE if what == "names" else SAMPLE), column)
            for what, column in self.columns.items()
        }
        if self.latest is not None:
            found[self._seen("latest")] = self.latest
        return df.withColumns(found)

    def sketches(self, n_workers: int, keys: int = TRACKED) -> list[Column]:
        """Return what to observe: the records, the keys that are hot, and so on.

        ``keys`` says how many of the hot ones are wanted.
        """
        sizes = {"hot": (keys, ROOM * keys), "names": (NAMED, ROOM * NAMED)}
        workers = (n_workers, max(n_workers + 1, 100))
        tops = (
            _top(F.col(self._seen(what)), *sizes.get(what, workers)).alias(what)
            for what in self.columns
        )
        times = [] if self.latest is None else [F.max(self._seen("latest")).alias("latest")]
        return [F.count(F.lit(1)).alias("records"), *times, *tops]

    def dropped(self, df: DataFrame) -> DataFrame:
        """Return the rows without what was observed of them."""
        return df.drop(*(self._seen(what) for what in (*self.columns, "latest")))

    def _seen(self, what: str) -> str:
        return self.names(f"seen_{what}")


def name_column(key: Column, columns: Sequence[Column]) -> Column:
    """Return a key with its columns as a short text."""
    texts = (F.coalesce(F.left(c.cast("string"), F.lit(60)), F.lit("null")) for c in columns)
    return F.concat_ws(" ", key.cast("string"), F.concat_ws(", ", *texts))


@dataclass(frozen=True, eq=False)
class BatchObservation:
    """What was observed of a batch; numbers of records, estimated from the sample.

    Parameters
    ----------
    records
        All of them, exact.
    hot
        Those of the frequent keys.
    homes, loads
        By the worker that Spark's hash alone would choose, and by the one that was chosen.
    names
        Texts of the most frequent keys.
    number
        Of the batch.
    costs
        What keys cost, where tasks measure that.
    latest_us
        The latest time in the batch, where that is looked at, in microseconds.
    """

    records: int
    hot: dict[int, float]
    homes: NDArray[np.float64]
    loads: NDArray[np.float64]
    names: dict[int, str]
    number: int = 0
    costs: dict[int, Cost] = field(default_factory=dict)
    latest_us: int | None = None

    @classmethod
    def of(cls, row: Any, n_workers: int) -> BatchObservation:
        """Read the row of an observation."""
        found = fields(row)
        homes = _by_number(found.get("homes", []), n_workers)
        loads = _by_number(found.get("loads", []), n_workers)
        scale = found["records"] / max(1.0, homes.sum(), loads.sum())
        named = (str(text).partition(" ") for text in _counts(found.get("names", [])))
        return cls(
            found["records"],
            {int(key): scale * count for key, count in _counts(found["hot"]).items()},
            scale * homes,
            scale * loads,
            {int(key): name for key, _, name in named},
            latest_us=found.get("latest"),
        )


def _top(column: Column, k: int, tracked: int) -> Column:
    return F.call_function("approx_top_k", column, F.lit(k + 1), F.lit(tracked))  # one may be null


def fields(row: Any) -> dict[str, Any]:
    """Return a row as a dictionary; on Connect, its values come beside its schema."""
    found: dict[str, Any] = row if isinstance(row, dict) else row.asDict()
    if found.keys() != {"values", "schema"}:
        return found
    names = (field["name"] for field in found["schema"]["fields"])
    return dict(zip(names, found["values"], strict=True))


def _counts(rows: list[Any]) -> dict[Any, float]:
    items = map(fields, rows)
    return {item["item"]: float(item["count"]) for item in items if item["item"] is not None}


def _by_number(rows: list[Any], n_workers: int) -> NDArray[np.float64]:
    counts = _counts(rows)
    found = np.bincount([*counts], [*counts.values()], minlength=n_workers)
    return found.astype(np.float64)
