"""Key columns: how they are resolved and checked before rows are routed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from unskew.spark.placement.names import quoted
from unskew.spec import did_you_mean

ColumnOrName = Column | str
PLAIN = "UTF8_BINARY"
CASE = "spark.sql.caseSensitive"


def flat(keys: Iterable[ColumnOrName | Sequence[ColumnOrName]]) -> list[ColumnOrName]:
    """Return keys as one flat list; some of them may be given as lists, as for ``groupBy``.

    Examples
    --------
    >>> flat(["user", ["shop", "day"]])
    ['user', 'shop', 'day']
    """
    flattened: list[ColumnOrName] = []
    for item in keys:
        for key in item if isinstance(item, list | tuple) else [item]:
            if not isinstance(key, Column | str):
                raise TypeError(f"a key must be a Column or the name of one, got {key!r}")
            flattened.append(key)
    return flattened


def key_columns(df: DataFrame, keys: Iterable[ColumnOrName]) -> list[Column]:
    """Return the keys as columns; refuse missing columns and types that Spark cannot group by.

    Names are resolved as Spark resolves them: ``user.name`` is a field of ``user``, and a name with
    a dot in it is written in backticks.
    """
    keys = flat(keys)
    if not keys:
        raise ValueError("at least one key column is needed: give its name, as in 'user'")
    names = [key for key in keys if isinstance(key, str)]
    if len(set(names)) < len(names):
        raise ValueError(f"key columns must differ, got {', '.join(names)}: give each of them once")
    for name in names:
        _check_exists(df, name)
    columns = [F.col(key) if isinstance(key, str) else key for key in keys]
    for key, field in zip(keys, df.select(*columns).schema, strict=True):
        if not _groupable(field.dataType):
            raise TypeError(
                f"cannot group by {key!r} of type {field.dataType.simpleString()}: "
                "convert a map with to_json or map_entries, and a collated string with lower(...) "
                "or collate(..., 'UTF8_BINARY'), and use that as the key"
            )
    return columns


def _check_exists(df: DataFrame, name: str) -> None:
    try:
        df.select(name).schema  # noqa: B018 (Connect resolves names only for the schema)
    except AnalysisException:
        if name in df.columns:
            raise ValueError(
                f"there is a column {name!r}, but Spark reads that name in another way: write "
                f"{quoted(name)!r}"
                if df.columns.count(name) == 1
                else f"{df.columns.count(name)} columns are named {name!r}: rename all but one"
            ) from None
        similar = [column for column in df.columns if column.casefold() == name.casefold()]
        if len(similar) > 1:
            raise ValueError(
                f"{name!r} may mean any of {', '.join(similar)}: rename all but one, or set {CASE}"
            ) from None
        hint = did_you_mean(name.partition(".")[0], df.columns)
        raise ValueError(
            f"no column {name!r}{hint}: there are {', '.join(df.columns)}; give one of these"
        ) from None


def check_free(df: DataFrame, name: str, way_out: str) -> None:
    """Refuse a DataFrame that has a column of this name, as Spark resolves names."""
    sensitive = (df.sparkSession.conf.get(CASE, "false") or "").lower() == "true"
    for column in df.columns:
        if column == name or (not sensitive and column.casefold() == name.casefold()):
            raise ValueError(f"there is a column {column!r} already: {way_out}")


def key_id(columns: Sequence[Column]) -> Column:
    """Return the 64-bit key that schemes see, equal to that of `unskew.hash_keys`."""
    return F.xxhash64(*columns)


def _groupable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_groupable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _groupable(kind.elementType)
    if isinstance(kind, StringType):
        # Spark's shuffle hashes the collation key, but its hash function does not.
        return getattr(kind, "collation", PLAIN) == PLAIN
    return not isinstance(kind, MapType | VariantType)
