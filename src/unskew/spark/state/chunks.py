"""The rows of a key as a stateful operator gets them: the user's columns and two hidden ones.

Spark's Python worker converts the columns of each key's rows to pandas one by one, joins them by
``pd.concat``, and passes the operator a generator of the results. Slicing the hidden columns off
afterwards would make operators over many keys with few rows a third slower. So they are removed
before the join, from the iterator that this generator reads. If the generator is not the one of
PySpark 4.1 and 4.3, they are sliced off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import chain
from types import CodeType, GeneratorType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

N_HIDDEN = 2
"""How many hidden columns an operator's rows end with: the orders and the slot."""


class Rows(NamedTuple):
    """The rows of a key in a micro-batch.

    Parameters
    ----------
    orders
        The text of the key's orders, the same in all its rows.
    names
        The names of the user's columns.
    chunks
        The rows, with the user's columns only.
    """

    orders: str
    names: list[Any]
    chunks: Iterator[pd.DataFrame]

    @classmethod
    def split(cls, chunks: Iterator[pd.DataFrame]) -> Rows:
        """Return the rows of an operator's input, split into orders and user columns."""
        columns = unjoined(chunks)
        if columns is None:
            first = next(chunks)
            # By position: Spark renames columns that begin with an underscore.
            orders, names = first.iat[0, -N_HIDDEN], first.columns[:-N_HIDDEN]
            return cls(orders, [*names], user_columns(chain([first], chunks)))
        head = next(columns)
        names = [column.name for column in head[:-N_HIDDEN]]
        frames = (joined(part[:-N_HIDDEN]) for part in chain([head], columns))
        return cls(head[-N_HIDDEN].array[0], names, frames)

    def empty(self) -> Iterator[pd.DataFrame]:
        """Return the empty rows that Spark passes to a function when a key has timed out."""
        return iter([pd.DataFrame(columns=self.names)])


def user_columns(chunks: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Return rows without the hidden columns."""
    return (chunk.iloc[:, :-N_HIDDEN] for chunk in chunks)


def unjoined(chunks: Iterator[pd.DataFrame]) -> Iterator[list[pd.Series]] | None:
    """Return the columns that Spark's worker is about to join; None if its generator is unknown.

    Examples
    --------
    >>> columns = iter([[pd.Series([1], name="a"), pd.Series([2], name="b")]])
    >>> unjoined(pd.concat(x, axis=1) for x in columns) is columns
    True
    >>> unjoined(iter([])) is None
    True
    """
    if not isinstance(chunks, GeneratorType) or chunks.gi_frame is None:
        return None
    if not _joins_columns(chunks.gi_code):
        return None
    source = chunks.gi_frame.f_locals.get(".0")
    return source if isinstance(source, Iterator) else None


@cache
def _joins_columns(code: CodeType) -> bool:
    """Return whether a generator does nothing but ``pd.concat`` of what it reads."""
    return code.co_name == "<genexpr>" and {*code.co_names} | {"pd"} == {"pd", "concat"}


def joined(columns: list[pd.Series]) -> pd.DataFrame:
    """Return the result of ``pd.concat(columns, axis=1)``, in a sixth of the time."""
    names = tuple([column.name for column in columns])
    if len({*names}) < len(names):
        return pd.concat(columns, axis=1)
    # pandas copies columns of NumPy's types into its blocks, and no others.
    arrays = [
        column.array if isinstance(column.dtype, np.dtype) else column.array.copy()
        for column in columns
    ]
    make = getattr(pd.DataFrame, "_from_arrays", None)  # what pandas itself uses
    if make is None:
        return pd.DataFrame(dict(zip(names, arrays, strict=True)), columns[0].index)
    # A copy, as users may write to it.
    columns_index = _index(names).copy(deep=True)
    return make(arrays, columns_index, columns[0].index, verify_integrity=False)


@cache
def _index(names: tuple[Any, ...]) -> pd.Index:
    return pd.Index(names)
