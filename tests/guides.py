"""The examples of the documentation: fenced blocks, commands, and how each command is tested."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
LANGUAGES = ("python", "diff", "sh", "text")
"""Python, also as a diff, and commands are tested; a text is a picture or an output."""

SMALLER = {
    "unskew simulate --planners mixed,min-table,readj": {
        "records=2e7,interval=5e6": "records=2e5,interval=5e4",
        "--interval 1000000": "--interval 10000",
    },
    "unskew simulate --schemes w-choices,round-robin-head": {"records=4e6": "records=4e5"},
    "unskew run vwap --stream zipf": {"records=1e5": "records=2e3"},
    "unskew run word-count --stream zipf": {"records=1e6": "records=2e3"},
    "unskew compare word-count --stream zipf": {
        "records=4e4 --batch-records 1e4 --delay-us 500": "records=2e3 --delay-us 0"
    },
    "unskew compare word-count --routing online": {
        "key,pkg,d-choices,w-choices,dstream,fish,shuffle": "pkg",
        "records=3e5": "records=2e3",
        "--delay-us 500": "--delay-us 0",
    },
    "unskew compare trade-join:seconds=0.2": {
        "key,w-choices,dstream": "w-choices",
        "records=5e4": "records=1e3",
        "--batch-records 1e4 --delay-us 200": "--delay-us 0",
    },
}
"""Commands that take long, by how they begin, and the smaller arguments that they are run with."""

RUN, RUN_ON_SPARK, OPTIONS, TARGET, SCRIPT, EXAMPLE, MODULE, INSTALL = (
    "run",
    "run on spark",
    "options",
    "target",
    "script",
    "example",
    "module",
    "install",
)
"""What is tested: the command runs; or its options, its make target, its file or extra exist."""

_COMMAND = re.compile(r"`((?:unskew|make|python|pip|PYTHONPATH=\S+ python) [^`]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block: its document, the line of its fence, its language, and its text."""

    document: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


@dataclass(frozen=True)
class Command:
    """A command, and whether it stands in a block or within a sentence."""

    where: str
    text: str
    in_block: bool

    def __str__(self) -> str:
        return f"{self.where} {self.text}"

    @property
    def words(self) -> list[str]:
        """The command and its arguments, without settings of the environment."""
        words = shlex.split(self.text)
        return words[1:] if words[0].startswith("PYTHONPATH=") else words

    @property
    def smaller(self) -> list[str]:
        """The command and its arguments, as it is run."""
        text = " ".join(self.text.split())
        for start, changes in SMALLER.items():
            if text.startswith(start):
                for long, short in changes.items():
                    assert long in text, f"{start}: there is no {long}"
                    text = text.replace(long, short)
        return shlex.split(text)

    @property
    def rule(self) -> str:
        """What is tested; a command that no rule covers is an error."""
        match self.words:
            case ["unskew", "schemes" | "streams" | "simulate", *_] if self.in_block:
                return RUN
            case ["unskew", "run" | "compare", *rest] if self.in_block:
                outside = any(address in word for address in ("kafka:", "jdbc:") for word in rest)
                return OPTIONS if outside else RUN_ON_SPARK
            case ["unskew", "apps", *_] if self.in_block:
                return RUN_ON_SPARK
            case ["unskew", "bench" | "demo", *_]:
                return OPTIONS
            case ["unskew", *_] if not self.in_block:
                return OPTIONS
            case ["make", *_]:
                return TARGET
            case ["python", "-m", *_]:
                return MODULE
            case ["python", path, *_]:
                return EXAMPLE if path.startswith("examples/") else SCRIPT
            case ["pip", "install", _]:
                return INSTALL
        raise ValueError(f"{self}: no rule says how this is tested; add one to {__file__}")


def _parsed(path: Path) -> tuple[list[Block], str]:
    """Return the fenced blocks of a document, and the text without them."""
    blocks, prose = list[Block](), list[str]()
    inside: tuple[int, str] | None = None
    held: list[str] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.lstrip().startswith("```"):
            (prose if inside is None else held).append(line)
        elif inside is None:
            inside, held = (number, line.strip().strip("`")), []
        else:
            text = "".join(f"{line}\n" for line in held)
            blocks.append(Block(str(path.relative_to(ROOT)), *inside, text))
            inside = None
    assert inside is None, f"{path}:{inside}: the block has no end"
    return blocks, "\n".join(prose)


def blocks(*languages: str) -> list[Block]:
    """Return the fenced blocks of all documents, of some languages or of all."""
    found = [block for path in DOCUMENTS for block in _parsed(path)[0]]
    return [block for block in found if not languages or block.language in languages]


def commands(*rules: str) -> list[Command]:
    """Return the commands of all documents to which some rule applies, each once."""
    listed = [*_sentence_commands(), *_block_commands()]
    found = {(command.text, command.in_block): command for command in listed}.values()
    return [command for command in found if not rules or command.rule in rules]


def _block_commands() -> Iterator[Command]:
    for block in blocks("sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield Command(str(block), shlex.join(words), in_block=True)


def _sentence_commands() -> Iterator[Command]:
    for path in DOCUMENTS:
        for text in _COMMAND.findall(_parsed(path)[1]):
            yield Command(str(path.relative_to(ROOT)), " ".join(text.split()), in_block=False)


def programs() -> dict[str, list[Block]]:
    """Return the Python blocks by document, in their order: together they are one program."""
    found: dict[str, list[Block]] = {}
    for block in blocks("python"):
        found.setdefault(block.document, []).append(block)
    return found


def needs_spark(program: list[Block]) -> bool:
    """Say whether a program uses Spark."""
    return any("spark" in line for block in program for line in _imports(block))


def _imports(block: Block) -> list[str]:
    lines = block.text.splitlines()
    return [line for line in lines if line.startswith(("import ", "from "))]
