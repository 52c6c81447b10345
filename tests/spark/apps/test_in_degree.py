"""Degrees are exact even though the sources are skewed too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from spark.apps.streamed import SCHEMES, streamed, tables
from unskew.apps.in_degree import IN_DEGREE
from unskew.workloads import Zipf


@pytest.mark.parametrize(("scheme", "mode"), SCHEMES[1:])
def test_equals_bincount(spark: SparkSession, tmp_path: Path, scheme: str, mode: str) -> None:
    ids = np.concatenate([*Zipf(1.3, 400, 4000, seed=1).ids(4000)])
    found = streamed(spark, IN_DEGREE, tables(IN_DEGREE, ids, 2), tmp_path, scheme, mode)
    degrees = np.bincount(found.dst, found.degree)
    np.testing.assert_array_equal(degrees, np.bincount(ids)[: len(degrees)])
    assert degrees.sum() == len(ids)
