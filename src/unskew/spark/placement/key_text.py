"""Keys as texts, one text for each group that Spark makes, and back to columns of any type.

Keys change when they pass through pandas, which has one value for null and NaN, floats for integers
with nulls, and no year 9999. A text passes through pandas unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def key_text(columns: Sequence[Column], kinds: Sequence[DataType], signed: bool = False) -> Column:
    """Return the text of a key, which is equal for two keys if and only if Spark groups them.

    If ``signed``, -0.0 and 0.0 have different texts.
    """
    leaf = _to_signed_text if signed else _to_text
    parts = (
        _mapped(column, kind, leaf).alias(f"f{i}")
        for i, (column, kind) in enumerate(zip(columns, kinds, strict=True))
    )
    return F.to_json(F.struct(*parts), {"ignoreNullFields": "false"})


def key_fields(text: Column, kinds: Sequence[DataType]) -> list[Column]:
    """Return the columns of a key of these types from its text."""
    texts = StructType([StructField(f"f{i}", _texts(kind)) for i, kind in enumerate(kinds)])
    parsed = F.from_json(text, texts)
    return [_mapped(parsed[f"f{i}"], kind, _from_text) for i, kind in enumerate(kinds)]


def _mapped(value: Column, kind: DataType, leaf: Callable[[Column, DataType], Column]) -> Column:
    """Return a value with a function applied to its leaves."""
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return F.transform(value, lambda each: _mapped(each, element, leaf))
    if isinstance(kind, StructType):
        names = [f"f{i}" for i in range(len(kind))], kind.names
        before, after = names if leaf is _from_text else names[::-1]
        fields = (
            _mapped(value.getField(old), field.dataType, leaf).alias(new)
            for old, new, field in zip(before, after, kind, strict=True)
        )
        return F.when(value.isNotNull(), F.struct(*fields))
    return leaf(value, kind)


def _to_text(value: Column, kind: DataType) -> Column:
    if isinstance(kind, FloatType | DoubleType):
        # Spark groups -0.0 and 0.0 together; all NaNs have one text.
        zero = F.lit(0.0).cast(kind)
        return F.when(value == zero, zero).otherwise(value).cast("string")
    if isinstance(kind, TimestampType):
        return F.unix_micros(value).cast("string")
    if isinstance(kind, DateType):
        return F.unix_date(value).cast("string")
    if isinstance(kind, BinaryType):
        return F.hex(value)
    return value.cast("string")


def _to_signed_text(value: Column, kind: DataType) -> Column:
    floats = isinstance(kind, FloatType | DoubleType)
    return value.cast("string") if floats else _to_text(value, kind)


def has_floats(kinds: Sequence[DataType]) -> bool:
    """Return whether keys of these types contain floating-point numbers."""
    inner = [field.dataType for kind in kinds if isinstance(kind, StructType) for field in kind]
    inner += [kind.elementType for kind in kinds if isinstance(kind, ArrayType)]
    floats = any(isinstance(kind, FloatType | DoubleType) for kind in kinds)
    return floats or (bool(inner) and has_floats(inner))


def _from_text(text: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        return F.timestamp_micros(text.cast("bigint"))
    if isinstance(kind, DateType):
        return F.date_from_unix_date(text.cast("int"))
    if isinstance(kind, BinaryType):
        return F.unhex(text)
    return text.cast(kind)


def _texts(kind: DataType) -> DataType:
    if isinstance(kind, ArrayType):
        return ArrayType(_texts(kind.elementType))
    if isinstance(kind, StructType):
        fields = (StructField(f"f{i}", _texts(field.dataType)) for i, field in enumerate(kind))
        return StructType([*fields])
    return StringType()
