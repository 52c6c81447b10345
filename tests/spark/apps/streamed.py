"""Runs an application over tables, one a micro-batch, and keeps its results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from unskew.apps import App
from unskew.spark import Balancer

SCHEMES = [
    pytest.param("key", "planned", marks=pytest.mark.full),
    ("w-choices", "planned"),
    ("pkg", "online"),
]


def tables(app: App, ids: Any, batches: int) -> list[pa.Table]:
    """Return generated rows of the given keys, divided into several tables."""
    size = -(-len(ids) // batches)
    return [app.table(ids[i : i + size], i) for i in range(0, len(ids), size)]


def streamed(
    spark: SparkSession,
    app: App,
    batches: Sequence[pa.Table],
    folder: Path,
    scheme: str = "key",
    mode: str | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Return the latest row of each key of an application's result."""
    (folder / "in").mkdir(parents=True)
    for i, table in enumerate(batches):
        pq.write_table(table, folder / f"in/{i:03d}.parquet")
    stream = spark.readStream.schema(app.schema).option("maxFilesPerTrigger", 1)
    rows = stream.parquet(str(folder / "in"))
    balance = Balancer(scheme, routing=mode, checkpoint=str(folder / "checkpoint"))
    found: list[pd.DataFrame] = []

    def keep(batch: DataFrame, number: int) -> None:
        found.append(batch.toPandas())

    if app.learns:
        learner = app.query(**options)
        result = rows

        def keep(batch: DataFrame, number: int) -> None:
            found.append(learner.learn(batch, number, balance).toPandas())
    else:
        result = app.query(rows, balance, **options)
    query = (
        result.writeStream.foreachBatch(keep)
        .outputMode(app.mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    every = pd.concat(found, ignore_index=True)
    # A window is a Row, which can be hashed, but not by the fast path of pandas.
    key = every[list(app.keys)].astype(str).agg("|".join, axis=1)
    return every[~key.duplicated(keep="last")].reset_index(drop=True)
