"""A function with state: the clicks of each user so far. Keys move with their state if it pays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from events import new_checkpoint, results, session, stream
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from unskew.spark import Balancer


def count(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: GroupState
) -> Iterator[pd.DataFrame]:
    """Count the clicks of a user."""
    n = (state.get[0] if state.exists else 0) + sum(len(chunk) for chunk in chunks)
    state.update((n,))
    yield pd.DataFrame({"user": [key[0]], "n": [n]})


spark = session()
events = stream(spark)
output, state = "user string, n bigint", "n bigint"

plain = events.groupBy("user").applyInPandasWithState(
    count, output, state, "update", GroupStateTimeout.NoTimeout
)

checkpoint = new_checkpoint()
balance = Balancer(checkpoint=checkpoint)
balanced = balance.groupBy(events, "user").applyInPandasWithState(
    count, output, state, "update", GroupStateTimeout.NoTimeout
)

same = results(plain, new_checkpoint(), "update") == results(balanced, checkpoint, "update")
print("the same result" if same else "another result")
