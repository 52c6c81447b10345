"""User-made aggregates in the shape of Beam's CombineFn, split over workers and merged.

A worker combines the elements of a key that it gets, chunk by chunk, and passes on accumulators.
These are merged where the key is at home. Elements are pickled on the way to the worker's Python,
so that a function gets the same objects in a batch and in a stream: those that a Python UDF gets.
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
from unskew.spark.state.types import StateType, as_struct


class CombineFn(Protocol):
    """What a user writes, as for Apache Beam; accumulators are picklable, or have a schema."""

    def create_accumulator(self) -> Any:
        """Return what is known before the first record."""
        ...

    def add_input(self, accumulator: Any, element: Any) -> Any:
        """Return what is known after one more."""
        ...

    def merge_accumulators(self, accumulators: Iterable[Any]) -> Any:
        """Return what is known to several workers together."""
        ...

    def extract_output(self, accumulator: Any) -> Any:
        """Return the result."""
        ...


@dataclass(frozen=True)
class Codec:
    """How accumulators are kept between workers and batches: as bytes.

    Parameters
    ----------
    schema
        Of accumulators that are tuples: they are written as Arrow. Pickled if there is none.
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
                f"an accumulator is {accumulator!r}, and not {self.schema}: {error}"
            ) from None
        return bytes(pa.record_batch([column], names=["accumulator"]).serialize())

    def load(self, data: bytes) -> Any:
        """Return the accumulator of some bytes."""
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
        The user's.
    inputs
        What its elements are made of.
    returns
        The type of the result.
    codec
        Of accumulators.
    name
        Of the column of results.
    """

    function: CombineFn
    inputs: tuple[Column, ...]
    returns: DataType | str
    codec: Codec
    name: str

    def alias(self, name: str) -> Combined:
        """Return it under another name."""
        return replace(self, name=name)

    def accumulators(self, group: Column) -> Column:
        """Return accumulators of the rows of a chunk: one for each group, nulls in other rows."""
        # Without Arrow, whatever the session says: it would give other objects.
        struct = F.struct(*(column.alias(f"f{i}") for i, column in enumerate(self.inputs)))
        pickled = F.udf(_pickled, BinaryType(), useArrow=False)(struct)
        combined = arrow_udf(_combining(self.function, self.codec), returnType=BinaryType())
        return combined.asNondeterministic()(group, pickled)  # type: ignore[no-any-return]

    def result(self, accumulators: Column) -> Column:
        """Return the result of an array of accumulators."""
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

    The function gets nulls too, and the objects that a Python UDF gets. In a batch and in windows
    the accumulators of all workers are kept until they are merged; in a running aggregate a key has
    one accumulator.

    Parameters
    ----------
    function
        Has the four methods of `CombineFn`, and may have Beam's ``add_inputs``.
    columns
        The inputs.
    returns
        The type of the result, as in ``"double"``.
    accumulator
        The schema of accumulators that are tuples, as in ``"sum double, n bigint"``: then they are
        kept as such, and not as pickled objects.
    """
    wanted = [name for name in vars(CombineFn) if not name.startswith("_")]
    missing = [name for name in wanted if not callable(getattr(function, name, None))]
    if missing or isinstance(function, type):
        what = "the class, not an object" if isinstance(function, type) else f"no {missing[0]}"
        raise TypeError(f"a CombineFn has {', '.join(wanted)}; {function!r} is or has {what}")
    if not columns:
        raise ValueError("combine needs at least one column, as in combine(fn, 'price', ...)")
    inputs = tuple(F.col(column) if isinstance(column, str) else column for column in columns)
    schema = None if accumulator is None else as_struct(accumulator)
    return Combined(function, inputs, returns, Codec(schema), f"combine({type(function).__name__})")


