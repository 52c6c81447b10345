"""Observed metrics: what a query samples of its rows in the JVM, and reports after each batch."""

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

TRACKED_KEYS = 500
NAMED_KEYS = 20
HOT_KEYS_PER_WORKER = 5
"""Keys with a share of at least 1 / (5 W) are hot in most schemes, so there are at most 5 W."""
COUNTERS_PER_KEY = 8
"""Counters of a sketch for each key that it returns. Every task sends them to the driver."""
SAMPLED_SHARE = 0.25
"""The share of rows that is sampled: a sketch costs more than all the rest of routing."""
NAMED_SHARE = SAMPLED_SHARE / 8
"""The share of rows whose keys are turned into text, which costs as much as all sketches."""
DRAW_SCALE = 2**24
"""Scales the random number of a row: slots use its upper bits, sampling the lower ones."""


@dataclass(frozen=True)
class Observation:
    """The observed columns of rows: values for a sample of the rows, nulls for the others.

    They are columns of their own because Spark compiles columns, but interprets the arguments of a
    sketch.

    Parameters
    ----------
    names
        The names of hidden columns; the rows must have the column of random numbers.
    columns
        ``hot`` has the keys, ``names`` their texts, ``homes`` their workers by Spark's hash alone,
        and ``loads`` the workers that they go to.
    latest
        The column of event times, if these are observed.
    """

    names: Names
    columns: Mapping[str, Column]
    latest: Column | None = None

    def at(self, df: DataFrame) -> DataFrame:
        """Return the rows with the observed columns."""
        scaled = F.col(self.names("drawn")) * DRAW_SCALE
        draw = scaled - F.floor(scaled)
        shares = {"names": NAMED_SHARE}
        observed = {
            self._observed(what): F.when(draw < shares.get(what, SAMPLED_SHARE), column)
            for what, column in self.columns.items()
        }
        if self.latest is not None:
            observed[self._observed("latest")] = self.latest
        return df.withColumns(observed)

    def sketches(self, n_workers: int, keys: int = TRACKED_KEYS) -> list[Column]:
        """Return the metrics to observe: records, the latest time, and sketches of the columns.

        ``keys`` is the number of hot keys that are reported.
        """
        sizes = {
            "hot": (keys, COUNTERS_PER_KEY * keys),
            "names": (NAMED_KEYS, COUNTERS_PER_KEY * NAMED_KEYS),
        }
        workers = (n_workers, max(n_workers + 1, 100))
        tops = (
            _top(F.col(self._observed(what)), *sizes.get(what, workers)).alias(what)
            for what in self.columns
        )
        times = [] if self.latest is None else [F.max(self._observed("latest")).alias("latest")]
        return [F.count(F.lit(1)).alias("records"), *times, *tops]

    def dropped(self, df: DataFrame) -> DataFrame:
        """Return the rows without the observed columns."""
        return df.drop(*(self._observed(what) for what in (*self.columns, "latest")))

    def _observed(self, what: str) -> str:
        return self.names(f"seen_{what}")


def name_column(key: Column, columns: Sequence[Column]) -> Column:
    """Return the id of a key and its columns as a short text."""
    texts = (F.coalesce(F.left(c.cast("string"), F.lit(60)), F.lit("null")) for c in columns)
    return F.concat_ws(" ", key.cast("string"), F.concat_ws(", ", *texts))


@dataclass(frozen=True, eq=False)
class BatchObservation:
    """The observation of a batch; numbers of records are estimated from the sample.

    Parameters
    ----------
    records
        The exact number of records.
    hot
        Records of the frequent keys.
    home_loads, loads
        Records by the worker that Spark's hash alone would choose, and by the one that was chosen.
    names
        Texts of the most frequent keys.
    number
        The number of the batch.
    costs
        Costs of keys, if tasks measure them.
    latest_us
        The latest event time in the batch in microseconds, if it is observed.
    """

    records: int
    hot: dict[int, float]
    home_loads: NDArray[np.float64]
    loads: NDArray[np.float64]
    names: dict[int, str]
    number: int = 0
    costs: dict[int, Cost] = field(default_factory=dict)
    latest_us: int | None = None

    @classmethod
    def of(cls, row: Any, n_workers: int) -> BatchObservation:
        """Return the observation of a row of observed metrics."""
        values = fields(row)
        home_loads = _by_worker(values.get("homes", []), n_workers)
        loads = _by_worker(values.get("loads", []), n_workers)
        scale = values["records"] / max(1.0, home_loads.sum(), loads.sum())
        named = (str(text).partition(" ") for text in _counts(values.get("names", [])))
        return cls(
            values["records"],
            {int(key): scale * count for key, count in _counts(values["hot"]).items()},
            scale * home_loads,
            scale * loads,
            {int(key): name for key, _, name in named},
            latest_us=values.get("latest"),
        )


def _top(column: Column, k: int, tracked: int) -> Column:
    return F.call_function("approx_top_k", column, F.lit(k + 1), F.lit(tracked))  # one may be null


def fields(row: Any) -> dict[str, Any]:
    """Return a row as a dictionary; on Connect, its values and its schema come separately."""
    values: dict[str, Any] = row if isinstance(row, dict) else row.asDict()
    if values.keys() != {"values", "schema"}:
        return values
    names = (field["name"] for field in values["schema"]["fields"])
    return dict(zip(names, values["values"], strict=True))


def _counts(rows: list[Any]) -> dict[Any, float]:
    items = map(fields, rows)
    return {item["item"]: float(item["count"]) for item in items if item["item"] is not None}


def _by_worker(rows: list[Any], n_workers: int) -> NDArray[np.float64]:
    counts = _counts(rows)
    loads = np.bincount([*counts], [*counts.values()], minlength=n_workers)
    return loads.astype(np.float64)
