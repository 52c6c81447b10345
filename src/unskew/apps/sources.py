"""Sources: where the rows of an application come from, as one string.

- a spec like ``zipf:z=1.4,keys=1e4,records=1e6``: generated rows with such keys;
- a file, ``trades.parquet`` or ``trades.csv``: replayed in micro-batches;
- a folder of such files: one micro-batch a file, also for files that are added later;
- ``kafka://host:port/topic``: messages that are JSON objects of the application's columns;
- ``socket://host:port``: lines of such objects, for experiments; texts that are no such objects are
  counted and left out;
- ``rate://1000``: this many generated rows a second.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from unskew.apps.base import App
from unskew.spark.session import kafka_connector
from unskew.spec import number
from unskew.workloads import STREAMS, Generated, Zipf, open_stream

PARTS = 2
"""The number of files, and so of source tasks, of a generated or replayed micro-batch."""
ENDLESS = ("kafka", "socket", "rate")
"""Kinds of addresses whose streams do not end."""
BAD_RECORDS = "unskew bad records"
"""The name of the observation that counts bad records."""
CORRUPT = "__unskew_corrupt"
NO_CONNECTOR = "KAFKA_DATA_SOURCE_NOT_ENABLED"
BROKER_TIMEOUT_S = 5.0
NOTHING = "null"
EPOCH = 10**9
"""Spark reads files in the order of their times; those of generated files start here."""


@dataclass(frozen=True)
class Source:
    """A stream of rows.

    Parameters
    ----------
    rows
        The rows, with the columns of the application.
    records
        The number of records, if it is known.
    ends
        Whether the stream ends when all available rows were read.
    bad
        The texts that are left out, because they are no JSON objects or have values of other types,
        if the stream can be read a second time for them.
    """

    rows: DataFrame
    records: int | None = None
    ends: bool = False
    bad: DataFrame | None = None


def check_source(stream: str, columns: Mapping[str, str]) -> None:
    """Refuse a stream that cannot be read, as far as that can be told without Spark."""
    kind, _, rest = stream.partition("://")
    if rest and kind not in ENDLESS:
        raise ValueError(f"unknown source {kind}://: use kafka://, socket:// or rate://")
    if stream.partition(":")[0] in STREAMS or (rest and kind == "rate"):
        number("rate", rest, whole=True) if rest else open_stream(stream)
        if columns:
            raise ValueError(
                "a generated stream has the columns of the application: omit --columns"
            )
        return
    if rest:
        if kind == "kafka":
            check_broker(_servers_and_topic(stream)[0])
        return
    path = Path(stream)
    if not path.exists():
        raise FileNotFoundError(
            f"no such file or folder: {path}; a stream may also be a spec like zipf:z=1.4 (see "
            "'unskew streams'), kafka://host:port/topic, socket://host:port or rate://1000"
        )
    if path.is_file():
        names = _dataset(path).schema.names
        for name in {*columns.values()} - {NOTHING, *names}:
            raise ValueError(f"{path} has no column {name!r}: it has {', '.join(names)}")


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
        The folder for generated or replayed rows, needed as long as the stream is read. If it
        exists already, the query continues with its rows.
    batch
        The number of records of a micro-batch, where it can be chosen.
    columns
        The source's column names by the application's names; ``null`` for a missing column.
    """
    check_source(stream, columns or {})
    kind, _, rest = stream.partition("://")
    if rest and kind in ("kafka", "socket"):
        lines = _kafka(spark, stream, batch) if kind == "kafka" else _socket(spark, stream)
        parsed = _parsed(lines, app.schema, columns or {})
        bad = None
        if kind == "kafka":  # read a second time, as far as the broker still has them
            again = _parsed(_kafka(spark, stream, batch, old=False), app.schema, columns or {})
            bad = again.where("bad").select("value")
        counted = parsed.observe(BAD_RECORDS, F.count_if("bad").alias("n"))
        rows = counted.where("not bad").select("row.*").drop(CORRUPT)
        return Source(_app_columns(rows, app.schema, columns or {}, "the stream"), bad=bad)
    if rest and kind == "rate":
        return Source(_at_rate(spark, app, number("rate", rest, whole=True)))
    if stream.partition(":")[0] in STREAMS:
        generated = open_stream(stream)
        assert isinstance(generated, Generated)
        records = _write(_generated(app, generated, -(-batch // PARTS)), folder)
        return Source(_read(spark, folder, app.schema, PARTS), records, ends=True)
    path = Path(stream)
    if path.is_dir():
        rows = _read(spark, path, None, 1)
        return Source(_app_columns(rows, app.schema, columns or {}, str(path)))
    records = _write(_replayed(path, -(-batch // PARTS)), folder)
    rows = _read(spark, folder, None, PARTS)
    return Source(_app_columns(rows, app.schema, columns or {}, str(path)), records, ends=True)


def _servers_and_topic(stream: str) -> tuple[str, str]:
    address = urlsplit(stream)
    topic = address.path.strip("/")
    if not address.netloc or not topic:
        raise ValueError(f"a Kafka source must look like kafka://host:port/topic, got {stream!r}")
    return address.netloc, topic


def _kafka(spark: SparkSession, stream: str, batch: int, old: bool = True) -> DataFrame:
    """Return the texts of a topic; unless ``old`` is true, records that are gone are skipped."""
    servers, topic = _servers_and_topic(stream)
    reader = spark.readStream.format("kafka").options(
        **{
            "kafka.bootstrap.servers": servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(batch),
            "failOnDataLoss": str(old).lower(),
        }
    )
    try:
        return reader.load().select(F.col("value").cast("string"))
    except AnalysisException as error:
        if error.getCondition() != NO_CONNECTOR:
            raise
        raise ValueError(f"Kafka needs its connector: add --packages {kafka_connector()}") from None


def check_broker(servers: str) -> None:
    """Refuse the address of a Kafka cluster if none of its brokers answers."""
    for server in servers.split(","):
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"a Kafka broker needs a host and a port, as in {server}:9092")
        with suppress(OSError):
            socket.create_connection((host.strip("[]"), int(port)), BROKER_TIMEOUT_S).close()
            return
    raise ConnectionError(f"no Kafka broker answers at {servers}: start it, or check the address")


def _socket(spark: SparkSession, stream: str) -> DataFrame:
    address = urlsplit(stream)
    if not address.hostname or not address.port:
        raise ValueError(f"a socket source must look like socket://host:port, got {stream!r}")
    reader = spark.readStream.format("socket").option("host", address.hostname)
    return reader.option("port", address.port).load()


def _parsed(lines: DataFrame, schema: str, columns: Mapping[str, str]) -> DataFrame:
    """Return JSON texts with their rows, and whether a text is bad: no object, or other types."""
    _check_columns(schema, columns)
    source_schema = StructType()
    for field in _fields(schema):
        name = columns.get(field.name, field.name)
        if name != NOTHING:
            source_schema.add(name, field.dataType)
    source_schema.add(CORRUPT, StringType())
    row = F.from_json("value", source_schema, {"columnNameOfCorruptRecord": CORRUPT})
    bad = F.col("row").isNull() | F.col(f"row.{CORRUPT}").isNotNull()
    return lines.select("value", row.alias("row")).withColumn("bad", bad)


def _at_rate(spark: SparkSession, app: App, rate: float) -> DataFrame:
    """Return generated rows with skewed keys, a fixed number a second."""
    ticks = spark.readStream.format("rate").option("rowsPerSecond", int(rate)).load()
    skewed, schema = Zipf(1.4, 1000, records=2**20), _fields(app.schema)
    ids = np.concatenate([*skewed.ids(2**20)])

    def rows(chunks: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for chunk in chunks:
            for first, last in _runs(chunk["value"].to_numpy()):
                table = app.table(ids[np.arange(first, last + 1) % len(ids)], first)
                yield table.to_pandas()

    return ticks.select("value").mapInPandas(rows, schema)


def _runs(numbers: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each run of consecutive numbers."""
    cuts = np.flatnonzero(np.diff(numbers) != 1) + 1
    for run in np.split(numbers, cuts):
        if len(run):
            yield int(run[0]), int(run[-1])


def _generated(app: App, stream: Generated, size: int) -> Iterator[pa.Table]:
    first = 0
    for ids in stream.ids(size):
        yield app.table(ids.astype(np.int64), first)
        first += len(ids)


def _replayed(path: Path, size: int) -> Iterator[pa.Table]:
    rows = _dataset(path)
    try:
        pending: list[pa.RecordBatch] = []
        for part in rows.to_batches(batch_size=size):
            pending.append(part)
            if sum(map(len, pending)) >= size:
                table = pa.Table.from_batches(pending)
                for start in range(0, len(table) - size + 1, size):
                    yield table.slice(start, size)
                pending = table.slice(len(table) // size * size).to_batches()
        if pending:
            yield pa.Table.from_batches(pending)
    except pa.ArrowException as error:
        raise ValueError(f"cannot read {path}: {str(error).partition(chr(10))[0]}") from None


def _dataset(path: Path) -> ds.Dataset:
    try:
        return ds.dataset(path, format=_format(path))
    except pa.ArrowException as error:
        raise ValueError(f"cannot read {path}: {str(error).partition(chr(10))[0]}") from None


def _format(path: Path) -> str:
    ending = path.suffix.lower().lstrip(".")
    if ending not in ("parquet", "csv", "json"):
        raise ValueError(f"the name of {path} must end in .parquet, .csv or .json: rename the file")
    return ending


def _write(tables: Iterable[pa.Table], folder: Path) -> int:
    """Write tables as files that Spark reads in their order; return the number of rows.

    A folder that exists was written earlier, by a query that now continues.
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
        raise ValueError("the stream is empty: use one with at least one record")
    new.rename(folder)
    return records


def _read(spark: SparkSession, folder: Path, schema: str | None, files: int) -> DataFrame:
    kinds = {_format(path) for path in folder.iterdir() if not path.name.startswith(("_", "."))}
    if len(kinds) != 1:
        files_found = f"files of the kinds {', '.join(kinds)}" if kinds else "no files yet"
        raise ValueError(
            f"{folder} has {files_found}: it needs .parquet, .csv or .json files of one kind"
        )
    (form,) = kinds
    options = {"header": "true", "inferSchema": "true"} if form == "csv" else {}
    schema_of_files = schema or spark.read.format(form).options(**options).load(str(folder)).schema
    reader = spark.readStream.format(form).schema(schema_of_files)
    reader = reader.option("maxFilesPerTrigger", files)
    return reader.options(header="true").load(str(folder))


def _app_columns(df: DataFrame, schema: str, columns: Mapping[str, str], where: str) -> DataFrame:
    """Return the columns that an application needs, under the application's names."""
    _check_columns(schema, columns)
    chosen = []
    for field in _fields(schema):
        name = columns.get(field.name, field.name)
        if name != NOTHING and name not in df.columns:
            raise ValueError(
                f"{where} has no column {name!r}: name the column to use, as in --columns "
                f"{field.name}={df.columns[0]}, or set {field.name}={NOTHING} to fill it with "
                f"nulls; it has {', '.join(df.columns)}"
            )
        column = F.lit(None) if name == NOTHING else F.col(name)
        chosen.append(column.cast(field.dataType).alias(field.name))
    return df.select(*chosen)


def _check_columns(schema: str, columns: Mapping[str, str]) -> None:
    names = [field.name for field in _fields(schema)]
    for name in columns:
        if name not in names:
            raise ValueError(f"the application has no column {name!r}: use {', '.join(names)}")


def _fields(schema: str) -> StructType:
    fields = StructType.fromDDL(schema)
    assert isinstance(fields, StructType)
    return fields
