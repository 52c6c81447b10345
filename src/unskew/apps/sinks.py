"""Sinks: where the results of an application go, as one string.

- ``console`` or ``noop``;
- ``parquet:folder``: a folder ``batch=N`` for each micro-batch, written as a whole, so that a
  repeated batch is stored once; for running results the latest batch of each key counts;
- ``kafka://host:port/topic``: JSON objects, keyed by the result's keys; at least once;
- ``jdbc:...#table``: upserts into a table by the result's keys, with the MERGE of standard SQL;
  ``${NAME}`` stands for an environment variable, so that a password is not on the command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StringType, StructType

WINDOW = ("start", "end")
DRIVERS = {
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "h2": "org.h2.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "postgresql": "org.postgresql.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
}
"""The driver classes of databases. Java finds a driver by itself only if it is on its own class
path, not among the packages of a session."""

Write = Callable[[DataFrame, int], None]


def open_sink(sink: str, keys: Sequence[str]) -> str | Write:
    """Return the name of a format of Spark, or a function that writes a micro-batch.

    Parameters
    ----------
    sink
        A string as in the list above.
    keys
        The columns that identify a row of the result.
    """
    kind, _, rest = sink.partition(":")
    if sink in ("console", "noop"):
        return sink
    if kind == "parquet" and rest:
        return _to_parquet(rest)
    if kind == "kafka" and rest.startswith("//"):
        return _to_kafka(sink, keys)
    if kind == "jdbc" and rest:
        return _to_table(sink, keys)
    # Only the kind is printed: the rest may have a password in it.
    raise ValueError(
        f"unknown sink {kind!r}: use console, noop, parquet:folder, kafka://host:port/topic or "
        "jdbc:...#table"
    )


def _to_parquet(folder: str) -> Write:
    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{folder}/batch={number}")

    return write


def _to_kafka(sink: str, keys: Sequence[str]) -> Write:
    address = urlsplit(sink)
    topic = address.path.strip("/")
    if not address.netloc or not topic:
        raise ValueError(f"a Kafka sink must look like kafka://host:port/topic, got {sink!r}")

    def write(batch: DataFrame, _: int) -> None:
        messages = batch.select(
            F.to_json(F.struct(*keys)).alias("key"), F.to_json(F.struct("*")).alias("value")
        )
        writer = messages.write.format("kafka").option("topic", topic)
        writer.option("kafka.bootstrap.servers", address.netloc).save()

    return write


def _to_table(sink: str, keys: Sequence[str]) -> Write:
    address, _, table = sink.rpartition("#")
    if not table.replace(".", "").replace("_", "").isalnum():
        raise ValueError(
            "a JDBC sink must end in # and the name of a table of letters, digits, _ and ., as in "
            "jdbc:postgresql://host/database#prices"
        )

    url = re.sub(r"\$\{(\w+)\}", _variable, address)

    def write(batch: DataFrame, _: int) -> None:
        flat = flattened(batch)
        names = [n for n in flat.columns if n in keys or n in window_columns]
        try:
            _upsert(flat, url, table, names)
        except Exception as error:  # drivers quote the address, with the password in it
            if not any(part in str(error) for part in (url, url.partition("?")[2]) if part):
                raise
            raise RuntimeError(_without_address(str(error), url)) from None

    window_columns = [f"{key}_{end}" for key in keys for end in WINDOW]
    return write


def _without_address(text: str, url: str) -> str:
    """Return a text without the address of a database and without its parameters.

    Examples
    --------
    >>> _without_address("cannot parse jdbc:x://db?password=p", "jdbc:x://db?password=p")
    'cannot parse the address of the database'
    """
    for part in (url, url.partition(":")[2], url.partition("?")[2]):
        text = text.replace(part, "the address of the database") if part else text
    return text


def _variable(name: re.Match[str]) -> str:
    """Return the value of an environment variable."""
    if name[1] not in os.environ:
        raise ValueError(f"the environment variable {name[1]} of the sink is not set: export it")
    return os.environ[name[1]]


def _upsert(rows: DataFrame, url: str, table: str, keys: Sequence[str]) -> None:
    staging = f"{table}_batch"
    # Some databases cannot compare strings without a length.
    key_types = ", ".join(
        f"`{k}` VARCHAR(255)" for k in keys if rows.schema[k].dataType == StringType()
    )
    options = {"createTableColumnTypes": key_types} if key_types else {}
    empty = rows.sparkSession.createDataFrame([], rows.schema)
    driver = {"driver": DRIVERS[kind]} if (kind := url.split(":")[1]) in DRIVERS else {}
    empty.write.options(**options).jdbc(url, table, mode="ignore", properties=driver)
    rows.write.options(**options).jdbc(url, staging, mode="overwrite", properties=driver)
    staged = rows.sparkSession.read.jdbc(url, staging, properties=driver)
    nulls = not staged.where(F.greatest(*(F.col(k).isNull() for k in keys), F.lit(False))).isEmpty()
    # A session for reading may run a statement first: a public way to run SQL on any cluster.
    reader = rows.sparkSession.read.format("jdbc").options(url=url, **driver)
    merge = merge_statement(table, staging, rows.columns, keys, nulls=nulls)
    reader = reader.option("sessionInitStatement", merge)
    reader.option("query", f"SELECT COUNT(*) AS merged FROM {staging}").load().collect()


def flattened(df: DataFrame) -> DataFrame:
    """Return rows without nesting: a window as its start and end, other nested values as JSON."""
    columns = []
    for field in df.schema:
        kind, column = field.dataType, F.col(f"`{field.name}`")
        if isinstance(kind, StructType) and tuple(kind.names) == WINDOW:
            columns += [column[end].alias(f"{field.name}_{end}") for end in kind.names]
        elif isinstance(kind, ArrayType | MapType | StructType):
            columns.append(F.to_json(column).alias(field.name))
        else:
            columns.append(column)
    return df.select(*columns)


def merge_statement(
    table: str, staging: str, names: Sequence[str], keys: Sequence[str], *, nulls: bool = False
) -> str:
    """Return the SQL that upserts the rows of a staging table into a table by their keys.

    With ``nulls``, a key may be null; databases cannot use an index for such a condition.

    Examples
    --------
    >>> print(merge_statement("prices", "new", ["symbol", "vwap"], ["symbol"]))
    MERGE INTO prices t USING new s ON t."symbol" = s."symbol" WHEN MATCHED THEN UPDATE SET \
"vwap" = s."vwap" WHEN NOT MATCHED THEN INSERT ("symbol", "vwap") VALUES (s."symbol", s."vwap")
    """
    same = 't."{0}" = s."{0}"'
    if nulls:
        same = f'({same} OR t."{{0}}" IS NULL AND s."{{0}}" IS NULL)'
    on = " AND ".join(same.format(key) for key in keys)
    rest = ", ".join(f'"{name}" = s."{name}"' for name in names if name not in keys)
    update = f"WHEN MATCHED THEN UPDATE SET {rest} " if rest else ""
    columns = ", ".join(f'"{name}"' for name in names)
    values = ", ".join(f's."{name}"' for name in names)
    return (
        f"MERGE INTO {table} t USING {staging} s ON {on} {update}"
        f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({values})"
    )