@dataclass(frozen=True)
class Combining:
    """Aggregates by group of which some are CombineFns.

    Parameters
    ----------
    names
        Of hidden columns.
    columns, fields
        What rows are grouped by, and what the plain query has for it in its results.
    """

    names: Names
    columns: Sequence[Column]
    fields: Sequence[StructField]

    def at_once(self, rows: DataFrame, aggregates: Mapping[str, Column | Combined]) -> DataFrame:
        """Return the aggregates of a batch or of windows: accumulators are merged at the end."""
        parts = self._parts(aggregates)
        known = self._accumulated(rows, parts)
        group = [c.alias(self.names(f"by{i}")) for i, c in enumerate(self.columns)]
        collected = [
            (F.collect_list(self._part(i)) if isinstance(a, Combined) else a).alias(self._part(i))
            for i, a in enumerate(aggregates.values())
        ]
        found = known.groupBy(*group).agg(*collected)
        keyed = [
            F.col(self.names(f"by{i}")).alias(field.name) for i, field in enumerate(self.fields)
        ]
        results = [
            (a.result(F.col(part)) if isinstance(a, Combined) else F.col(part)).alias(name)
            for part, (name, a) in zip(
                map(self._part, range(len(aggregates))), aggregates.items(), strict=True
            )
        ]
        return found.select(*keyed, *results)

    def running(self, rows: DataFrame, aggregates: Mapping[str, Column | Combined]) -> DataFrame:
        """Return the aggregates of a stream so far: a group has one accumulator of each."""
        parts, text = self._parts(aggregates), self.names("group")
        if len(parts) < len(aggregates):
            raise ValueError(
                "combine(...) and other running aggregates are kept by different operators: "
                "give each a query, or make CombineFns of all"
            )
        some = self._accumulated(rows, parts).select(text, *parts)
        merged = _keep_merged(some.where(F.col(self._part(0)).isNotNull()), text, parts)
        keyed = key_fields(F.col(text), [field.dataType for field in self.fields])
        group = [c.alias(field.name) for c, field in zip(keyed, self.fields, strict=True)]
        # A Python UDF cannot read rows of applyInPandasWithState as they are, but exploded ones.
        known = self.names("known")
        made = merged.select(text, F.explode(F.array(F.struct(*parts))).alias(known))
        results = [
            combined.result(F.array(F.col(known)[part])).alias(name)
            for name, (part, combined) in zip(aggregates, parts.items(), strict=True)
        ]
        return made.select(*group, *results)

    def _accumulated(self, rows: DataFrame, parts: Mapping[str, Combined]) -> DataFrame:
        """Return the rows with the text of their group, and accumulators of chunks of them."""
        text = self.names("group")
        known = rows.withColumn(
            text, key_text(self.columns, [field.dataType for field in self.fields])
        )
        return known.withColumns({n: c.accumulators(F.col(text)) for n, c in parts.items()})

    def _parts(self, aggregates: Mapping[str, Column | Combined]) -> dict[str, Combined]:
        every = enumerate(aggregates.values())
        return {self._part(i): a for i, a in every if isinstance(a, Combined)}

    def _part(self, number: int) -> str:
        return self.names(f"part{number}")


def _keep_merged(rows: DataFrame, text: str, parts: Mapping[str, Combined]) -> DataFrame:
    """Return the merged accumulators of groups, each time that they change.

    Parameters
    ----------
    rows
        With a text for each group, and accumulators of chunks.
    text
        The name of the column of texts.
    parts
        The names of the accumulators' columns, and what they belong to.
    """
    functions = {name: (part.function, part.codec) for name, part in parts.items()}
    state, out = StructType(), StructType().add(text, StringType())
    for name in parts:
        state, out = state.add(name, BinaryType()), out.add(name, BinaryType())

    def merge(
        key: tuple[str], chunks: Iterator[pd.DataFrame], kept: GroupState
    ) -> Iterator[pd.DataFrame]:
        found = {name: [kept.get[i]] if kept.exists else [] for i, name in enumerate(functions)}
        for chunk in chunks:
            for name, known in found.items():
                known.extend(chunk[name])
        merged = {
            name: codec.dump(_merged(function, codec, found[name]))
            for name, (function, codec) in functions.items()
        }
        kept.update((*merged.values(),))
        yield pd.DataFrame({text: [key[0]], **{name: [value] for name, value in merged.items()}})

    return rows.groupBy(text).applyInPandasWithState(
        merge, out, state, "update", GroupStateTimeout.NoTimeout
    )


def _combining(function: CombineFn, codec: Codec) -> Callable[..., Iterator[pa.Array]]:
    def combined(chunks: Iterator[tuple[pa.Array, pa.Array]]) -> Iterator[pa.Array]:
        for groups, elements in chunks:
            rows: dict[str, list[int]] = {}
            for row, group in enumerate(groups.to_pylist()):
                rows.setdefault(group, []).append(row)
            known = [pickle.loads(element) for element in elements.to_pylist()]
            found: list[bytes | None] = [None] * len(known)
            for several in rows.values():
                accumulator = function.create_accumulator()
                added = _add(function, accumulator, [known[row] for row in several])
                found[several[0]] = codec.dump(added)
            yield pa.array(found, pa.binary())

    return combined


def _add(function: CombineFn, accumulator: Any, elements: list[Any]) -> Any:
    """Add elements to an accumulator."""
    at_once: Callable[[Any, Any], Any] | None = getattr(function, "add_inputs", None)
    if at_once is not None:
        return at_once(accumulator, elements)
    for element in elements:
        accumulator = function.add_input(accumulator, element)
    return accumulator


def _pickled(row: Row) -> bytes:
    return pickle.dumps(row[0] if len(row) == 1 else tuple(row))


def _merged(function: CombineFn, codec: Codec, parts: Sequence[bytes]) -> Any:
    return function.merge_accumulators([codec.load(part) for part in parts])
