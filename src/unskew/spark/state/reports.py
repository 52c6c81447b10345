"""The reports of stateful operators' tasks: the costs of keys, and the changes of their states.

Spark calls an operator key by key, without a signal that a task's last key is done. So reports are
appended to a file of the task's attempt, on the local disk of the executor. A step after the
operator, in the same task, sees the end of the results: it reads and removes the file, writes the
task's object to the move log, and emits costs as rows of their own, which Spark observes.

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
from unskew.spark.runtime.tasks import (
    attempt,
    freeze_imports,
    micro_batch,
    partition_and_batch,
)
from unskew.spark.state.exports import StateChange
from unskew.spark.state.move_log import MoveLog


class KeyReport(NamedTuple):
    """The report of a key: its cost, and the change of its state."""

    cost: str | None = None
    change: StateChange | None = None


class ReportFile:
    """The reports of one task attempt: appended by one process, taken by another.

    Parameters
    ----------
    path
        The path of the file. Only its owner can read and write it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: io.BufferedWriter | None = None

    @classmethod
    def of_task(cls, operator: str) -> ReportFile:
        """Return the file of an operator in the running task attempt."""
        name = f"{attempt()}-{hashlib.sha256(operator.encode()).hexdigest()[:16]}"
        # Spark removes this folder with the executor, and so the files of failed attempts.
        local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()
        return cls(Path(local) / f"unskew-reports-{name}")

    def append(self, report: KeyReport) -> None:
        """Append a report, and flush it, so that another process can read it."""
        if self._file is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            self._file = os.fdopen(os.open(self.path, flags, 0o600), "ab")
        cost, change = report
        self._file.write(pickle.dumps((cost, None if change is None else tuple(change))))
        self._file.flush()

    def take(self) -> list[KeyReport]:
        """Return all reports, and remove the file."""
        try:
            file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return []
        reports = []
        with os.fdopen(file, "rb") as source:
            if os.fstat(source.fileno()).st_uid != os.getuid():
                raise PermissionError(f"{self.path} belongs to another user: remove it")
            while source.peek(1):
                cost, change = _PlainUnpickler(source).load()
                reports.append(KeyReport(cost, None if change is None else StateChange(*change)))
        self.path.unlink()
        return reports

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class _PlainUnpickler(pickle.Unpickler):
    """An unpickler for plain values only, so that a file cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in (("decimal", "Decimal"), ("builtins", "bytearray")):
            raise pickle.UnpicklingError(f"{module}.{name} is not a plain value")
        return super().find_class(module, name)


_open: dict[tuple[str, str], ReportFile] = {}
"""The files that this process writes to, by operator and attempt; all are of one attempt."""


@dataclass(frozen=True)
class Reporter:
    """Collects the reports of an operator's tasks.

    Parameters
    ----------
    names
        The names of hidden columns.
    output
        The schema of the user's results.
    log
        The move log of the operator.
    """

    names: Names
    output: StructType
    log: MoveLog

    def report(self, cost: str | None, change: StateChange | None) -> None:
        """Append the report of a key of the running task, if there is anything to report."""
        if cost is None and change is None:
            return
        file_key = self.log.root, attempt()
        if file_key not in _open:
            for old in [other for other in _open if other[1] != file_key[1]]:
                _open.pop(old).close()
            _open[file_key] = ReportFile.of_task(self.log.root)
        _open[file_key].append(KeyReport(cost, change))

    def observed(self, results: DataFrame, name: str) -> DataFrame:
        """Return the user's results; costs of keys are observed, and task objects written."""
        column = self.names("cost")
        fields = [nullable(field) for field in self.output]
        schema = StructType([*fields, StructField(column, StringType())])
        costs = F.collect_list(column).alias("costs")
        observed = results.mapInArrow(self.step, schema).observe(name, costs)
        return observed.filter(F.col(column).isNull()).drop(column)

    def step(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the results of a task, and at its end write its object and yield its costs."""
        freeze_imports()
        name = self.names("cost")
        schema: pa.Schema | None = None
        for batch in batches:
            schema = batch.schema
            no_costs = pa.nulls(batch.num_rows, pa.string())
            yield pa.record_batch([*batch.columns, no_costs], names=[*schema.names, name])
        reports = ReportFile.of_task(self.log.root).take()
        changes = [report.change for report in reports if report.change is not None]
        self.log.write_object(micro_batch(), partition_and_batch()[0], changes)
        costs = [report.cost for report in reports if report.cost is not None]
        if costs:
            yield self._cost_rows(costs, schema)

    def _cost_rows(self, costs: list[str], schema: pa.Schema | None) -> pa.RecordBatch:
        """Return rows with costs and no results."""
        from pyspark.sql.pandas.types import to_arrow_schema

        if schema is None:
            schema = to_arrow_schema(self.output)
        columns = [pa.nulls(len(costs), field.type) for field in schema]
        names = [*schema.names, self.names("cost")]
        return pa.record_batch([*columns, pa.array(costs, pa.string())], names=names)


def nullable(field: StructField) -> StructField:
    """Return the field as nullable, as rows with costs have nulls in all other columns."""
    return StructField(field.name, field.dataType, True, field.metadata)
