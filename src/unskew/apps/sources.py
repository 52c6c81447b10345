"""Where the rows of an application come from, by one string.

- a spec like ``zipf:z=1.4,keys=1e4,records=1e6``: made rows with such keys;
- a file, ``trades.parquet`` or ``trades.csv``: replayed in micro-batches;
- a folder of such files: each a micro-batch, and so are those that are put there later;
- ``kafka://host:port/topic``: messages that are JSON objects of the application's columns;
- ``socket://host:port``: lines of such objects, for toys;
- ``rate://1000``: so many made rows a second.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from unskew.apps.base import App
from unskew.spec import number
from unskew.workloads import STREAMS, Generated, Zipf, open_stream

PARTS = 2
"""Files of a micro-batch that is made or replayed: so many sources there are."""
NOTHING = "null"
EPOCH = 10**9
"""Spark reads files in the order of their times: those of made ones are seconds from here."""


@dataclass(frozen=True)
class Source:
    """A stream of rows.

    Parameters
    ----------
    rows
        They have the columns of the application.
    records
        How many there will be, if that is known.
    ends
        Whether there is nothing to wait for when all that is there was read.
    """

    rows: DataFrame
    records: int | None = None
    ends: bool = False


def open_source(
    spark: SparkSession,
    app: App,
    stream: str,
    folder: Path,
    *,
    batch: int = 60_000,
    columns: Mapping[str, str] | None = None,
) -> Source:
    """Return the stream that a string names.

    Parameters
    ----------
    folder
        For what is made or replayed, there as long as the stream is read. If it exists already, a
        query goes on with what is in it.
    batch
        Records of a micro-batch, where that can be chosen.
    columns
        By the application's names, what the source calls them; ``null`` for one that it lacks.
    """
    kind, _, rest = stream.partition("://")
    if rest and kind in ("kafka", "socket"):
        lines = _kafka(spark, stream, batch) if kind == "kafka" else _socket(spark, stream)
        return Source(_parsed(lines, app.schema, columns or {}))
    if rest and kind == "rate":
        return Source(_made_by_rate(spark, app, number("rate", rest, whole=True)))
    if rest:
        raise ValueError(f"unknown source {kind}://: use kafka://, socket:// or rate://")
    if stream.partition(":")[0] in STREAMS:
        made = open_stream(stream)
        assert isinstance(made, Generated)
        records = _write(_made(app, made, -(-batch // PARTS)), folder)
        return Source(_read(spark, folder, app.schema, PARTS), records, ends=True)
    path = Path(stream)
    if not path.exists():
        raise FileNotFoundError(
            f"no such file or folder: {path}; a stream may also be a spec like zipf:z=1.4 (see "
            "'unskew streams'), kafka://host:port/topic, socket://host:port or rate://1000"
        )
    if path.is_dir():
        found = _read(spark, path, None, 1)
        return Source(_as_wanted(found, app.schema, columns or {}, str(path)))
    records = _write(_replayed(path, -(-batch // PARTS)), folder)
    found = _read(spark, folder, None, PARTS)
    return Source(_as_wanted(found, app.schema, columns or {}, str(path)), records, ends=True)


def _kafka(spark: SparkSession, stream: str, batch: int) -> DataFrame:
    address = urlsplit(stream)
    topic = address.path.strip("/")
    if not address.netloc or not topic:
        raise ValueError(f"a Kafka source looks like kafka://host:port/topic, got {stream!r}")
    reader = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": address.netloc,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(batch),
        }
    )
    return reader.load().select(F.col("value").cast("string"))


def _socket(spark: SparkSession, stream: str) -> DataFrame:
    address = urlsplit(stream)
    if not address.hostname or not address.port:
        raise ValueError(f"a socket looks like socket://host:port, got {stream!r}")
    reader = spark.readStream.format("socket").option("host", address.hostname)
    return reader.option("port", address.port).load()


def _parsed(lines: DataFrame, schema: str, columns: Mapping[str, str]) -> DataFrame:
    """Return rows of JSON texts; what is no JSON object has nulls only, as in Spark."""
    _check_columns(schema, columns)
    theirs = StructType()
    for field in _fields(schema):
        name = columns.get(field.name, field.name)
        if name != NOTHING:
            theirs.add(name, field.dataType)
    parsed = lines.select(F.from_json("value", theirs).alias("row")).select("row.*")
    return _as_wanted(parsed, schema, columns, "the stream")


def _made_by_rate(spark: SparkSession, app: App, rate: float) -> DataFrame:
    """Return made rows with skewed keys, as the clock ticks."""
    ticks = spark.readStream.format("rate").option("rowsPerSecond", int(rate)).load()
    skewed, schema = Zipf(1.4, 1000, records=2**20), _fields(app.schema)
    ids = np.concatenate([*skewed.ids(2**20)])

    def rows(chunks: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for chunk in chunks:
            for first, last in _runs(chunk["value"].to_numpy()):
                found = app.table(ids[np.arange(first, last + 1) % len(ids)], first)
                yield found.to_pandas()

    return ticks.select("value").mapInPandas(rows, schema)


def _runs(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of numbers that follow each other."""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    for run in np.split(numbers, cuts):
        if len(run):
            yield int(run[0]), int(run[-1])


