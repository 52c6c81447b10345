"""The examples of the README run as they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = [
    command
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for command in block.replace("\\\n", " ").splitlines()
    if command.startswith("unskew ")
]


@pytest.mark.parametrize("code", PYTHON)
def test_python_examples_run(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})


@pytest.mark.parametrize("command", SHELL)
def test_commands_run(command: str, tmp_path: Path) -> None:
    arguments = shlex.split(command)[1:]
    main = [sys.executable, "-c", "from unskew.cli import main; main()"]
    done = subprocess.run(
        [*main, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_there_are_examples() -> None:
    assert PYTHON
    assert len(SHELL) >= 2


def test_every_scheme_is_named() -> None:
    from unskew.planners import PLANNERS
    from unskew.routers import ROUTERS

    assert all(f"`{name}`" in README for name in [*ROUTERS, *PLANNERS])
