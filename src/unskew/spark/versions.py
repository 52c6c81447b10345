"""What differs between the versions of Spark that are supported: 4.1 to 4.3."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, IntegralType, StructField, StructType


def _version(df: DataFrame) -> tuple[int, ...]:
    return tuple(int(part) for part in df.sparkSession.version.split(".")[:2])


def all_nullable(df: DataFrame) -> bool:
    """Whether all columns of aggregated rows are nullable, as they are in streams from 4.3 on."""
    return df.isStreaming and _version(df) >= (4, 3)


def with_exact_integers(df: DataFrame, name: str) -> tuple[DataFrame, frozenset[str]]:
    """Return rows whose integers in a struct come to Python as they are, not as floats.

    Also the names of those that come as decimals for that: with 4.1 a null among them would make
    them floats.
    """
    kind = df.schema[name].dataType
    assert isinstance(kind, StructType)
    whole = frozenset(f.name for f in kind if isinstance(f.dataType, IntegralType))
    if not whole or _version(df) >= (4, 2):
        return df, frozenset()
    decimal = DecimalType(19, 0)
    fields = [StructField(f.name, decimal if f.name in whole else f.dataType) for f in kind]
    return df.withColumn(name, F.col(name).cast(StructType(fields))), whole
