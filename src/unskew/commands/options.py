"""Shared parts of the commands: options, lists of numbers, a progress bar."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from unskew.spec import number

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def numbers(name: str, text: str, *, whole: bool = False) -> list[float]:
    """Return the numbers of a comma-separated list."""
    return [number(name, part, whole) for part in text.split(",")]


def batch_size(text: str) -> int:
    """Return the records of a micro-batch, at least 1."""
    size = int(number("batch-records", text, whole=True))
    if size < 1:
        raise ValueError(f"batch-records must be at least 1, got {text}")
    return size


class Progress:
    """A progress bar on standard error if that is a terminal; calling it advances the bar."""

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
        """Advance the bar by a number of units."""
        self._bar.update(self._task, advance=done)
