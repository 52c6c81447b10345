"""Tables of a case as DataFrames: in memory, or as files, one for each micro-batch of a stream."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from differential.case import Case, Rows, Table
from differential.kinds import MONTHS, arrow_type, arrow_value, spark_type

NOISE = "noise"
RIGHT = "_right"
"""The suffix of the event time's name on the right side of a join."""


def quoted(name: str) -> str:
    """Return a column's name in backticks, so that Spark reads it literally."""
    return "`" + name.replace("`", "``") + "`"


def arrow_table(table: Table, rows: Rows) -> Any:
    """Return rows as an Arrow table, with columns c0, c1 and so on."""
    fields, columns = [], []
    for i, field in enumerate(table.fields):
        values = [arrow_value(field.kind, row[i]) for row in rows]
        columns.append(pa.array(values, arrow_type(field.kind)))
        fields.append(pa.field(f"c{i}", arrow_type(field.kind), field.nullable))
    return pa.table(columns, schema=pa.schema(fields))


def schema_of(table: Table) -> StructType:
    """Return the schema of `arrow_table`."""
    fields = enumerate(table.fields)
    return StructType([StructField(f"c{i}", spark_type(f.kind), f.nullable) for i, f in fields])


def named(df: DataFrame, table: Table) -> DataFrame:
    """Return the columns under the names of the case, with their types."""
    columns = []
    for i, field in enumerate(table.fields):
        column = F.col(f"c{i}")
        if field.kind == MONTHS:
            column = F.make_ym_interval(F.lit(0), column)
        columns.append(column.alias(field.name))
    return df.select(*columns)


def batch_frame(spark: SparkSession, case: Case, number: int) -> DataFrame:
    """Return a table of a case with the layout of the case."""
    table = case.tables[number]
    rows = tuple(row for batch in table.batches for row in batch)
    unnamed: Any = spark.createDataFrame(arrow_table(table, rows), schema_of(table))
    df = named(unnamed, table)
    way, _, parts = case.layout.partition(" ")
    if way != "straight" and number == 0:
        df = df.repartition(int(parts)) if way == "repartition" else df.coalesce(int(parts))
    return with_noise(df) if case.noise and number == 0 else df


def with_noise(df: DataFrame) -> DataFrame:
    """Return the rows with a column of random numbers with a fixed seed."""
    return df.withColumn(NOISE, F.floor(F.rand(0) * 4).cast("int"))


def write_file(table: Table, batch: int, folder: Path) -> None:
    """Write one batch of a table as a file, with a later time than earlier batches."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{batch:03d}.parquet"
    pq.write_table(arrow_table(table, table.batches[batch]), path)
    os.utime(path, (1e9 + batch, 1e9 + batch))


def stream_frame(spark: SparkSession, case: Case, number: int, folder: Path) -> DataFrame:
    """Return a table of a case as a stream of the files in a folder, with its watermark."""
    table = case.tables[number]
    if table.static:
        return batch_frame(spark, case, number)
    reader = spark.readStream.schema(schema_of(table)).option("maxFilesPerTrigger", 1)
    df = named(reader.parquet(str(folder / str(number))), table)
    if case.window is not None:
        time = time_column(case, number)
        df = df.withWatermark(time, f"{case.window.watermark_s} seconds")
    return with_noise(df) if case.noise and number == 0 else df


def time_column(case: Case, number: int) -> str:
    """Return the event time column of a table; the right side of a join has its own."""
    assert case.window is not None
    return case.window.time if number == 0 else f"{case.window.time}{RIGHT}"
