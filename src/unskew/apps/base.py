"""The description of an application: rows, and a query that a balancer keeps balanced."""

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
"""Generated records are a millisecond apart, from the start of 2026."""


class Learner(Protocol):
    """A model that learns from a stream, one micro-batch after the other."""

    def learn(self, batch: DataFrame, number: int, balance: Balancer) -> DataFrame:
        """Learn from the rows of the batch with this number, and return the model so far."""
        ...


@dataclass(frozen=True)
class App:
    """A streaming job over keyed rows.

    Parameters
    ----------
    name
        The name on the command line.
    schema
        The columns of its rows, in Spark's notation.
    make
        Generates the columns of rows from the ids of their keys and the number of the first record.
        The same ids and numbers give the same rows.
    query
        Takes the rows and a balancer, and returns the result; its options are keyword-only. With
        ``learns``, it takes only the options and returns a `Learner`.
    keys
        The columns that identify a row of the result.
    mode
        The output mode of the result: ``update`` or ``append``.
    learns
        Whether the query is a learner, which takes one micro-batch after the other.
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
        """The first line of the query's docstring."""
        return (inspect.getdoc(self.query) or "").partition("\n")[0]

    @property
    def options(self) -> dict[str, str]:
        """The names of its options, with their types as they are written."""
        parameters = inspect.signature(self.query).parameters.values()
        return {p.name: str(p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY}

    def table(self, ids: NDArray[np.int64], first: int = 0) -> pa.Table:
        """Return generated rows."""
        return pa.table(dict(self.make(ids, first)))


def times(ids: NDArray[np.int64], first: int) -> pa.Array:
    """Return the event times of records, which depend on their numbers."""
    numbers = np.arange(first, first + len(ids), dtype=np.int64)
    return pa.array(START_US + STEP_US * numbers, pa.timestamp("us", "UTC"))


def names(prefix: str, ids: NDArray[np.int64]) -> pa.Array:
    """Return a text for each id.

    Examples
    --------
    >>> names("word", np.array([3, 1])).to_pylist()
    ['word3', 'word1']
    """
    distinct, index = np.unique(ids, return_inverse=True)
    return pa.array([f"{prefix}{n}" for n in distinct.tolist()]).take(pa.array(index.ravel()))
