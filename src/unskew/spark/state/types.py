"""Conversion of states to the values that Spark would store, by the schema of the state.

Spark pickles a state for the JVM, which converts it to the schema: it wraps integers, rounds floats
and decimals, and turns what it cannot read into null (``EvaluatePython.makeFromJava``). A state
that moves does not pass through Spark, so the same conversion is done here. States on their way are
Arrow, in Spark's internal form: dates are days, times are microseconds.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    NullType,
    Row,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
)

ARROW_TYPES: dict[type[DataType], pa.DataType] = {
    NullType: pa.null(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    ShortType: pa.int16(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.int32(),
    TimestampType: pa.int64(),
    TimestampNTZType: pa.int64(),
    DayTimeIntervalType: pa.int64(),
    BinaryType: pa.large_binary(),
}
READABLE = (bool, int, float, str, bytes, bytearray, decimal.Decimal, list, tuple, dict, set)
"""Types that the JVM can read; with a value of any other type it refuses the whole state."""

Converter = Callable[[Any], Any]


def arrow_type(kind: DataType) -> pa.DataType:
    """Return the Arrow type for a Spark type; raise a TypeError if states of it cannot move."""
    if type(kind) in ARROW_TYPES:
        return ARROW_TYPES[type(kind)]
    if isinstance(kind, StringType):
        return pa.large_string()
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        return pa.large_list(arrow_type(kind.elementType))
    if isinstance(kind, MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, StructType):
        return pa.struct([(str(i), arrow_type(field.dataType)) for i, field in enumerate(kind)])
    if isinstance(kind, UserDefinedType):
        return arrow_type(kind.sqlType())
    raise TypeError(
        f"a state of type {kind.simpleString()} cannot move: keep it as binary or as a string"
    )


def to_stored(kind: DataType) -> Converter:
    """Return a converter from a value to what Spark would store for it, in Arrow's form.

    Examples
    --------
    >>> to_stored(ShortType())(70000), to_stored(FloatType())(0.1), to_stored(LongType())(1.5)
    (4464, 0.10000000149011612, None)
    >>> to_stored(DecimalType(10, 2))(decimal.Decimal("1.235"))
    Decimal('1.24')
    """
    if isinstance(kind, UserDefinedType):
        return to_stored(kind.sqlType())
    if isinstance(kind, StructType):
        return _struct(kind)
    if isinstance(kind, ArrayType):
        element = to_stored(kind.elementType)
        return _only((list, tuple), lambda values: [element(value) for value in values])
    if isinstance(kind, MapType):
        key, item = to_stored(kind.keyType), to_stored(kind.valueType)
        return _only((dict,), lambda pairs: [(key(k), item(v)) for k, v in pairs.items()])
    if isinstance(kind, StringType):
        return _text
    if isinstance(kind, BinaryType):
        return _only((str, bytes, bytearray), _bytes)
    if isinstance(kind, DecimalType):
        return _only((decimal.Decimal,), lambda value: _decimal(value, kind))
    if isinstance(kind, FloatType):
        return _only((float,), _float32)
    if isinstance(kind, DoubleType):
        return _only((float,), lambda value: value)
    if isinstance(kind, BooleanType):
        return lambda value: _checked(value) if isinstance(value, bool) else None
    if isinstance(kind, NullType):
        return lambda value: None
    return _integer(kind)


def _checked(value: Any) -> Any:
    if value is not None and not isinstance(value, READABLE):
        raise TypeError(
            f"a state has a {type(value).__module__}.{type(value).__qualname__} in it, which Spark "
            f"cannot store: use plain Python values, as from .tolist() or .item()"
        )
    return value


def _only(kinds: tuple[type, ...], convert: Converter) -> Converter:
    def stored(value: Any) -> Any:
        return convert(value) if isinstance(value, kinds) else _null(value)

    return stored


def _null(value: Any) -> None:
    """Return null, for a value that the JVM can read, but not as this type."""
    _checked(value)


def _integer(kind: DataType) -> Converter:
    widths: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, DateType: 32}
    bits = widths.get(type(kind), 64)
    half, whole = 1 << (bits - 1), 1 << bits
    wraps = isinstance(kind, ByteType | ShortType | IntegerType)

    def stored(value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            return _null(value)
        if -half <= value < half:
            return value
        return (value + half) % whole - half if wraps and -(2**63) <= value < 2**63 else None

    return stored


def _struct(kind: StructType) -> Converter:
    fields = [(str(i), to_stored(field.dataType)) for i, field in enumerate(kind)]

    def stored(value: Any) -> Any:
        if not isinstance(value, tuple):
            return _null(value)
        if len(value) != len(fields):
            raise ValueError(
                f"a struct of a state must have {len(fields)} fields, as in its schema, got "
                f"{len(value)}"
            )
        return {name: field(part) for (name, field), part in zip(fields, value, strict=True)}

    return stored


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    raise TypeError(
        f"a state has a {type(value).__name__} where its schema has a string: use a str"
    )


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _float32(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _decimal(value: decimal.Decimal, kind: DecimalType) -> decimal.Decimal | None:
    if not value.is_finite():
        return None
    wide = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)
    rounded = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=wide)
    if len(rounded.as_tuple().digits) > kind.precision and rounded:
        raise ArithmeticError(f"{value} of a state does not fit {kind.simpleString()}")
    return rounded


def _from_arrow(kind: DataType) -> Converter | None:
    """Return a converter from Arrow's form to what Spark passes to Python; None if they agree."""
    if isinstance(kind, UserDefinedType):
        return _from_arrow(kind.sqlType())
    if isinstance(kind, StructType):
        parts = [_from_arrow(field.dataType) for field in kind]
        return lambda value: tuple(
            item if part is None or item is None else part(item)
            for part, item in zip(parts, value.values(), strict=True)
        )
    if isinstance(kind, ArrayType) and (element := _from_arrow(kind.elementType)):
        return lambda value: [None if each is None else element(each) for each in value]
    if isinstance(kind, MapType):
        key, item = _from_arrow(kind.keyType), _from_arrow(kind.valueType)
        return lambda value: {
            (k if key is None else key(k)): (v if item is None or v is None else item(v))
            for k, v in value
        }
    return None


