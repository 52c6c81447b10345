"""The running volume-weighted average price of every symbol."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.apps.base import App, names, times
from unskew.spark import Balancer


def vwap(trades: DataFrame, balance: Balancer) -> DataFrame:
    """Return volume-weighted average prices: the money paid for a symbol over its volume."""
    traded = trades.withColumn("paid", F.col("price") * F.col("size"))
    totals = balance.groupBy(traded, "symbol").agg(
        F.sum("paid").alias("paid"), F.sum("size").alias("volume")
    )
    return totals.withColumn("vwap", F.col("paid") / F.col("volume"))


def make_trades(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Return generated trades, with prices around the usual price of their symbol."""
    rng = np.random.default_rng([1, first])
    return {
        "symbol": names("S", ids),
        "ts": times(ids, first),
        "price": np.round(10 + ids % 90 + rng.normal(0, 0.5, len(ids)), 2),
        "size": 100 * rng.geometric(0.3, len(ids)),
    }


VWAP = App(
    "vwap", "symbol string, ts timestamp, price double, size bigint", make_trades, vwap, ("symbol",)
)
