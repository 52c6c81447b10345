"""Names of hidden columns, chosen so that they differ from all columns of the user."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame

PREFIX = "__unskew_"


@dataclass(frozen=True)
class Names:
    """Returns names of hidden columns that are free in some DataFrames, whatever their case.

    Parameters
    ----------
    tag
        The suffix of all names; empty, unless the user has columns with the prefix of ours.

    Examples
    --------
    >>> Names()("slot"), Names("_2")("slot")
    ('__unskew_slot', '__unskew_slot_2')
    """

    tag: str = ""

    @classmethod
    def free_in(cls, *dfs: DataFrame, taken: Iterable[str] = ()) -> Names:
        """Return names that differ from all columns of these DataFrames, and from ``taken``."""
        return cls.of([*taken, *(column for df in dfs for column in df.columns)])

    @classmethod
    def of(cls, known: Iterable[str]) -> Names:
        """Return names that differ from all known ones."""
        ours = {name.casefold() for name in known if name.casefold().startswith(PREFIX)}
        if not ours:
            return cls()
        tags = (f"_{n}" for n in range(2, len(ours) + 3))
        return cls(next(tag for tag in tags if not any(name.endswith(tag) for name in ours)))

    def __call__(self, what: str) -> str:
        """Return the name of the hidden column for a purpose."""
        return f"{PREFIX}{what}{self.tag}"


def quoted(name: str) -> str:
    """Return a column's name in backticks, so that Spark reads it literally.

    Examples
    --------
    >>> quoted("a.b`c")
    '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"
