from __future__ import annotations

import subprocess
import sys

import pytest

import unskew


def run(program: str) -> str:
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_importing_is_cheap() -> None:
    """Neither the compiler nor Arrow nor the command line comes with ``import unskew``."""
    heavy = ("numba", "pyarrow", "typer", "numpy", "pyspark")
    out = run(f"import sys, unskew; print([name for name in {heavy} if name in sys.modules])")
    assert out.strip() == "[]"


def test_dir_names_what_is_public() -> None:
    assert dir(unskew) == sorted(unskew.__all__)


@pytest.mark.parametrize("name", unskew.__all__)
def test_public_names_resolve(name: str) -> None:
    assert getattr(unskew, name) is not None


def test_public_names_resolve_in_a_fresh_interpreter() -> None:
    assert run("from unskew import *; print(hash_keys([None])[0])").strip() == "42"


def test_unknown_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'unskew' has no attribute 'nothing'"):
        unskew.nothing  # noqa: B018
