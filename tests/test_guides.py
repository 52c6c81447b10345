"""The examples of the documentation that need no Spark run, and its commands are as they are."""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from guides import (
    DOCUMENTS,
    EXAMPLE,
    INSTALL,
    LANGUAGES,
    OPTIONS,
    ROOT,
    RUN,
    RUN_ON_SPARK,
    SCRIPT,
    SMALLER,
    TARGET,
    Block,
    Command,
    blocks,
    commands,
    needs_spark,
    programs,
)

PROGRAMS = [program for program in programs().values() if not needs_spark(program)]
TYPES = {"int": int, "float": float}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program[0].document)
def test_python_examples_run(
    program: list[Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in program:
        exec(compile(block.text, str(block), "exec"), names)


@pytest.mark.parametrize("command", commands(RUN), ids=str)
def test_commands_run(command: Command, tmp_path: Path) -> None:
    main = [sys.executable, "-c", "from unskew.cli import main; main()"]
    done = subprocess.run(
        [*main, *command.smaller[1:]], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", commands(RUN, RUN_ON_SPARK, OPTIONS), ids=str)
def test_options_exist(command: Command) -> None:
    from unskew.cli import app

    found, arguments = typer.main.get_command(app), command.words[1:]
    while arguments and (subcommands := getattr(found, "commands", None)):
        assert arguments[0] in subcommands, f"there is no command {arguments[0]}"
        found, arguments = subcommands[arguments[0]], arguments[1:]
    if arguments or command.in_block:  # a sentence may just name a command
        found.make_context(str(command), [*arguments])


@pytest.mark.parametrize("command", commands(TARGET), ids=str)
def test_make_targets_exist(command: Command) -> None:
    makefile = (ROOT / "Makefile").read_text()
    for word in command.words[1:]:
        name, is_setting, _ = word.partition("=")
        assert not is_setting or f"\n{name} ?=" in makefile
    done = subprocess.run(
        ["make", "-n", *command.words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", commands(SCRIPT), ids=str)
def test_options_of_scripts_exist(command: Command) -> None:
    _, path, *arguments = command.words
    options_of(ROOT / path).parse_args(arguments)


def options_of(path: Path) -> argparse.ArgumentParser:
    """Return a parser with the options of a script, which is read and not run."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            given = {word.arg: word.value for word in node.keywords if word.arg is not None}
            settings: dict[str, Any] = {}
            if "action" in given:
                settings["action"] = ast.literal_eval(given["action"])
            if isinstance(kind := given.get("type"), ast.Name):
                settings["type"] = TYPES[kind.id]
            parser.add_argument(*map(ast.literal_eval, node.args), **settings)
    return parser


@pytest.mark.parametrize("command", commands(EXAMPLE), ids=str)
def test_example_files_exist(command: Command) -> None:
    # tests/spark/test_examples.py runs them.
    assert (ROOT / command.words[1]).is_file()


@pytest.mark.parametrize("command", commands(INSTALL), ids=str)
def test_extras_exist(command: Command) -> None:
    found = re.fullmatch(r"(?:unskew|\.)\[([a-z,]+)\]", command.words[2])
    assert found
    project = (ROOT / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in project for extra in found[1].split(","))


def test_every_block_and_command_has_a_rule() -> None:
    unknown = [str(block) for block in blocks() if block.language not in LANGUAGES]
    assert not unknown, f"the language of a block must be one of {', '.join(LANGUAGES)}"
    rules = [command.rule for command in commands()]  # one without a rule is an error
    assert {RUN, RUN_ON_SPARK, OPTIONS, TARGET, SCRIPT} <= {*rules}
    texts = [command.text for command in commands(RUN, RUN_ON_SPARK)]
    unused = [start for start in SMALLER if not any(text.startswith(start) for text in texts)]
    assert not unused, "SMALLER names commands that are in no document"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", path.read_text()):
        found = (path.parent / target).resolve() if target else path
        assert found.is_file(), target
        titles = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
        anchors = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles]
        assert not anchor or anchor in anchors, f"{target}#{anchor}"


def test_every_scheme_is_named() -> None:
    from unskew.planners import PLANNERS
    from unskew.routers import ROUTERS

    readme = (ROOT / "README.md").read_text()
    assert all(f"`{name}`" in readme for name in [*ROUTERS, *PLANNERS])
