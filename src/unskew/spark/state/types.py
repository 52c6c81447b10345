"""States as Spark keeps them: what comes back of a Python value, by the schema of the state.

Spark pickles a state for the JVM, which makes of it what the schema says: it wraps integers, rounds
floats and decimals, and takes null for what it cannot read (``EvaluatePython.makeFromJava``). A
state that moves does not pass through Spark, so the same is done here. States on their way are
Arrow, in Spark's own form: dates are days, times are microseconds.
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

PLAIN: dict[type[DataType], pa.DataType] = {
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
KNOWN = (bool, int, float, str, bytes, bytearray, decimal.Decimal, list, tuple, dict, set)
"""What the JVM can read at all; of the others it refuses the whole state."""

Kept = Callable[[Any], Any]


def arrow_type(kind: DataType) -> pa.DataType:
    """Return how values of a type are written; a TypeError for types that no state may have."""
    if type(kind) in PLAIN:
        return PLAIN[type(kind)]
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


def kept_by(kind: DataType) -> Kept:
    """Return what makes of a value what Spark would keep of it, in the form that Arrow takes.

    Examples
    --------
    >>> kept_by(ShortType())(70000), kept_by(FloatType())(0.1), kept_by(LongType())(1.5)
    (4464, 0.10000000149011612, None)
    >>> kept_by(DecimalType(10, 2))(decimal.Decimal("1.235"))
    Decimal('1.24')
    """
    if isinstance(kind, UserDefinedType):
        return kept_by(kind.sqlType())
    if isinstance(kind, StructType):
        return _struct(kind)
    if isinstance(kind, ArrayType):
        element = kept_by(kind.elementType)
        return _read((list, tuple), lambda values: [element(value) for value in values])
    if isinstance(kind, MapType):
        key, item = kept_by(kind.keyType), kept_by(kind.valueType)
        return _read((dict,), lambda pairs: [(key(k), item(v)) for k, v in pairs.items()])
    if isinstance(kind, StringType):
        return _text
    if isinstance(kind, BinaryType):
        return _read((str, bytes, bytearray), _bytes)
    if isinstance(kind, DecimalType):
        return _read((decimal.Decimal,), lambda value: _decimal(value, kind))
    if isinstance(kind, FloatType):
        return _read((float,), _float32)
    if isinstance(kind, DoubleType):
        return _read((float,), lambda value: value)
    if isinstance(kind, BooleanType):
        return lambda value: _checked(value) if isinstance(value, bool) else None
    if isinstance(kind, NullType):
        return lambda value: None
    return _integer(kind)


def _checked(value: Any) -> Any:
    if value is not None and not isinstance(value, KNOWN):
        raise TypeError(
            f"a state has a {type(value).__module__}.{type(value).__qualname__} in it, which Spark "
            f"cannot keep: use plain Python values, as of .tolist() or .item()"
        )
    return value


def _read(kinds: tuple[type, ...], change: Kept) -> Kept:
    def kept(value: Any) -> Any:
        return change(value) if isinstance(value, kinds) else _nothing(value)

    return kept


def _nothing(value: Any) -> None:
    """Take null for what the JVM reads, but not as this type."""
    _checked(value)


def _integer(kind: DataType) -> Kept:
    widths: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, DateType: 32}
    bits = widths.get(type(kind), 64)
    half, whole = 1 << (bits - 1), 1 << bits
    wraps = isinstance(kind, ByteType | ShortType | IntegerType)

    def kept(value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool):
            return _nothing(value)
        if -half <= value < half:
            return value
        return (value + half) % whole - half if wraps and -(2**63) <= value < 2**63 else None

    return kept


def _struct(kind: StructType) -> Kept:
    fields = [(str(i), kept_by(field.dataType)) for i, field in enumerate(kind)]

    def kept(value: Any) -> Any:
        if not isinstance(value, tuple):
            return _nothing(value)
        if len(value) != len(fields):
            raise ValueError(
                f"a struct of a state has {len(value)} fields, and by its schema {len(fields)}"
            )
        return {name: field(part) for (name, field), part in zip(fields, value, strict=True)}

    return kept


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    raise TypeError(
        f"a state has a {type(value).__name__} where its schema has a string: make it a str"
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


def _back(kind: DataType) -> Kept | None:
    """Return what makes of a value from Arrow one that Spark hands to Python; None for nothing."""
    if isinstance(kind, UserDefinedType):
        return _back(kind.sqlType())
    if isinstance(kind, StructType):
        parts = [_back(field.dataType) for field in kind]
        return lambda value: tuple(
            item if part is None or item is None else part(item)
            for part, item in zip(parts, value.values(), strict=True)
        )
    if isinstance(kind, ArrayType) and (element := _back(kind.elementType)):
        return lambda value: [None if each is None else element(each) for each in value]
    if isinstance(kind, MapType):
        key, item = _back(kind.keyType), _back(kind.valueType)
        return lambda value: {
            (k if key is None else key(k)): (v if item is None or v is None else item(v))
            for k, v in value
        }
    return None


@dataclass(frozen=True)
class StateType:
    """The type of a state: how it is written on its way, and what becomes of it.

    Parameters
    ----------
    schema
        Of the state.
    """

    schema: StructType

    @cached_property
    def arrow(self) -> pa.DataType:
        """How it is written."""
        return arrow_type(self.schema)

    @cached_property
    def _kept(self) -> Kept:
        return kept_by(self.schema)

    @cached_property
    def _taken(self) -> Kept:
        return cast("Kept", _back(self.schema))

    def packed(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return a state of the user's as it is written."""
        plain = Row(*map(_plain, values))
        return cast("dict[str, Any]", self._kept(self.schema.toInternal(plain)))

    def exact(self, values: Sequence[Any]) -> dict[str, Any]:
        """Return a state as it is written, if it is of this type and nothing is lost."""
        row = self.schema.toInternal(tuple(values))
        return cast("dict[str, Any]", _named(row, self.schema))

    def unpacked(self, packed: dict[str, Any]) -> tuple[Any, ...]:
        """Return a state as Spark would hand it to the user."""
        return tuple(self.schema.fromInternal(self._taken(packed)))


def _named(value: Any, kind: DataType) -> Any:
    """Return a value with structs as Arrow takes them."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        pairs = enumerate(zip(value, kind, strict=True))
        return {str(i): _named(part, field.dataType) for i, (part, field) in pairs}
    if isinstance(kind, ArrayType):
        return [_named(each, kind.elementType) for each in value]
    if isinstance(kind, MapType):
        return [(_named(k, kind.keyType), _named(v, kind.valueType)) for k, v in value.items()]
    if isinstance(kind, IntegralType) and not isinstance(value, Integral):  # Arrow would cut it
        raise TypeError(f"{value!r} is no integer")
    return value


def _plain(value: Any) -> Any:
    """Return what Spark's own update makes of a value of NumPy's or pandas'."""
    if isinstance(value, np.generic):
        return value.tolist()
    for method in ("to_pytimedelta", "to_pydatetime"):
        if hasattr(value, method):
            return getattr(value, method)()
    return value


def as_struct(given: StructType | str) -> StructType:
    """Return a schema that may be given as text."""
    found = StructType.fromDDL(given) if isinstance(given, str) else given
    if not isinstance(found, StructType):
        raise TypeError(
            f"a schema has names and types, as in 'key string, n bigint', got {given!r}"
        )
    return found
