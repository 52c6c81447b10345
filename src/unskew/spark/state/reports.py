"""What the tasks of stateful operators report: the costs of keys, and where their states are.

Spark calls an operator key by key, and does not say when a task's last key is done. So what is
reported is appended to a file of the task's attempt, on the local disk of the executor. A step
behind the operator, in the same task, sees the end of the results: it takes the file, writes the
task's object to the move log, and passes costs on in rows of their own, which Spark observes.

No column is added to the results: it would cost a tenth of a millisecond for each key.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from unskew.spark.placement.names import Names
from unskew.spark.runtime.tasks import attempt, micro_batch, partition_and_batch
from unskew.spark.state.exports import Note
from unskew.spark.state.move_log import MoveLog


class Report(NamedTuple):
    """What is reported of a key: its cost, and where its state is."""

    cost: str | None = None
    note: Note | None = None


class ReportFile:
    """The reports of one attempt of a task: appended by one process, taken by another.

    Parameters
    ----------
    path
        Where it is. Only its owner can read and write it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: io.BufferedWriter | None = None

    @classmethod
    def of_task(cls, operator: str) -> ReportFile:
        """Return the file of an operator in the running attempt of a task."""
        name = f"{attempt()}-{hashlib.sha256(operator.encode()).hexdigest()[:16]}"
        # Spark's own folder, which goes with the executor: an attempt that fails leaves its file.
        local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
        return cls(Path(local) / f"unskew-reports-{name}")

    def append(self, report: Report) -> None:
        """Add a report, so that it can be read at once."""
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._file = os.fdopen(os.open(self.path, flags, 0o600), "ab")
        cost, note = report
        self._file.write(pickle.dumps((cost, None if note is None else tuple(note))))
        self._file.flush()

    def take(self) -> list[Report]:
        """Return all reports, and remove the file."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return []
        reports = []
        with os.fdopen(file, "rb") as source:
            if os.fstat(source.fileno()).st_uid != os.getuid():
                raise PermissionError(f"{self.path} belongs to another user")
            while source.peek(1):
                cost, note = _ValuesOnly(source).load()
                reports.append(Report(cost, None if note is None else Note(*note)))
        self.path.unlink()
        return reports

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class _ValuesOnly(pickle.Unpickler):
    """Reads plain values: nothing in a file can have code run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in (("decimal", "Decimal"), ("builtins", "bytearray")):
            raise pickle.UnpicklingError(f"{module}.{name} is no plain value")
        return super().find_class(module, name)


_open: dict[tuple[str, str], ReportFile] = {}
"""The files that this process writes to, by operator and attempt: those of one attempt."""


@dataclass(frozen=True)
class Reporter:
    """Takes the reports of an operator's tasks.

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

    def report(self, cost: str | None, note: Note | None) -> None:
        """Report a key of the running task, if there is anything to report."""
        if cost is None and note is None:
            return
        this = self.log.root, attempt()
        if this not in _open:
            for old in [known for known in _open if known[1] != this[1]]:
                _open.pop(old).close()
            _open[this] = ReportFile.of_task(self.log.root)
        _open[this].append(Report(cost, note))

    def observed(self, results: DataFrame, name: str) -> DataFrame:
        """Return the user's results; observe what keys cost, and write down where states are."""
        column = self.names("cost")
        fields = [nullable(field) for field in self.output]
        schema = StructType([*fields, StructField(column, StringType())])
        costs = F.collect_list(column).alias("costs")
        observed = results.mapInArrow(self.step, schema).observe(name, costs)
        return observed.filter(F.col(column).isNull()).drop(column)

    def step(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass the results of a task on; at its end, write down what it reported."""
        name = self.names("cost")
        schema: pa.Schema | None = None
        for batch in batches:
            schema = batch.schema
            none = pa.nulls(batch.num_rows, pa.string())
            yield pa.record_batch([*batch.columns, none], names=[*schema.names, name])
        reports = ReportFile.of_task(self.log.root).take()
        notes = [report.note for report in reports if report.note is not None]
        self.log.tell(micro_batch(), partition_and_batch()[0], notes)
        costs = [report.cost for report in reports if report.cost is not None]
        if costs:
            yield self._alone(costs, schema)

    def _alone(self, costs: list[str], schema: pa.Schema | None) -> pa.RecordBatch:
        """Return rows that have costs, and no results."""
        from pyspark.sql.pandas.types import to_arrow_schema

        if schema is None:
            schema = to_arrow_schema(self.output)
        columns = [pa.nulls(len(costs), field.type) for field in schema]
        names = [*schema.names, self.names("cost")]
        return pa.record_batch([*columns, pa.array(costs, pa.string())], names=names)


def nullable(field: StructField) -> StructField:
    """Return a field that may be null: rows of costs have nothing else."""
    return StructField(field.name, field.dataType, True, field.metadata)
