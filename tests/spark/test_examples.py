"""The examples run, return the same result plain and balanced, and use only public names."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import unskew.spark
from spark.conftest import PARTITIONS

EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").glob("*.py") if path.stem != "events"
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_give_the_same_result(
    path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(path.parent))
    partitions = str(spark.conf.get(PARTITIONS))
    try:
        runpy.run_path(str(path), run_name="__main__")
    finally:
        spark.conf.set(PARTITIONS, partitions)  # the examples have fewer
    assert capsys.readouterr().out.strip().splitlines()[-1] == "the same result"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short_and_use_public_names(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 60
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unskew"):
            assert node.module == "unskew.spark"
            assert {name.name for name in node.names} <= {*unskew.spark.__all__}
