"""Key columns: what there is to know of them before rows are routed."""

from __future__ import annotations

from collections.abc import Sequence

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

from unskew.spark.placement import SLOT
from unskew.spec import did_you_mean

ColumnOrName = Column | str
PLAIN = "UTF8_BINARY"


def key_columns(df: DataFrame, keys: Sequence[ColumnOrName]) -> list[Column]:
    """Return the keys as columns; refuse a missing one, and a type that Spark cannot group by."""
    if not keys:
        raise ValueError("at least one key column is needed")
    if SLOT in df.columns:
        raise ValueError(f"there is a column {SLOT!r} already: rename it, that name is needed")
    names = [key for key in keys if isinstance(key, str)]
    if len(set(names)) < len(names):
        raise ValueError(f"each key column once, got {', '.join(names)}")
    for key in keys:
        root = key.partition(".")[0] if isinstance(key, str) else None
        if root is not None and root not in df.columns and key not in df.columns:
            hint = did_you_mean(root, df.columns)
            raise ValueError(f"no column {key!r}{hint}: there are {', '.join(df.columns)}")
    columns = [F.col(key) if isinstance(key, str) else key for key in keys]
    for key, field in zip(keys, df.select(*columns).schema, strict=True):
        if not _groupable(field.dataType):
            raise TypeError(
                f"cannot group by {key!r} of type {field.dataType.simpleString()}: "
                "make a string or a struct of it, by to_json or map_entries for a map, and of a "
                "collated string a plain one, by lower(...) or collate(..., 'UTF8_BINARY')"
            )
    return columns


def key_id(columns: Sequence[Column]) -> Column:
    """Return the 64-bit key that schemes see: the same number as `unskew.hash_keys`."""
    return F.xxhash64(*columns)


def _groupable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_groupable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _groupable(kind.elementType)
    if isinstance(kind, StringType):
        # Spark's shuffle hashes the collation key, its hash function does not.
        return getattr(kind, "collation", PLAIN) == PLAIN
    return not isinstance(kind, MapType | VariantType)
