"""The examples of the documentation that need Spark run to their end."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from typer.testing import CliRunner

from guides import MODULE, RUN_ON_SPARK, Block, Command, blocks, commands, needs_spark
from guides import programs as all_programs
from spark.guide_names import names
from spark.streams import outputs
from unskew.spark import Balancer

PROGRAMS = [program for program in all_programs().values() if needs_spark(program)]
CHECKPOINTS = "/checkpoints/"
SMALLER = {"range(12)": "range(2)", "range(13)": "range(3)"}
"""The session of these tests has three workers."""

pytestmark = pytest.mark.usefixtures("three_workers")


@pytest.fixture(scope="module")
def assumed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return {"__name__": "__main__", **names(spark, tmp_path_factory.mktemp("guides"))}


class Program:
    """Runs Python blocks, and then the queries that they leave.

    Parameters
    ----------
    assumed
        The names that the guide assumes.
    checkpoints
        The folder that stands for ``/checkpoints/``.
    """

    def __init__(self, assumed: dict[str, Any], checkpoints: Path) -> None:
        self.names, self.checkpoints = {**assumed}, f"{checkpoints}/"
        self.checkpoint = ""
        """Of the balancer that was named last."""

    def run(self, text: str, where: str) -> dict[str, Any]:
        """Run a block; return its DataFrames and queries by their checkpoints and names."""
        left: dict[str, Any] = {}
        for long, short in {**SMALLER, CHECKPOINTS: self.checkpoints}.items():
            text = text.replace(long, short)
        for statement in ast.parse(text, where).body:
            before = {**self.names}
            if isinstance(statement, ast.Expr):
                code = compile(ast.Expression(statement.value), where, "eval")
                self.names["_"] = eval(code, self.names)
            else:
                exec(compile(ast.Module([statement], []), where, "exec"), self.names)
            self.checkpoint = self.checkpoint_of(statement) or self.checkpoint
            for name, value in self.names.items():
                if isinstance(value, DataFrame | StreamingQuery) and value is not before.get(name):
                    streaming = isinstance(value, StreamingQuery) or value.isStreaming
                    # A query that the guide starts takes the place of its DataFrame.
                    left[self.checkpoint if streaming else name] = value
        return left

    def checkpoint_of(self, statement: ast.stmt) -> str | None:
        """Return the checkpoint that a statement names, itself or by its balancer."""
        for node in ast.walk(statement):
            if isinstance(node, ast.Constant) and str(node.value).startswith(self.checkpoints):
                return str(node.value)
            if isinstance(node, ast.Name) and isinstance(self.names.get(node.id), Balancer):
                return str(self.names[node.id].checkpoint)
        return None


def batches_of(df: DataFrame, checkpoint: Path) -> list[list[Any]]:
    """Return the results of a streaming query, by batch, in the first output mode that it has."""
    try:
        return outputs(df, checkpoint, "update")
    except AnalysisException:
        return outputs(df, checkpoint, "append")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0].document)
def test_python_examples_run(
    program: list[Block], assumed: dict[str, Any], spark: SparkSession, tmp_path: Path
) -> None:
    guide, before = Program(assumed, tmp_path), tables(spark)
    for block in program:
        for name, value in guide.run(block.text, str(block)).items():
            if isinstance(value, StreamingQuery):
                value.processAllAvailable()
                value.stop()
                assert sum(progress["numInputRows"] for progress in value.recentProgress)
            elif value.isStreaming:
                assert any(batches_of(value, Path(name))), f"{block}: {name} is empty"
            else:
                assert value.collect(), f"{block}: {name} is empty"
    for table in {*tables(spark)} - {*before}:
        spark.sql(f"DROP TABLE {table}")


def tables(spark: SparkSession) -> list[str]:
    return [table.name for table in spark.catalog.listTables()]


@pytest.mark.parametrize("block", blocks("diff"), ids=str)
def test_both_sides_of_a_diff_have_the_same_result(
    block: Block, assumed: dict[str, Any], tmp_path: Path
) -> None:
    lines = block.text.splitlines()
    results = []
    for left_out, folder in (("+", "plain"), ("-", "balanced")):
        text = "\n".join(line[1:] for line in lines if not line.startswith(left_out))
        left = Program(assumed, tmp_path / folder).run(text, str(block))
        assert len(left) == 1
        results += [batches_of(df, Path(at or tmp_path / "none")) for at, df in left.items()]
    assert any(results[0])
    assert results[0] == results[1]


@pytest.mark.parametrize("command", commands(RUN_ON_SPARK), ids=str)
def test_commands_run(
    command: Command, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from unskew.apps import APPS
    from unskew.cli import app

    @contextmanager
    def session_of_the_tests(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield spark

    monkeypatch.setattr("unskew.spark.session.embedded_session", session_of_the_tests)
    monkeypatch.chdir(tmp_path)
    ids = pa.array([i % 5 for i in range(500)]).to_numpy()
    for name, kind in (("words", "word-count"), ("trades", "vwap")):
        table = APPS[kind].table(ids)
        columns = ["key", *table.column_names[1:]]
        pq.write_table(table.rename_columns(columns), f"{name}.parquet")
    # The JVM of the session does not follow chdir.
    arguments = [word.replace("parquet:", f"parquet:{tmp_path}/") for word in command.smaller[1:]]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    folders = [word.partition(":")[2] for word in arguments if word.startswith("parquet:")]
    assert all([*Path(folder).glob("batch=*")] for folder in folders)


@pytest.mark.parametrize("command", commands(MODULE), ids=str)
def test_options_of_modules_exist(command: Command) -> None:
    from differential.__main__ import main as differential

    _, _, module, *arguments = command.words
    assert module == "differential"
    app = typer.Typer(add_completion=False)
    app.command()(differential)
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert arguments == ["--help"]
    assert done.exit_code == 0


def test_there_are_examples() -> None:
    assert len(PROGRAMS) >= 3
    assert blocks("diff")
