"""Types as Spark types, Arrow types and SQL."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from differential.case import Kind

MONTHS, SPAN = "interval year to month", "interval day to second"
INTEGERS = ("tinyint", "smallint", "int", "bigint")
FLOATS = ("float", "double")
DECIMALS = ("decimal(5,2)", "decimal(18,4)", "decimal(38,0)", "decimal(38,18)")
TIMES = ("date", "timestamp", "timestamp_ntz")
INTERVALS = (MONTHS, SPAN)
NUMBERS = (*INTEGERS, *FLOATS, *DECIMALS)
ATOMS = ("boolean", *NUMBERS, "string", "binary", *TIMES, *INTERVALS)
SIMPLE: dict[str, tuple[T.DataType, Any]] = {
    "boolean": (T.BooleanType(), pa.bool_()),
    "tinyint": (T.ByteType(), pa.int8()),
    "smallint": (T.ShortType(), pa.int16()),
    "int": (T.IntegerType(), pa.int32()),
    "bigint": (T.LongType(), pa.int64()),
    "float": (T.FloatType(), pa.float32()),
    "double": (T.DoubleType(), pa.float64()),
    "string": (T.StringType(), pa.string()),
    "binary": (T.BinaryType(), pa.binary()),
    "date": (T.DateType(), pa.date32()),
    "timestamp": (T.TimestampType(), pa.timestamp("us", "UTC")),
    "timestamp_ntz": (T.TimestampNTZType(), pa.timestamp("us")),
    SPAN: (T.DayTimeIntervalType(), pa.duration("us")),
    # Neither Arrow nor Python has such an interval: a number is converted to it in Spark.
    MONTHS: (T.IntegerType(), pa.int32()),
}


def precision(kind: str) -> tuple[int, int]:
    """Return the precision and the scale of a decimal type."""
    first, second = kind.removeprefix("decimal(").removesuffix(")").split(",")
    return int(first), int(second)


def letters(kinds: tuple[Kind, ...]) -> list[tuple[str, Kind]]:
    """Return the fields of a struct type, which are named a, b, c and so on."""
    return [(chr(97 + i), kind) for i, kind in enumerate(kinds)]


def spark_type(kind: Kind) -> T.DataType:
    """Return a type of Spark."""
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            return T.DecimalType(*precision(kind))
        return SIMPLE[kind][0]
    if kind[0] == "array":
        return T.ArrayType(spark_type(kind[1]))
    if kind[0] == "map":
        return T.MapType(spark_type(kind[1]), spark_type(kind[2]))
    return T.StructType([T.StructField(n, spark_type(k)) for n, k in letters(kind[1:])])


def arrow_type(kind: Kind) -> Any:
    """Return a type of Arrow."""
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            return pa.decimal128(*precision(kind))
        return SIMPLE[kind][1]
    if kind[0] == "array":
        return pa.list_(arrow_type(kind[1]))
    if kind[0] == "map":
        return pa.map_(arrow_type(kind[1]), arrow_type(kind[2]))
    return pa.struct([pa.field(n, arrow_type(k)) for n, k in letters(kind[1:])])


def arrow_value(kind: Kind, value: Any) -> Any:
    """Return a value of a case as pyarrow accepts it."""
    if value is None:
        return None
    if isinstance(kind, str):
        if kind.startswith("decimal"):
            return Decimal(value)
        return bytes.fromhex(value) if kind == "binary" else value
    if kind[0] == "array":
        return [arrow_value(kind[1], v) for v in value]
    if kind[0] == "map":
        return [(arrow_value(kind[1], k), arrow_value(kind[2], v)) for k, v in value]
    fields = zip(letters(kind[1:]), value, strict=True)
    return {name: arrow_value(k, v) for (name, k), v in fields}


def sql_type(kind: Kind) -> str:
    """Return a type as it is written in SQL."""
    if isinstance(kind, str):
        return kind
    if kind[0] == "struct":
        return f"struct<{', '.join(f'{n}: {sql_type(k)}' for n, k in letters(kind[1:]))}>"
    return f"{kind[0]}<{', '.join(map(sql_type, kind[1:]))}>"


def sql_value(kind: Kind, value: Any) -> str:
    """Return a value of a case as it is written in SQL."""
    if value is None:
        return f"CAST(NULL AS {sql_type(kind)})"
    if isinstance(kind, str):
        return _sql_atom(kind, value)
    if kind[0] == "array":
        inner = f"array({', '.join(sql_value(kind[1], v) for v in value)})"
    elif kind[0] == "map":
        pairs = [sql_value(k, v) for pair in value for k, v in zip(kind[1:], pair, strict=True)]
        inner = f"map({', '.join(pairs)})"
    else:
        fields = zip(letters(kind[1:]), value, strict=True)
        inner = f"named_struct({', '.join(f'{n!r}, {sql_value(k, v)}' for (n, k), v in fields)})"
    return f"CAST({inner} AS {sql_type(kind)})"


def _sql_atom(kind: str, value: Any) -> str:
    if kind == "binary":
        return f"X'{value}'"
    makers = {
        "date": "date_from_unix_date({})",
        "timestamp": "timestamp_micros({})",
        "timestamp_ntz": "(TIMESTAMP_NTZ'1970-01-01' + make_dt_interval(0, 0, 0, {} / 1e6BD))",
        SPAN: "make_dt_interval(0, 0, 0, {} / 1e6BD)",
        MONTHS: "make_ym_interval(0, {})",
    }
    if kind in makers:
        return makers[kind].format(value)
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{text}' AS {kind})"


def has_map(kind: Kind) -> bool:
    """Return whether a type contains a map, which Spark can neither group nor order by."""
    return not isinstance(kind, str) and (kind[0] == "map" or any(map(has_map, kind[1:])))
