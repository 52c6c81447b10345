"""Names of hidden columns, chosen so that they meet no column of the user's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import DataFrame

PREFIX = "__unskew_"


@dataclass(frozen=True)
class Names:
    """Makes names of hidden columns that are free in some DataFrames, however case is resolved.

    Parameters
    ----------
    tag
        What all of them end with; nothing, unless the user has columns that begin as ours do.

    Examples
    --------
    >>> Names()("slot"), Names("_2")("slot")
    ('__unskew_slot', '__unskew_slot_2')
    """

    tag: str = ""

    @classmethod
    def free_in(cls, *dfs: DataFrame, taken: Iterable[str] = ()) -> Names:
        """Return names that no column of these has, and that are not taken otherwise."""
        return cls.of([*taken, *(column for df in dfs for column in df.columns)])

    @classmethod
    def of(cls, known: Iterable[str]) -> Names:
        """Return names that are none of these."""
        ours = {name.casefold() for name in known if name.casefold().startswith(PREFIX)}
        if not ours:
            return cls()
        tags = (f"_{n}" for n in range(2, len(ours) + 3))
        return cls(next(tag for tag in tags if not any(name.endswith(tag) for name in ours)))

    def __call__(self, what: str) -> str:
        """Return the name of the hidden column for this."""
        return f"{PREFIX}{what}{self.tag}"


def quoted(name: str) -> str:
    """Return a column's name so that Spark takes it as it is, whatever characters it has.

    Examples
    --------
    >>> quoted("a.b`c")
    '`a.b``c`'
    """
    return "`" + name.replace("`", "``") + "`"
