"""Revenues equal those of TPC-H's own query in SQLite over all rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark.apps.streamed import streamed, tables
from unskew.apps.base import START_US
from unskew.apps.tpch_q5 import TPCH_Q5
from unskew.apps.tpch_tables import NUMBERS, SEASON_S, static_tables
from unskew.spark.joins import Times
from unskew.spark.plans.schedule import BEGIN, Schedule, Term
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan
from unskew.spark.routing.planned import plan_key
from unskew.spark.runtime.checkpoint import PARTITIONS
from unskew.spark.runtime.places import operator_name
from unskew.workloads import Zipf

# Money is in cents and discounts in percent, because SQLite has no decimals.
Q5 = """
SELECT o.ts / 1000000 AS second, n_name, sum(l.extendedprice * (100 - l.discount)) AS revenue
FROM events o, events l, customer, supplier, nation, region
WHERE o.kind = 'order' AND l.kind = 'line' AND o.orderkey = l.orderkey
  AND l.ts BETWEEN o.ts AND o.ts + 2000000
  AND o.custkey = c_custkey AND l.suppkey = s_suppkey AND c_nationkey = s_nationkey
  AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
GROUP BY second, n_name
"""
IDS = np.concatenate([*Zipf(1.3, 500, 9000, seed=5).ids(9000)])
VERSION = 1

Revenues = dict[tuple[int, str], Decimal]


def by_sqlite(events: pa.Table) -> Revenues:
    base = sqlite3.connect(":memory:")
    cents = events.to_pandas()
    cents["ts"] = events["ts"].cast(pa.int64()).to_numpy()
    for name in ("extendedprice", "discount"):
        cents[name] = (events[name].cast(pa.float64()).to_numpy() * 100).round()
    frames = {name: table.to_pandas() for name, table in static_tables().items()}
    for name, frame in (frames | {"events": cents}).items():
        frame.to_sql(name, base, index=False)
    base.execute("CREATE INDEX lines ON events (orderkey, ts)")
    found = base.execute(Q5).fetchall()
    base.close()
    return {(second, nation): Decimal(int(n)).scaleb(-4) for second, nation, n in found}


@pytest.fixture
def workers(spark: SparkSession) -> Iterator[int]:
    """Use few workers, because a join keeps four state stores on each."""
    before = spark.conf.get(PARTITIONS) or "200"
    spark.conf.set(PARTITIONS, 4)
    yield 4
    spark.conf.set(PARTITIONS, before)


def split_hottest(spark: SparkSession, checkpoint: Path, workers: int) -> Schedule:
    """Save a plan for the hottest order from the first row on, as if made by an earlier batch."""
    times = Times("ordered", "sold", timedelta(0), timedelta(seconds=SEASON_S))
    place = operator_name("join", "inner", "right", times, "orderkey")
    root = f"{checkpoint}/unskew/router/{place}"
    key = spark.range(1, 2).select(plan_key([F.col("id")]).alias("key")).toArrow()["key"][0].as_py()
    pairs = [(key % 2**64, worker) for worker in range(workers)]
    PlanFolder(f"{root}/plans").save(SplitPlan.of(workers, pairs, VERSION, "test"))
    return Schedule(root, 0)


@pytest.mark.parametrize("scheme", ["key", "w-choices"])
def test_equals_sqlite(spark: SparkSession, tmp_path: Path, workers: int, scheme: str) -> None:
    batches = tables(TPCH_Q5, IDS, 3)
    # A window with two results would be noticed.
    app = replace(TPCH_Q5, keys=(*TPCH_Q5.keys, "revenue"))
    schedule = split_hottest(spark, tmp_path / "checkpoint", workers) if scheme != "key" else None
    found = streamed(spark, app, batches, tmp_path, scheme, "planned", window="1 second")
    seconds = [int(window["start"].timestamp()) for window in found.window]
    revenues = dict(zip(zip(seconds, found.nation, strict=True), found.revenue, strict=True))
    assert len(revenues) == len(found)
    closed = max(seconds)
    assert closed - START_US // 10**6 >= 4
    expected = by_sqlite(pa.concat_tables(batches))
    assert revenues == {key: revenue for key, revenue in expected.items() if key[0] <= closed}
    if schedule is not None:
        assert Term(VERSION, BEGIN) in schedule.terms(0, VERSION), "the plan was not used"


def test_hot_orders_have_most_lines() -> None:
    events = TPCH_Q5.table(IDS).to_pandas()
    lines, orders = (events[events.kind == kind] for kind in ("line", "order"))
    assert len(lines) == 4 * len(orders)
    assert (lines.orderkey == 1).mean() > 0.25
    assert orders.orderkey[:NUMBERS].is_unique
