"""Statistics of every hashtag, as they are now."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.apps.base import App, names, times
from unskew.spark import Balancer


def hashtags(uses: DataFrame, balance: Balancer) -> DataFrame:
    """Return how often each tag was used, by about how many people, and first and last when."""
    return balance.groupBy(uses, "tag").agg(
        F.count("*").alias("uses"),
        F.approx_count_distinct("person").alias("people"),
        F.min("ts").alias("first"),
        F.max("ts").alias("last"),
    )


def make_uses(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Make uses of tags, by people of whom some use many."""
    rng = np.random.default_rng([2, first])
    people = np.minimum(rng.zipf(1.5, len(ids)), 10_000)
    return {"tag": names("#", ids), "ts": times(ids, first), "person": people}


HASHTAGS = App("hashtags", "tag string, ts timestamp, person bigint", make_uses, hashtags, ("tag",))
