"""The examples run, return the same result plain and balanced, and use only public names."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import unskew.spark

EXAMPLES = sorted(
    path for path in (Path(__file__).parents[2] / "examples").glob("*.py") if path.stem != "events"
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_give_the_same_result(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(path.parent), *sys.path])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().splitlines()[-1] == "the same result"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_short_and_use_public_names(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 60
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("unskew"):
            assert node.module == "unskew.spark"
            assert {name.name for name in node.names} <= {*unskew.spark.__all__}
