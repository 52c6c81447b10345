"""The most frequent words of every period: the application of the papers on two choices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.apps.base import App, names, times
from unskew.spark import Balancer


def word_count(
    words: DataFrame, balance: Balancer, *, k: int = 10, period: str = "10 seconds"
) -> DataFrame:
    """Return the k most frequent words of every period; ties go to the last words by name.

    Workers count the words that they receive, and emit their counts at the end of a period.
    """
    timely = words.withWatermark("ts", "0 seconds")
    counts = balance.groupBy(timely, F.window("ts", period), "word").agg(F.count("*").alias("n"))
    ranked = F.sort_array(F.collect_list(F.struct("n", "word")), asc=False)
    return counts.groupBy("window").agg(F.slice(ranked, 1, k).alias("top"))


def make_words(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Return generated words."""
    return {"word": names("word", ids), "ts": times(ids, first)}


WORD_COUNT = App(
    "word-count", "word string, ts timestamp", make_words, word_count, ("window",), "append"
)
