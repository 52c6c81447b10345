"""The rows of a key as a stateful operator gets them: the user's columns, and two of ours.

Spark's Python worker converts the columns of each key's rows to pandas one by one, puts them
together by ``pd.concat``, and hands the operator a generator of the results. To cut our columns off
again would make operators over many keys of few rows a third slower. So they are taken before the
columns are put together, out of what that generator reads; where it does not look as it did in
PySpark 4.1 and 4.3, they are cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from types import GeneratorType
from typing import Any, NamedTuple

import pandas as pd

OURS = 2
"""The last columns of the rows that an operator is given: orders and the slot."""


class Rows(NamedTuple):
    """The rows of a key in a micro-batch.

    Parameters
    ----------
    orders
        What to do with the key, the same in all its rows.
    names
        Of the user's columns.
    chunks
        The user's columns of the rows.
    """

    orders: str
    names: list[Any]
    chunks: Iterator[pd.DataFrame]

    @classmethod
    def split(cls, chunks: Iterator[pd.DataFrame]) -> Rows:
        """Take rows apart that an operator is given."""
        columns = unjoined(chunks)
        if columns is None:
            first = next(chunks)
            # By position: Spark renames columns that begin with an underscore.
            orders, names = first.iat[0, -OURS], first.columns[:-OURS]
            return cls(orders, [*names], users(chain([first], chunks)))
        head = next(columns)
        names = [column.name for column in head[:-OURS]]
        rest = (joined(some[:-OURS]) for some in chain([head], columns))
        return cls(head[-OURS].array[0], names, rest)

    def none(self) -> Iterator[pd.DataFrame]:
        """Return what Spark hands to a function for a key that has timed out."""
        return iter([pd.DataFrame(columns=self.names)])


def users(chunks: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Return the user's columns of rows."""
    return (chunk.iloc[:, :-OURS] for chunk in chunks)


def unjoined(chunks: Iterator[pd.DataFrame]) -> Iterator[list[pd.Series]] | None:
    """Return the columns that Spark's worker is about to put together; None if it is unknown.

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
    code, source = chunks.gi_code, chunks.gi_frame.f_locals.get(".0")
    known = code.co_name == "<genexpr>" and {*code.co_names} | {"pd"} == {"pd", "concat"}
    return source if known and isinstance(source, Iterator) else None


def joined(columns: list[pd.Series]) -> pd.DataFrame:
    """Return columns put together as by ``pd.concat(columns, axis=1)``, in half the time."""
    by_name = {column.name: column.array for column in columns}
    if len(by_name) < len(columns):
        return pd.concat(columns, axis=1)
    return pd.DataFrame(by_name, index=columns[0].index)
