"""Heavy hitters: none is missing, true counts lie within the bounds, and these are narrow."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark.apps.streamed import streamed, tables
from unskew.apps.by_worker import PossibleWorkers, by_worker
from unskew.apps.heavy_hitters import HEAVY_HITTERS
from unskew.spark import Balancer
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan
from unskew.spark.routing.planned import plan_key
from unskew.spark.runtime.places import operator_name
from unskew.workloads import Zipf

WORKERS, SHARE, COUNTERS, BATCHES = 8, 0.005, 40, 2
IDS = np.concatenate([*Zipf(1.1, 1000, 9000, seed=3).ids(9000)])
TRUE = pd.Series([f"item{i}" for i in IDS]).value_counts()
SCHEMES = {"key": "planned", "pkg": "online", "shuffle": "planned", "w-choices": "planned"}

Found = Callable[[str], tuple[Any, pd.DataFrame]]


def split_hottest(spark: SparkSession, checkpoint: Path) -> None:
    """Save a plan that splits the hottest item from the first batch on."""
    hottest = spark.sql("SELECT 'item1' AS item").select(plan_key([F.col("item")]).alias("key"))
    key = hottest.toArrow()["key"][0].as_py() % 2**64
    plan = SplitPlan.of(WORKERS, [(key, worker) for worker in range(WORKERS)], 1, "test")
    place = operator_name("route", "item")
    PlanFolder(f"{checkpoint}/unskew/router/{place}/plans").save(plan)


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """Run the application once for each scheme; return the last row and its items."""

    @cache
    def run(scheme: str) -> tuple[Any, pd.DataFrame]:
        folder, batches = tmp_path_factory.mktemp("hitters"), tables(HEAVY_HITTERS, IDS, BATCHES)
        if scheme == "w-choices":
            split_hottest(spark, folder / "checkpoint")
        options = {"share": SHARE, "counters": COUNTERS}
        mode = SCHEMES[scheme]
        rows = streamed(spark, HEAVY_HITTERS, batches, folder, scheme, mode, **options)
        assert rows.records.tolist() == np.cumsum([len(batch) for batch in batches]).tolist()
        last = rows.iloc[-1]
        return last, pd.DataFrame([*last["items"]]).set_index("item").assign(true=TRUE)

    return run


@pytest.mark.parametrize("scheme", SCHEMES)
def test_counts_are_within_bounds(found: Found, scheme: str) -> None:
    row, items = found(scheme)
    assert sum(row.loads) == len(IDS)
    assert len(items) >= 20
    assert (items.lower <= items.true).all()
    assert (items.true <= items.upper).all()
    assert (items.upper >= SHARE * len(IDS)).all()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_none_is_missing(found: Found, scheme: str) -> None:
    row, items = found(scheme)
    missing = TRUE.drop(items.index)
    assert missing.max() <= max(SHARE * len(IDS), row.unlisted)
    if scheme in ("key", "pkg"):
        assert row.unlisted < SHARE * len(IDS), "too few counters for this test"


@pytest.mark.parametrize(("scheme", "workers"), [("key", 1), ("pkg", 2), ("shuffle", WORKERS)])
def test_errors_are_below_records_over_counters(found: Found, scheme: str, workers: int) -> None:
    row, items = found(scheme)
    assert (items.workers.map(len) == workers).all()
    limit = items.workers.map(lambda at: sum(row.loads[worker] for worker in at) / COUNTERS)
    assert (items.upper - items.lower <= limit).all()
    assert row.unlisted <= sum(sorted(row.loads)[-workers:]) / COUNTERS


def test_two_workers_leave_less_open_than_all(found: Found) -> None:
    """The bounds with two choices are far narrower than with shuffling, and loads are even too."""
    two, all_of_them = found("pkg")[1], found("shuffle")[1]
    both = two.index.intersection(all_of_them.index)
    narrow, wide = ((of.upper - of.lower)[both].mean() for of in (two, all_of_them))
    assert 0 < 2 * narrow < wide
    assert max(found("pkg")[0].loads) < 0.7 * max(found("key")[0].loads)


def test_plans_split_what_is_hot(found: Found) -> None:
    """A hot item was on several workers, other items only on their home."""
    spread = found("w-choices")[1].workers.map(len)
    assert spread["item1"] == WORKERS
    assert spread.min() == 1


@pytest.mark.parametrize("scheme", ["key", "shuffle", "pkg"])
def test_groups_run_on_their_worker(spark: SparkSession, scheme: str) -> None:
    rows = spark.createDataFrame(HEAVY_HITTERS.table(IDS[:500]))
    groups = by_worker(rows, Balancer(scheme), "item").groupBy("worker", "slot").count()
    placed = groups.withColumn("partition", F.spark_partition_id()).toArrow().to_pandas()
    assert sorted(placed.worker) == [*range(WORKERS)]
    assert (placed.worker == placed.partition).all()
    assert placed["count"].sum() == 500


def test_plans_name_the_keys_that_are_elsewhere() -> None:
    keys, away = np.array([5, 6], np.uint64), [np.empty(0, np.uint64)] * 3
    reach = PossibleWorkers("mixed", planned=True, n_workers=3)
    home = reach.workers(keys, away)
    assert home.sum(axis=1).tolist() == [1, 1]
    away[int(np.argmin(home[1]))] = keys[1:]
    assert reach.workers(keys, away).sum(axis=1).tolist() == [1, 2]


@pytest.mark.parametrize(("scheme", "planned"), [("shuffle", True), ("w-choices", False)])
def test_what_may_be_anywhere_is_taken_to_be(scheme: str, planned: bool) -> None:
    away = [np.empty(0, np.uint64)] * 3
    assert PossibleWorkers(scheme, planned, 3).workers(np.array([5, 6], np.uint64), away).all()
