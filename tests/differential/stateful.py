"""A function with state for each key, plain or balanced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd

OUTPUT = "`{}` string, n bigint, total bigint"
STATE = "n bigint, total bigint"
Function = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]


def adding(key_name: str, column: str) -> Function:
    """Return a function that counts rows and sums a column; the order of rows does not matter."""

    def add(
        key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        import pandas

        n, total = state.get if state.exists else (0, 0)
        for chunk in chunks:
            n, total = n + len(chunk), total + int(chunk[column].fillna(0).sum())
        state.update((n, total))
        yield pandas.DataFrame({key_name: [key[0]], "n": [n], "total": [total]})

    return add
