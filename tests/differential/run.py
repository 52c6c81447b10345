"""Runs the two queries of a case."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from differential.balanced import balanced_query
from differential.case import Case
from differential.compare import Outcome, Verdict, compare, refused
from differential.plain import plain_query
from differential.session import applied, scratch_folder
from differential.tables import batch_frame, stream_frame, write_file

PATIENCE_S = 60.0
Query = Callable[[], DataFrame]


def judge(spark: SparkSession, case: Case) -> Verdict:
    """Return whether the balanced query of a case gives the result of the plain one."""
    folder = scratch_folder()
    try:
        with applied(spark, case.settings):
            balanced = run(spark, case, folder / "balanced", balanced=True)
            # A proper refusal is fine, whatever the plain query gives.
            verdict = refused(balanced)
            if verdict.kind == "refused":
                return verdict
            return compare(case, run(spark, case, folder / "plain", balanced=False), balanced)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(spark: SparkSession, case: Case, folder: Path, balanced: bool) -> Outcome:
    """Return the outcome of the plain or the balanced query of a case."""
    if case.stream:
        return run_stream(spark, case, folder, balanced)
    sides = [batch_frame(spark, case, i) for i in range(len(case.tables))]
    if balanced:
        return run_batch(lambda: balanced_query(case, sides, None, folder))
    return run_batch(lambda: plain_query(case, sides))


def run_batch(query: Query) -> Outcome:
    """Return the outcome of a query over tables."""
    outcome = Outcome()
    try:
        df = query()
        outcome.built = True
        outcome.schema = df.schema
        outcome.batches = [rows_of(df)]
    except Exception as error:
        outcome.error = error
    return outcome


def run_stream(spark: SparkSession, case: Case, folder: Path, balanced: bool) -> Outcome:
    """Return the outcome of a query over streams, with the restart of its case."""
    outcome, checkpoint = Outcome(), folder / "checkpoint"
    n_batches = max(len(table.batches) for table in case.tables)
    stops = [case.restart_after, n_batches] if case.restart else [n_batches]
    collected: dict[int, list[tuple[Any, ...]]] = {}

    def query() -> DataFrame:
        sides = [stream_frame(spark, case, i, folder) for i in range(len(case.tables))]
        if balanced:
            return balanced_query(case, sides, checkpoint, folder)
        return plain_query(case, sides)

    df, written = None, 0
    try:
        for stop in stops:
            write_batches(case, folder, written, stop)
            if df is None or case.restart == "rebuilt":
                df, outcome.built = query(), True
            outcome.schema, written = df.schema, stop
            run_available(df, checkpoint, case.output, collected)
    except Exception as error:
        outcome.error = error
    outcome.batches = [collected[number] for number in sorted(collected)]
    return outcome


def write_batches(case: Case, folder: Path, first: int, stop: int) -> None:
    """Write the files of some batches of all streams."""
    for i, table in enumerate(case.tables):
        for batch in range(first, min(stop, len(table.batches))):
            if not table.static:
                write_file(table, batch, folder / str(i))


def run_available(
    df: DataFrame, checkpoint: Path, output: str, collected: dict[int, list[tuple[Any, ...]]]
) -> None:
    """Run a streaming query over all available rows, and collect its results by batch."""

    def collect(batch: DataFrame, number: int) -> None:
        collected[number] = rows_of(batch)

    writer = df.writeStream.foreachBatch(collect).outputMode(output).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        if not query.awaitTermination(int(PATIENCE_S)):
            raise TimeoutError(f"the query did not finish within {PATIENCE_S:.0f} s")
    finally:
        query.stop()


def rows_of(df: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows; values of types that Python lacks are returned as strings."""
    columns = []
    for i, field in enumerate(df.schema):
        column = F.col(f"c{i}")
        if "interval year" in field.dataType.simpleString():
            column = F.sort_array(column) if isinstance(field.dataType, ArrayType) else column
            column = column.cast("string")
        columns.append(column)
    unnamed = df.toDF(*(f"c{i}" for i in range(len(columns))))
    return [tuple(row) for row in unnamed.select(*columns).collect()]
