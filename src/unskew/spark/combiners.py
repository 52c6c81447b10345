"""User-defined aggregates in the shape of Beam's CombineFn, split over workers and merged.

A worker combines the elements of a key that it receives, chunk by chunk, and emits accumulators,
which are merged at the key's home. Elements are pickled on their way to the worker's Python, so
that a function receives the same objects in a batch and in a stream: those that a Python UDF
receives.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import BinaryType, DataType, StringType, StructField, StructType

from unskew.spark.placement.key_text import key_fields, key_text
from unskew.spark.placement.keys import ColumnOrName
from unskew.spark.placement.names import Names
from unskew.spark.runtime.tasks import freeze_imports
from unskew.spark.state.types import StateType, as_struct


class CombineFn(Protocol):
    """An aggregate as users write it for Apache Beam.

    Accumulators must be picklable, or have a schema.
    """

    def create_accumulator(self) -> Any:
        """Return an accumulator of no elements."""
        ...

    def add_input(self, accumulator: Any, element: Any) -> Any:
        """Return the accumulator with one more element."""
        ...

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Return one accumulator for the elements of several."""
        ...

    def extract_output(self, accumulator: Any) -> Any:
        """Return the result of an accumulator."""
        ...


@dataclass(frozen=True)
class Codec:
    """Converts accumulators to bytes, as they are kept between workers and batches, and back.

    Parameters
    ----------
    schema
        The schema of accumulators that are tuples, which are written as Arrow. Without a schema,
        accumulators are pickled.
    """

    schema: StructType | None = None

    def dump(self, accumulator: Any) -> bytes:
        """Return the bytes of an accumulator."""
        if self._kind is None:
            return bytes(cloudpickle.dumps(accumulator))  # type: ignore[no-untyped-call]
        try:
            row = self._kind.exact(accumulator)
            column = pa.array([row], self._kind.arrow)
        except (TypeError, ValueError, AttributeError) as error:
            raise TypeError(
                f"an accumulator must fit its schema {self.schema}, got {accumulator!r}: {error}"
            ) from None
        return bytes(pa.record_batch([column], names=["accumulator"]).serialize())

    def load(self, data: bytes) -> Any:
        """Return an accumulator from its bytes."""
        if self._kind is None:
            return pickle.loads(data)
        schema = pa.schema({"accumulator": self._kind.arrow})
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
        return self._kind.unpacked(batch["accumulator"][0].as_py())

    @cached_property
    def _kind(self) -> StateType | None:
        return None if self.schema is None else StateType(self.schema)


@dataclass(frozen=True)
class Combined:
    """An aggregate by a CombineFn.

    Parameters
    ----------
    function
        The user's function.
    inputs
        The columns of its elements.
    returns
        The type of the result.
    codec
        The codec of its accumulators.
    name
        The name of the result column.
    """

    function: CombineFn
    inputs: tuple[Column, ...]
    returns: DataType | str
    codec: Codec
    name: str

    def alias(self, name: str) -> Combined:
        """Return the aggregate under another name."""
        return replace(self, name=name)

    def accumulators(self, group: Column) -> Column:
        """Return a column with one accumulator for each group of a chunk, null in other rows."""
        # Never with Arrow, whatever the session's setting: the function would get other objects.
        struct = F.struct(*(column.alias(f"f{i}") for i, column in enumerate(self.inputs)))
        pickled = F.udf(_pickled, BinaryType(), useArrow=False)(struct)
        combined = arrow_udf(_combining(self.function, self.codec), returnType=BinaryType())
        return combined.asNondeterministic()(group, pickled)  # type: ignore[no-any-return]

    def result(self, accumulators: Column) -> Column:
        """Return the result of merging an array of accumulators."""
        function, codec = self.function, self.codec

        def result(parts: Sequence[bytes]) -> Any:
            return function.extract_output(_merged(function, codec, parts))

        return F.udf(result, self.returns, useArrow=False)(accumulators)


def combine(
    function: CombineFn,
    *columns: ColumnOrName,
    returns: DataType | str,
    accumulator: StructType | str | None = None,
) -> Combined:
    """Return an aggregate by a CombineFn over a column, or over tuples of several.

    The function receives the objects that a Python UDF receives, nulls included. In a batch and in
    windows the accumulators of all workers are kept until they are merged; a running aggregate
    keeps one accumulator for each key.

    Parameters
    ----------
    function
        An object with the four methods of `CombineFn` and, optionally, Beam's ``add_inputs``.
    columns
        The inputs.
    returns
        The type of the result, as in ``"double"``.
    accumulator
        The schema of accumulators that are tuples, as in ``"sum double, n bigint"``: they are then
        kept as Arrow, not as pickled objects.
    """
    methods = [name for name in vars(CombineFn) if not name.startswith("_")]
    missing = [name for name in methods if not callable(getattr(function, name, None))]
    if isinstance(function, type):
        raise TypeError(
            f"a CombineFn must be an object, got the class {function!r}: give {function.__name__}()"
        )
    if missing:
        raise TypeError(
            f"a CombineFn must have the methods {', '.join(methods)}, got {function!r} without "
            f"{missing[0]}"
        )
    if not columns:
        raise ValueError("combine needs at least one column, as in combine(fn, 'price', ...)")
    inputs = tuple(F.col(column) if isinstance(column, str) else column for column in columns)
    schema = None if accumulator is None else as_struct(accumulator)
    return Combined(function, inputs, returns, Codec(schema), f"combine({type(function).__name__})")


