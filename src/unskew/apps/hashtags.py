"""Running statistics of every hashtag."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.apps.base import App, names, times
from unskew.spark import Balancer


def hashtags(uses: DataFrame, balance: Balancer) -> DataFrame:
    """Return the uses of each tag, about how many people used it, and its first and last use."""
    return balance.groupBy(uses, "tag").agg(
        F.count("*").alias("uses"),
        F.approx_count_distinct("person").alias("people"),
        F.min("ts").alias("first"),
        F.max("ts").alias("last"),
    )


def make_uses(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Return generated uses of tags, by people of whom some use many tags."""
    rng = np.random.default_rng([2, first])
    people = np.minimum(rng.zipf(1.5, len(ids)), 10_000)
    return {"tag": names("#", ids), "ts": times(ids, first), "person": people}


HASHTAGS = App("hashtags", "tag string, ts timestamp, person bigint", make_uses, hashtags, ("tag",))