def _made(app: App, stream: Generated, size: int) -> Iterator[pa.Table]:
    first = 0
    for ids in stream.ids(size):
        yield app.table(ids.astype(np.int64), first)
        first += len(ids)


def _replayed(path: Path, size: int) -> Iterator[pa.Table]:
    try:
        rows = ds.dataset(path, format=_format(path))
        held: list[pa.RecordBatch] = []
        for part in rows.to_batches(batch_size=size):
            held.append(part)
            if sum(map(len, held)) >= size:
                table = pa.Table.from_batches(held)
                for start in range(0, len(table) - size + 1, size):
                    yield table.slice(start, size)
                held = table.slice(len(table) // size * size).to_batches()
        if held:
            yield pa.Table.from_batches(held)
    except pa.ArrowException as error:
        raise ValueError(f"cannot read {path}: {str(error).partition(chr(10))[0]}") from None


def _format(path: Path) -> str:
    ending = path.suffix.lower().lstrip(".")
    if ending not in ("parquet", "csv", "json"):
        raise ValueError(f"cannot tell the format of {path}: name it .parquet, .csv or .json")
    return ending


def _write(tables: Iterable[pa.Table], folder: Path) -> int:
    """Write tables as files in an order that Spark keeps; return the number of their rows.

    A folder that is there was written before, by a query that goes on now.
    """
    if folder.exists():
        return sum(pq.read_metadata(path).num_rows for path in folder.iterdir())
    records, new = 0, folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for i, table in enumerate(tables):
        path = new / f"{i:06d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (EPOCH + i, EPOCH + i))
        records += len(table)
    if not records:
        raise ValueError("the stream is empty: there is nothing to run on")
    new.rename(folder)
    return records


def _read(spark: SparkSession, folder: Path, schema: str | None, files: int) -> DataFrame:
    kinds = {_format(path) for path in folder.iterdir() if not path.name.startswith(("_", "."))}
    if len(kinds) != 1:
        what = "no files yet" if not kinds else f"files of several kinds: {', '.join(kinds)}"
        raise ValueError(f"{folder} has {what}: it needs .parquet, .csv or .json files of one kind")
    (form,) = kinds
    options = {"header": "true", "inferSchema": "true"} if form == "csv" else {}
    known = schema or spark.read.format(form).options(**options).load(str(folder)).schema
    reader = spark.readStream.format(form).schema(known).option("maxFilesPerTrigger", files)
    return reader.options(header="true").load(str(folder))


def _as_wanted(df: DataFrame, schema: str, columns: Mapping[str, str], where: str) -> DataFrame:
    """Return the columns that an application wants, by their names there."""
    _check_columns(schema, columns)
    chosen = []
    for field in _fields(schema):
        name = columns.get(field.name, field.name)
        if name != NOTHING and name not in df.columns:
            raise ValueError(
                f"{where} has no column {name!r}: say which it is, as in --columns "
                f"{field.name}={df.columns[0]}, or {field.name}={NOTHING} to do without; it has "
                f"{', '.join(df.columns)}"
            )
        column = F.lit(None) if name == NOTHING else F.col(name)
        chosen.append(column.cast(field.dataType).alias(field.name))
    return df.select(*chosen)


def _check_columns(schema: str, columns: Mapping[str, str]) -> None:
    names = [field.name for field in _fields(schema)]
    for name in columns:
        if name not in names:
            raise ValueError(f"there is no column {name!r} to name: use {', '.join(names)}")


def _fields(schema: str) -> StructType:
    found = StructType.fromDDL(schema)
    assert isinstance(found, StructType)
    return found