@dataclass(frozen=True)
class Combining:
    """Aggregates by group, at least one of which is a CombineFn.

    Parameters
    ----------
    names
        The names of hidden columns.
    columns, fields
        The grouping columns, and their fields in the results of the plain query.
    """

    names: Names
    columns: Sequence[Column]
    fields: Sequence[StructField]

    def at_once(self, rows: DataFrame, aggregates: Mapping[str, Column | Combined]) -> DataFrame:
        """Return the aggregates of a batch or of windows; accumulators are merged at the end."""
        parts = self._parts(aggregates)
        accumulated = self._accumulated(rows, parts)
        group = [c.alias(self.names(f"by{i}")) for i, c in enumerate(self.columns)]
        collected = [
            (F.collect_list(self._part(i)) if isinstance(a, Combined) else a).alias(self._part(i))
            for i, a in enumerate(aggregates.values())
        ]
        groups = accumulated.groupBy(*group).agg(*collected)
        keyed = [
            F.col(self.names(f"by{i}")).alias(field.name) for i, field in enumerate(self.fields)
        ]
        results = [
            (a.result(F.col(part)) if isinstance(a, Combined) else F.col(part)).alias(name)
            for part, (name, a) in zip(
                map(self._part, range(len(aggregates))), aggregates.items(), strict=True
            )
        ]
        return groups.select(*keyed, *results)

    def running(self, rows: DataFrame, aggregates: Mapping[str, Column | Combined]) -> DataFrame:
        """Return the running aggregates of a stream; a group keeps one accumulator for each."""
        parts, text = self._parts(aggregates), self.names("group")
        if len(parts) < len(aggregates):
            raise ValueError(
                "combine(...) and other running aggregates are kept by different operators: "
                "use one query for each, or write CombineFns for all"
            )
        chunks = self._accumulated(rows, parts).select(text, *parts)
        merged = _keep_merged(chunks.where(F.col(self._part(0)).isNotNull()), text, parts)
        keyed = key_fields(F.col(text), [field.dataType for field in self.fields])
        group = [c.alias(field.name) for c, field in zip(keyed, self.fields, strict=True)]
        # A Python UDF cannot read rows of applyInPandasWithState directly, but exploded ones.
        accumulators = self.names("accumulators")
        exploded = merged.select(text, F.explode(F.array(F.struct(*parts))).alias(accumulators))
        results = [
            combined.result(F.array(F.col(accumulators)[part])).alias(name)
            for name, (part, combined) in zip(aggregates, parts.items(), strict=True)
        ]
        return exploded.select(*group, *results)

    def _accumulated(self, rows: DataFrame, parts: Mapping[str, Combined]) -> DataFrame:
        """Return the rows with the text of their group, and with the accumulators of chunks."""
        text = self.names("group")
        with_text = rows.withColumn(
            text, key_text(self.columns, [field.dataType for field in self.fields])
        )
        return with_text.withColumns({n: c.accumulators(F.col(text)) for n, c in parts.items()})

    def _parts(self, aggregates: Mapping[str, Column | Combined]) -> dict[str, Combined]:
        every = enumerate(aggregates.values())
        return {self._part(i): a for i, a in every if isinstance(a, Combined)}

    def _part(self, number: int) -> str:
        return self.names(f"part{number}")


def _keep_merged(rows: DataFrame, text: str, parts: Mapping[str, Combined]) -> DataFrame:
    """Return the merged accumulators of groups, each time they change.

    Parameters
    ----------
    rows
        Rows with the text of their group, and with the accumulators of chunks.
    text
        The name of the column with the texts.
    parts
        The aggregates by the names of their accumulator columns.
    """
    functions = {name: (part.function, part.codec) for name, part in parts.items()}
    state, out = StructType(), StructType().add(text, StringType())
    for name in parts:
        state, out = state.add(name, BinaryType()), out.add(name, BinaryType())

    def merge(
        key: tuple[str], chunks: Iterator[pd.DataFrame], kept: GroupState
    ) -> Iterator[pd.DataFrame]:
        freeze_imports()
        accumulators = {
            name: [kept.get[i]] if kept.exists else [] for i, name in enumerate(functions)
        }
        for chunk in chunks:
            for name, collected in accumulators.items():
                collected.extend(chunk[name])
        merged = {
            name: codec.dump(_merged(function, codec, accumulators[name]))
            for name, (function, codec) in functions.items()
        }
        kept.update((*merged.values(),))
        yield pd.DataFrame({text: [key[0]], **{name: [value] for name, value in merged.items()}})

    return rows.groupBy(text).applyInPandasWithState(
        merge, out, state, "update", GroupStateTimeout.NoTimeout
    )


def _combining(function: CombineFn, codec: Codec) -> Callable[..., Iterator[pa.Array]]:
    def combined(chunks: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        freeze_imports()
        for groups, elements in chunks:
            rows: dict[str, list[int]] = {}
            for row, group in enumerate(groups.to_pylist()):
                rows.setdefault(group, []).append(row)
            values = [pickle.loads(element) for element in elements.to_pylist()]
            accumulators: list[bytes | None] = [None] * len(values)
            for group_rows in rows.values():
                accumulator = function.create_accumulator()
                added = _add(function, accumulator, [values[row] for row in group_rows])
                accumulators[group_rows[0]] = codec.dump(added)
            yield pa.array(accumulators, pa.binary())

    return combined


def _add(function: CombineFn, accumulator: Any, elements: list[Any]) -> Any:
    """Return an accumulator with more elements."""
    add_inputs: Callable[[Any, Any], Any] | None = getattr(function, "add_inputs", None)
    if add_inputs is not None:
        return add_inputs(accumulator, elements)
    for element in elements:
        accumulator = function.add_input(accumulator, element)
    return accumulator


def _pickled(row: Row) -> bytes:
    return pickle.dumps(row[0] if len(row) == 1 else tuple(row))


def _merged(function: CombineFn, codec: Codec, parts: Sequence[bytes]) -> Any:
    return function.merge_accumulators([codec.load(part) for part in parts])
