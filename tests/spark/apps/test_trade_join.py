"""The pairs of purchases and sales equal those of a SQL query in another database."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from spark.apps.streamed import streamed, tables
from unskew.apps.trade_join import TRADE_JOIN
from unskew.workloads import Zipf

SQL = """
SELECT b.symbol, b.us, s.us, b.trader, b.size, s.size FROM trades b
JOIN trades s ON b.symbol = s.symbol AND b.trader = s.trader AND abs(b.us - s.us) <= 500000
WHERE b.side = 'buy' AND s.side = 'sell'
"""


@pytest.mark.parametrize("scheme", ["key", "w-choices", "mixed"])
def test_equals_sql(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    ids = np.concatenate([*Zipf(1.2, 50, 3000, seed=1).ids(3000)])
    batches = tables(TRADE_JOIN, ids, 3)
    found = streamed(spark, TRADE_JOIN, batches, tmp_path, scheme, seconds=0.5)
    trades = pa.concat_tables(batches).to_pandas()
    trades["us"] = trades.pop("ts").astype("datetime64[us, UTC]").astype("int64")
    with sqlite3.connect(":memory:") as database:
        trades.to_sql("trades", database, index=False)
        expected = database.execute(SQL).fetchall()
    times = (found[name].astype("datetime64[us]").astype("int64") for name in ("buy_ts", "sell_ts"))
    pairs = zip(found.symbol, *times, found.buyer, found.buy_size, found.sell_size, strict=True)
    assert len(expected) > 100
    assert sorted(pairs) == sorted(expected)
