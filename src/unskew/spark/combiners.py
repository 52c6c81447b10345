"""User-made aggregates in the shape of Beam's CombineFn, split over workers and merged."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pandas as pd
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import BinaryType, DataType, LongType, StructType

from unskew.spark.aggregates import Aggregate, Merge
from unskew.spark.keys import ColumnOrName
from unskew.spark.running import SEEN
from unskew.spark.versions import with_exact_integers


class CombineFn(Protocol):
    """What a user writes, as for Apache Beam; accumulators must be picklable."""

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


@dataclass(frozen=True, kw_only=True)
class Combined(Aggregate):
    """An aggregate by a CombineFn, with the function and its inputs."""

    function: CombineFn
    inputs: Column


def combine(function: CombineFn, *columns: ColumnOrName, returns: DataType | str) -> Aggregate:
    """Return an aggregate by a CombineFn over a column, or over tuples of several.

    The function gets nulls too. In a batch and in windows, the inputs of a key on a worker are kept
    until they are combined; in a running aggregate only the accumulators are.

    Parameters
    ----------
    function
        Has the four methods of `CombineFn`, and may have Beam's ``add_inputs``.
    columns
        One, and elements are its values; or several, and they are tuples.
    returns
        The type of the result, as in ``"double"``.
    """
    wanted = [name for name in vars(CombineFn) if not name.startswith("_")]
    missing = [name for name in wanted if not callable(getattr(function, name, None))]
    if missing or isinstance(function, type):
        what = "the class, not an object" if isinstance(function, type) else f"no {missing[0]}"
        raise TypeError(f"a CombineFn has {', '.join(wanted)}; {function!r} is or has {what}")
    if not columns:
        raise ValueError("combine needs at least one column, as in combine(fn, 'price', ...)")
    inputs = F.struct(*columns)
    create = function.create_accumulator
    added = F.udf(lambda rows: _dump(_add(function, create(), rows)), BinaryType())
    merged = F.udf(lambda parts: _result(function, parts), returns)
    partial = added(F.collect_list(inputs))
    merge = Merge(F.collect_list, lambda values, _: values)
    kind = merged.returnType
    plain = merged(F.array(partial))
    return Combined(
        plain, (partial,), (merge,), merged, lambda _: kind, function=function, inputs=inputs
    )


def accumulated(
    rows: DataFrame, grouping: Sequence[str], parts: Mapping[str, Combined]
) -> DataFrame:
    """Return running accumulators by the grouping columns, each time that they change.

    ``parts`` are the names of the accumulators, and the aggregates that they belong to.
    """
    functions = {name: aggregate.function for name, aggregate in parts.items()}
    inputs = (aggregate.inputs.alias(name) for name, aggregate in parts.items())
    found, whole = rows.select(*grouping, *inputs), {}
    for name in parts:
        found, whole[name] = with_exact_integers(found, name)
    out, state = StructType(), StructType().add(SEEN, LongType())
    for field in found.select(*grouping).schema:
        out.add(field)
    out.add(SEEN, LongType())
    for name in parts:
        out.add(name, BinaryType())
        state.add(name, BinaryType())

    def add(
        key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], kept: GroupState
    ) -> Iterator[pd.DataFrame]:
        if kept.exists:
            seen, *dumped = kept.get
            accumulators = dict(zip(functions, map(pickle.loads, dumped), strict=True))
        else:
            seen, accumulators = 0, {name: f.create_accumulator() for name, f in functions.items()}
        for chunk in chunks:
            seen += len(chunk)
            for name, function in functions.items():
                elements: Iterable[Any] = chunk[name]
                if whole[name]:
                    elements = (_whole(row, whole[name]) for row in elements)
                accumulators[name] = _add(function, accumulators[name], elements)
        row = (seen, *map(_dump, accumulators.values()))
        kept.update(row)
        values = (*key, *row)
        yield pd.DataFrame({name: [value] for name, value in zip(out.names, values, strict=True)})

    return found.groupBy(*grouping).applyInPandasWithState(
        add, out, state, "append", GroupStateTimeout.NoTimeout
    )


def _add(function: CombineFn, accumulator: Any, rows: Iterable[Row | dict[str, Any]]) -> Any:
    """Add the inputs of rows to an accumulator."""
    values = (tuple(row.values() if isinstance(row, dict) else row) for row in rows)
    elements = [row[0] if len(row) == 1 else row for row in values]
    at_once: Callable[[Any, Any], Any] | None = getattr(function, "add_inputs", None)
    if at_once is not None:
        return at_once(accumulator, elements)
    for element in elements:
        accumulator = function.add_input(accumulator, element)
    return accumulator


def _whole(row: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return a row with integers where it has decimals for them."""
    return row | {name: int(row[name]) for name in names if row[name] is not None}


def _dump(accumulator: Any) -> bytes:
    return bytes(cloudpickle.dumps(accumulator))  # type: ignore[no-untyped-call]


def _result(function: CombineFn, parts: Iterable[bytes]) -> Any:
    merged = function.merge_accumulators([pickle.loads(part) for part in parts])
    return function.extract_output(merged)
