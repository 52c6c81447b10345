"""The most frequent words of each period are those that Python's Counter finds."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark.apps.streamed import SCHEMES, streamed, tables
from unskew.apps.word_count import WORD_COUNT
from unskew.workloads import EvolvingZipf


@pytest.mark.parametrize(("scheme", "mode"), SCHEMES)
def test_equals_counter(spark: SparkSession, tmp_path: Path, scheme: str, mode: str) -> None:
    ids = np.concatenate([*EvolvingZipf(1.2, 300, 6000, seed=1).ids(6000)])
    batches = tables(WORD_COUNT, ids, 3)
    found = streamed(
        spark, WORD_COUNT, batches, tmp_path, scheme, mode, k=5, period="1500 milliseconds"
    )
    words = pa.concat_tables(batches).column("word").to_pylist()
    assert len(found) == 3  # the last period is not over yet
    for i, top in enumerate(
        found.sort_values("window", key=lambda w: w.map(itemgetter("start"))).top
    ):
        counts = Counter(words[1500 * i : 1500 * (i + 1)])
        ranked = sorted(((n, word) for word, n in counts.items()), reverse=True)
        assert [(row["n"], row["word"]) for row in top] == ranked[:5]
