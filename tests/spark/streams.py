"""Streams of files for tests, one file a micro-batch, and the results of each batch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession


def write_batches(folder: Path, tables: Iterable[pa.Table], first: int = 0) -> None:
    """Write a file for each table, so that they are read one after another."""
    folder.mkdir(exist_ok=True, parents=True)
    for i, table in enumerate(tables, first):
        path = folder / f"{i:03d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (1e9 + i, 1e9 + i))  # streams read files in the order of their times


def read_batches(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the stream of these files."""
    reader = spark.readStream.schema(spark.read.parquet(str(folder)).schema)
    return reader.option("maxFilesPerTrigger", 1).parquet(str(folder))


def outputs(df: DataFrame, checkpoint: Path, mode: str) -> list[list[Any]]:
    """Return the results of a query over all files by batch, sorted."""
    found: list[list[Any]] = []

    def note(batch: DataFrame, _: int) -> None:
        found.append(in_order(batch))

    out = df.writeStream.foreachBatch(note).outputMode(mode)
    out = out.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    out.start().awaitTermination()
    return found


def named(aggregates: Mapping[str, Any]) -> list[Any]:
    """Return aggregates under their names."""
    return [aggregate.alias(name) for name, aggregate in aggregates.items()]


def in_order(df: DataFrame) -> list[Any]:
    """Return the rows sorted, with sorted lists."""
    rows = (tuple(_sorted(value) for value in row) for row in df.collect())
    return sorted(rows, key=repr)


def _sorted(value: Any) -> Any:
    return sorted(value, key=repr) if isinstance(value, list) else value
