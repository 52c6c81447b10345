"""Prices equal those that pandas computes from all trades."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark.apps.streamed import SCHEMES, streamed, tables
from unskew.apps.vwap import VWAP
from unskew.workloads import Zipf


@pytest.mark.parametrize(("scheme", "mode"), SCHEMES)
def test_equals_pandas(spark: SparkSession, tmp_path: Path, scheme: str, mode: str) -> None:
    ids = np.concatenate([*Zipf(1.5, 200, 6000, seed=1).ids(6000)])
    batches = tables(VWAP, ids, 3)
    found = streamed(spark, VWAP, batches, tmp_path, scheme, mode).set_index("symbol")
    trades = pa.concat_tables(batches).to_pandas()
    trades["paid"] = trades.price * trades["size"]
    totals = trades.groupby("symbol")[["paid", "size"]].sum()
    assert len(found) == len(totals)
    assert (found.volume[totals.index] == totals["size"]).all()
    pd.testing.assert_series_equal(
        found.vwap[totals.index], totals.paid / totals["size"], check_names=False, rtol=1e-12
    )
