"""Traders who buy and sell the same symbol within a short time: a join of trades with trades."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.apps.base import App, names, times
from unskew.spark import Balancer


def trade_join(trades: DataFrame, balance: Balancer, *, seconds: float = 5.0) -> DataFrame:
    """Return the purchases and sales of one symbol by one trader, at most some seconds apart.

    Trades are joined by their symbol, so those of a hot symbol pile up on its worker. The window is
    a sliding one.
    """
    timely = trades.withWatermark("ts", "0 seconds")
    sides = {
        side: timely.where(F.col("side") == side).select(
            "symbol",
            F.col("ts").alias(f"{side}_ts"),
            F.col("trader").alias(f"{side}er"),
            F.col("size").alias(f"{side}_size"),
        )
        for side in ("buy", "sell")
    }
    near = timedelta(seconds=seconds)
    pairs = balance.join(
        sides["buy"],
        sides["sell"],
        "symbol",
        times=("buy_ts", "sell_ts"),
        within=(-near, near),
    )
    return pairs.where("buyer = seller").drop("seller")


def make_trades(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Return generated trades of two hundred traders, half of them purchases."""
    rng = np.random.default_rng([4, first])
    return {
        "symbol": names("S", ids),
        "ts": times(ids, first),
        "trader": rng.integers(0, 200, len(ids)),
        "side": pa.array(["buy", "sell"]).take(pa.array(rng.integers(0, 2, len(ids)))),
        "size": 100 * rng.geometric(0.3, len(ids)),
    }


TRADE_JOIN = App(
    "trade-join",
    "symbol string, ts timestamp, trader bigint, side string, size bigint",
    make_trades,
    trade_join,
    ("symbol", "buy_ts", "sell_ts"),
    "append",
)