@dataclass(frozen=True)
class StateType:
    """The type of a state, and the conversion of its values to Arrow's form and back.

    Parameters
    ----------
    schema
        The schema of the state.
    """

    schema: StructType

    @cached_property
    def arrow(self) -> pa.DataType:
        """The Arrow type in which states are written."""
        return arrow_type(self.schema)

    @cached_property
    def _to_stored(self) -> Converter:
        return to_stored(self.schema)

    @cached_property
    def _from_arrow(self) -> Converter:
        return cast("Converter", _from_arrow(self.schema))

    def packed(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return a user's state in Arrow's form, converted as Spark would."""
        plain = Row(*map(_plain, values))
        return cast("dict[str, Any]", self._to_stored(self.schema.toInternal(plain)))

    def exact(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return a state in Arrow's form, without the conversions that would lose something."""
        row = self.schema.toInternal(tuple(values))
        return cast("dict[str, Any]", _named(row, self.schema))

    def unpacked(self, packed: dict[str, Any]) -> tuple[Any, ...]:
        """Return a state from Arrow's form, as Spark would pass it to the user."""
        return tuple(self.schema.fromInternal(self._from_arrow(packed)))


def _named(value: Any, kind: DataType) -> Any:
    """Return a value with structs as dictionaries, as Arrow takes them."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        pairs = enumerate(zip(value, kind, strict=True))
        return {str(i): _named(part, field.dataType) for i, (part, field) in pairs}
    if isinstance(kind, ArrayType):
        return [_named(each, kind.elementType) for each in value]
    if isinstance(kind, MapType):
        return [(_named(k, kind.keyType), _named(v, kind.valueType)) for k, v in value.items()]
    if isinstance(kind, IntegralType) and not isinstance(value, Integral):  # Arrow truncates
        raise TypeError(f"{value!r} is not an integer")
    return value


def _plain(value: Any) -> Any:
    """Return a NumPy or pandas value as the Python value that Spark's own update makes of it."""
    if isinstance(value, np.generic):
        return value.tolist()
    for method in ("to_pytimedelta", "to_pydatetime"):
        if hasattr(value, method):
            return getattr(value, method)()
    return value


def as_struct(schema: StructType | str) -> StructType:
    """Return a schema that may be given as DDL text."""
    struct = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(struct, StructType):
        raise TypeError(
            f"a schema must have names and types, as in 'key string, n bigint', got {schema!r}"
        )
    return struct
