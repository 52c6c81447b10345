"""TPC-H's query 5 as a stream: the revenue of suppliers in their own country, by window."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.apps.base import App
from unskew.apps.tpch_tables import SEASON_S, make_events, static_tables
from unskew.spark import Balancer

EVENTS = (
    "kind string, ts timestamp, orderkey bigint, custkey bigint, suppkey bigint, "
    "extendedprice decimal(15, 2), discount decimal(15, 2)"
)


def tpch_q5(
    events: DataFrame,
    balance: Balancer,
    *,
    region: str = "ASIA",
    window: str = "10 seconds",
    within_s: float = SEASON_S,
) -> DataFrame:
    """Return the revenue of each nation of a region, from customers and suppliers both in it.

    Windows are by the times of orders, whose lines follow within some seconds. A few orders have
    most of the lines, so the lines are split over workers.
    """
    timely = events.withWatermark("ts", "0 seconds")
    orders = timely.where("kind = 'order'").selectExpr("orderkey", "custkey", "ts AS ordered")
    lines = timely.where("kind = 'line'").selectExpr(
        "orderkey", "suppkey", "extendedprice * (1 - discount) AS paid", "ts AS sold"
    )
    near = (timedelta(0), timedelta(seconds=within_s))
    joined = balance.join(
        orders, lines, "orderkey", split="right", times=("ordered", "sold"), within=near
    ).drop("sold")
    static = {
        name: F.broadcast(events.sparkSession.createDataFrame(table))
        for name, table in static_tables().items()
    }
    local = (
        joined.join(static["customer"], F.expr("custkey = c_custkey"))
        .join(static["supplier"], F.expr("suppkey = s_suppkey AND c_nationkey = s_nationkey"))
        .join(static["nation"], F.expr("s_nationkey = n_nationkey"))
        .join(static["region"], F.expr("n_regionkey = r_regionkey"))
        .where(F.col("r_name") == region)
        .withColumnRenamed("n_name", "nation")
    )
    nations = replace(balance, name="nations").groupBy(local, F.window("ordered", window), "nation")
    return nations.agg(F.sum("paid").alias("revenue"))


TPCH_Q5 = App("tpch-q5", EVENTS, make_events, tpch_q5, ("window", "nation"), "append")
