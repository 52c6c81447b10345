"""A pandas function that needs all rows of a user."""

from __future__ import annotations

import pandas as pd
from events import clicks, session

from unskew.spark import Balancer


def longest_pause(clicks: pd.DataFrame) -> pd.DataFrame:
    """Return the longest time between two clicks of a user."""
    pause = clicks["time"].sort_values().diff().max().total_seconds()
    return pd.DataFrame({"user": [clicks["user"].iloc[0]], "pause_s": [pause]})


spark = session()
events = clicks(spark)

plain = events.groupBy("user").applyInPandas(longest_pause, "user string, pause_s double")

balance = Balancer()
balanced = balance.groupBy(events, "user").applyInPandas(
    longest_pause, "user string, pause_s double"
)

same = sorted(plain.collect()) == sorted(balanced.collect())
print("the same result" if same else "another result")
