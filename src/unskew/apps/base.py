"""What an application is: rows, and a query over them that a balancer keeps balanced."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from unskew.spark import Balancer

START_US = 1_767_225_600_000_000
STEP_US = 1000
"""Made records are a millisecond apart, from the start of 2026."""


class Learner(Protocol):
    """Learns from a stream, one micro-batch after the other."""

    def learn(self, batch: DataFrame, number: int, balance: Balancer) -> DataFrame:
        """Learn from the rows of a batch with this number; return what is known now."""
        ...


@dataclass(frozen=True)
class App:
    """A streaming job over keyed rows.

    Parameters
    ----------
    name
        As the command line has it.
    schema
        The columns of its rows, as Spark writes them.
    make
        Makes columns of rows: of the ids of their keys, and the number of the first record. The
        same ids and numbers make the same rows.
    query
        Given the rows and a balancer, returns the result; its options are keyword-only. Or, with
        ``learns``, returns a `Learner` when given the options alone.
    keys
        The columns that tell the rows of the result apart.
    mode
        The output mode of the result: ``update`` or ``append``.
    learns
        Whether the query is a learner that takes one micro-batch after the other.
    """

    name: str
    schema: str
    make: Callable[[NDArray[np.int64], int], Mapping[str, Any]]
    query: Callable[..., Any]
    keys: tuple[str, ...]
    mode: str = "update"
    learns: bool = False

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return (inspect.getdoc(self.query) or "").partition("\n")[0]

    @property
    def options(self) -> dict[str, str]:
        """The names of its options, with their types as written."""
        parameters = inspect.signature(self.query).parameters.values()
        return {p.name: str(p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY}

    def table(self, ids: NDArray[np.int64], first: int = 0) -> pa.Table:
        """Return made rows."""
        return pa.table(dict(self.make(ids, first)))


def times(ids: NDArray[np.int64], first: int) -> pa.Array:
    """Return the event times of records, by their numbers."""
    numbers = np.arange(first, first + len(ids), dtype=np.int64)
    return pa.array(START_US + STEP_US * numbers, pa.timestamp("us", "UTC"))


def names(prefix: str, ids: NDArray[np.int64]) -> pa.Array:
    """Return a text for each id.

    Examples
    --------
    >>> names("word", np.array([3, 1])).to_pylist()
    ['word3', 'word1']
    """
    distinct, at = np.unique(ids, return_inverse=True)
    return pa.array([f"{prefix}{n}" for n in distinct.tolist()]).take(pa.array(at.ravel()))
