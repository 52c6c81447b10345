"""The default scheme for each operator, for balancers without a scheme, and the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

SPLIT, WHOLE, LEFT = "waterline", "mixed", "key"
"""Schemes that split hot keys, move whole keys with their state, and leave routing to Spark."""

_COMBINED = """
any any_value approx_count_distinct avg bit_and bit_or bit_xor bool_and bool_or corr count count_if
covar_pop covar_samp every first kurtosis last max max_by mean min min_by product regr_count
skewness some std stddev stddev_pop stddev_samp sum try_avg try_sum var_pop var_samp variance
"""
COMBINED = frozenset(_COMBINED.split())
"""Aggregates that Spark combines before its shuffle, to a row of fixed size for each key."""
FUNCTIONS = frozenset({"abs", "cast", "coalesce", "if", "length", "lit", "round", "struct", "when"})
"""Functions of a single row that are often used inside aggregates."""


@dataclass(frozen=True)
class Decision:
    """The scheme that was chosen for an operator.

    Parameters
    ----------
    operator
        The operator that the user called, as in ``groupBy(user).agg``.
    scheme, routing
        The scheme, and how rows are routed by it.
    reason
        The reason for the choice.
    """

    operator: str
    scheme: str
    routing: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operator}: {self.scheme}, {self.routing}: {self.reason}"


def for_aggregates(aggregates: Iterable[object]) -> tuple[str, str]:
    """Return a scheme for aggregates, and the reason.

    Examples
    --------
    >>> for_aggregates(["Column<'count(1) AS n'>"])[0], for_aggregates(["collect_list(x)"])[0]
    ('key', 'waterline')
    """
    names = {name for text in aggregates for name in re.findall(r"(\w+)\(", str(text))}
    uncombined = sorted(names - COMBINED - FUNCTIONS)
    if names and not uncombined:
        return LEFT, "Spark combines the rows of a key before its shuffle, so no task gets them all"
    what = ", ".join(uncombined) or "an aggregate"
    return SPLIT, f"{what} may keep all values of a key: hot keys are split, and their parts merged"


def for_keys_with_state() -> tuple[str, str]:
    """Return a scheme for functions that need all rows of a key, and the reason."""
    return WHOLE, "a function needs all rows of a key: keys stay whole, and move when it pays"


def for_split_rows(operator: str) -> tuple[str, str]:
    """Return a scheme for an operator that can split the rows of a key, and the reason."""
    return SPLIT, f"{operator} can be split: hot keys go to several workers"
