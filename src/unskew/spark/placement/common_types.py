"""The common type of two key columns: hashes of both sides are equal only for equal types."""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

TIMES = (DateType, TimestampType, TimestampNTZType)


def common_type(df: DataFrame, left: DataType, right: DataType, key: str) -> DataType:
    """Return the type in which Spark compares values of two types; refuse if it is not certain.

    For numbers, for times, and for arrays and structs of them, ``==`` and ``coalesce`` use the same
    common type. For a string and a number, say, they do not: ``==`` compares numbers and
    ``coalesce`` returns strings.
    """
    if left.simpleString() == right.simpleString():
        return left
    a, b = F.lit(None).cast(left), F.lit(None).cast(right)
    try:
        if _alike(left, right):
            compared = df.sparkSession.range(0).select(a == b, F.coalesce(a, b))
            return compared.schema[1].dataType
    except AnalysisException:  # types that Spark does not compare
        pass
    raise TypeError(
        f"key {key!r} is {left.simpleString()} on the left and {right.simpleString()} on the "
        f"right: cast one of them, as in withColumn({key!r}, col({key!r})"
        f".cast({left.simpleString()!r}))"
    )


def _alike(left: DataType, right: DataType) -> bool:
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        return _alike(left.elementType, right.elementType)
    if isinstance(left, StructType) and isinstance(right, StructType):
        return [f.name.casefold() for f in left] == [f.name.casefold() for f in right] and all(
            _alike(a.dataType, b.dataType) for a, b in zip(left, right, strict=True)
        )
    for kinds in ((NumericType,), TIMES, (StringType,)):
        if isinstance(left, kinds) and isinstance(right, kinds):
            return True
    return left.simpleString() == right.simpleString()
