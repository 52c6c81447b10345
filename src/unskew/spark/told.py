"""What tasks of functions with state tell beside their results: costs, and where states are.

It rides on the results, in a hidden column: bytes, none in most rows. Behind the operator a step
sees all rows of a task and its end. There it writes the task's object, all at once.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from unskew.spark.costs import ALONE, NOTHING
from unskew.spark.exports import Note
from unskew.spark.names import Names
from unskew.spark.tasks import micro_batch, partition_and_batch
from unskew.spark.whereabouts import MoveLog

if TYPE_CHECKING:
    import pandas as pd


class Told(NamedTuple):
    """What is told of a key: its cost, and where its state is."""

    cost: str | None = None
    note: Note | None = None


def with_told(
    results: Iterable[pd.DataFrame],
    names: Iterable[str],
    column: str,
    finish: Callable[[], Told],
) -> Iterator[pd.DataFrame]:
    """Pass results on, with what is told in the last row, or in one of its own if there is none.

    ``finish`` is called when there are no more results.
    """
    import pandas as pd  # not needed by tasks that only read plans

    names, last = [*names], None
    for result in results:
        if not len(result):
            continue
        if not any(isinstance(name, str) for name in result.columns):
            result = result.set_axis(names, axis=1)  # by position, as Spark takes them
        if last is not None:
            yield last.assign(**{column: b""})
        last = result
    told = finish()
    # Nothing of this is read back from a file: it goes to the next step of the same task.
    data = b"" if told == Told() else pickle.dumps((last is None, told))
    if last is not None:
        yield last.assign(**{column: [b""] * (len(last) - 1) + [data]})
    elif data:
        yield pd.DataFrame({**{name: [None] for name in names}, column: [data]})


@dataclass(frozen=True)
class Telling:
    """Takes what is told out of the results of an operator.

    Parameters
    ----------
    names
        Of hidden columns.
    output
        The schema of the user's results.
    log
        Of where states are.
    """

    names: Names
    output: StructType
    log: MoveLog

    @property
    def column(self) -> str:
        """The hidden column of results."""
        return self.names("told")

    @property
    def schema(self) -> StructType:
        """The results of an operator, with what is told."""
        return StructType([*map(nullable, self.output), StructField(self.column, BinaryType())])

    def observed(self, results: DataFrame, name: str) -> DataFrame:
        """Return the user's results; observe what keys cost, and write down where states are."""
        cost = self.names("cost")
        out = StructType([*map(nullable, self.output), StructField(cost, StringType())])
        told = results.mapInArrow(self.step, out).observe(name, told_costs(cost))
        return told.filter(~F.col(cost).startswith(ALONE)).drop(cost)

    def step(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the results of a task on; at its end, write down what it told."""
        notes: list[Note] = []
        for batch in batches:
            yield self._passed(batch, notes)
        self.log.tell(micro_batch(), partition_and_batch()[0], notes)

    def _passed(self, batch: pa.RecordBatch, notes: list[Note]) -> pa.RecordBatch:
        *columns, told = batch.columns
        costs, dropped = [NOTHING] * batch.num_rows, []
        for row in pc.indices_nonzero(pc.binary_length(told)).to_pylist():
            alone, (cost, note) = pickle.loads(told[row].as_py())
            if note is not None:
                notes.append(Note(*note))
            if cost is not None:
                costs[row] = ALONE + cost if alone else cost
            elif alone:
                dropped.append(row)
        names = [*batch.schema.names[:-1], self.names("cost")]
        found = pa.record_batch([*columns, pa.array(costs, pa.string())], names=names)
        if not dropped:
            return found
        kept = pc.invert(pc.is_in(pa.array(range(len(costs))), pa.array(dropped)))
        return found.filter(kept)


def told_costs(cost: str) -> Column:
    """Return what to observe of results."""
    return F.collect_list(F.when(F.col(cost) != NOTHING, F.col(cost))).alias("costs")


def nullable(field: StructField) -> StructField:
    """Return a field that may be null: rows that only tell have nothing else."""
    return StructField(field.name, field.dataType, True, field.metadata)
