"""The type that two key columns are compared by: equal hashes of both sides need equal types."""

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
    """Return the type that Spark compares values of two types by; refuse where it is not sure.

    For numbers, for times, and for arrays and structs of them, ``==`` and ``coalesce`` have the
    same common type. Texts and numbers, say, have not: the one compares numbers, the other texts.
    """
    if left.simpleString() == right.simpleString():
        return left
    a, b = F.lit(None).cast(left), F.lit(None).cast(right)
    try:
        if _alike(left, right):
            both = df.sparkSession.range(0).select(a == b, F.coalesce(a, b))
            return both.schema[1].dataType
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
