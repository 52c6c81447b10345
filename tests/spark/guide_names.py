"""What the guides assume: streams and tables of clicks, and functions with state over them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructField, StructType

from spark.streams import read_batches, write_batches

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
BATCHES, ROWS = 2, 60


def update_model(
    key: tuple[str], chunks: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Return the mean of the values of a user so far."""
    n, mean = state.get if state.exists else (0, 0.0)
    for chunk in chunks:
        total = n * mean + float(chunk["x"].sum())
        n += len(chunk)
        mean = total / n
    state.update((n, mean))
    yield pd.DataFrame({"user": [key[0]], "score": [mean]})


class MyProcessor(StatefulProcessor):
    """Counts the rows of a user."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Take the state."""
        self.n = handle.getValueState("n", StructType([StructField("n", LongType())]))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Count."""
        known = self.n.get()
        n = (0 if known is None else int(known[0])) + sum(map(len, rows))
        self.n.update((n,))
        yield pd.DataFrame({"user": [key[0]], "n": [n]})

    def close(self) -> None:
        """Nothing to do."""


def names(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Return what the guides assume, by name."""
    rows = [*range(BATCHES * ROWS)]
    users = [f"user-{i % 7 if i % 2 else 0}" for i in rows]
    times = [START + timedelta(seconds=2 * i) for i in rows]
    urls, values = [f"/page/{i % 5}" for i in rows], [float(i % 11) for i in rows]
    events = {"user": users, "time": times, "url": urls, "x": values}
    clicks = {"user": users, "at": times, "url": urls}
    views = {"user": users[::3], "seen": [time + timedelta(minutes=1) for time in times[::3]]}
    countries = [(f"user-{i}", f"country-{i % 3}") for i in range(5)]
    return {
        "spark": spark,
        "events": stream(spark, folder / "events", pa.table(events), "time"),
        "clicks": stream(spark, folder / "clicks", pa.table(clicks), "at"),
        "views": stream(spark, folder / "views", pa.table(views), "seen"),
        "history": spark.read.parquet(str(folder / "events")),
        "users": spark.createDataFrame(countries, "user string, country string"),
        "update_model": update_model,
        "MyProcessor": MyProcessor,
    }


def stream(spark: SparkSession, folder: Path, table: pa.Table, time: str) -> DataFrame:
    """Return a table as a stream of two micro-batches, with a watermark."""
    size = len(table) // BATCHES
    write_batches(folder, [table.slice(size * i, size) for i in range(BATCHES)])
    return read_batches(spark, folder).withWatermark(time, "10 seconds")
