"""What several commands have in common: options, lists of numbers, a bar."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from unskew.spec import number

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def numbers(name: str, text: str, *, whole: bool = False) -> list[float]:
    """Return the numbers of a list with commas."""
    return [number(name, part, whole) for part in text.split(",")]


class Progress:
    """A bar on the error stream, where a person looks at it; a call adds to what is done."""

    def __init__(self, total: int | None, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("records", total=total)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()

    def __call__(self, done: int) -> None:
        """Add to what is done."""
        self._bar.update(self._task, advance=done)
