"""Planned routing: plans from measurements, and streams that follow them."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.hashing import Keys
from unskew.plan import Plan
from unskew.planners import read_planners
from unskew.routers import TableRouter, read_schemes
from unskew.spark import SLOT, Balancer
from unskew.spark.control.hot_keys import KeyFrequencies, PlannerStrategy, RouterStrategy
from unskew.spark.control.observed import BatchObservation
from unskew.spark.control.planning import KeyHistory
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan
from unskew.workloads import Zipf

N = 16


def measured(z: float, keys: int = 1000) -> KeyFrequencies:
    """Return the shares of Zipf-distributed random keys; the rare ones only by home."""
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 2**64, keys, np.uint64)
    counts = np.asarray(1e6 * np.arange(1, keys + 1) ** -z, np.float64)
    homes = np.bincount(hashed(ids), counts, minlength=N).astype(np.float64)
    return KeyFrequencies(ids[:300], counts[:300], float(counts.sum()), homes)


def hashed(keys: Keys) -> NDArray[np.int32]:
    return TableRouter.of(Plan((1.0,) * N, fallback="spark")).route(keys)


def loads_of(found: KeyFrequencies, plan: SplitPlan) -> NDArray[np.float64]:
    """Return the loads of a plan, key by key."""
    workers: dict[int, list[int]] = {}
    for key, worker in zip(plan.keys.tolist(), plan.workers.tolist(), strict=True):
        workers.setdefault(key, []).append(worker)
    loads = found.home_loads.copy()
    for key, count, home in zip(found.keys, found.counts, hashed(found.keys), strict=True):
        loads[home] -= count
        for worker in workers.get(int(key), [home]):
            loads[worker] += count / len(workers.get(int(key), [home]))
    return loads


@pytest.mark.parametrize("scheme", ["w-choices", "d-choices", "fish", "round-robin-head"])
@pytest.mark.parametrize("z", [0.9, 1.0, 1.4, 2.0])
def test_classified_plans_balance(scheme: str, z: float) -> None:
    found = measured(z)
    strategy = RouterStrategy(read_schemes(scheme)[0], N)
    plan = strategy.plan(found, SplitPlan.empty(N))
    loads = loads_of(found, plan)
    assert loads.max() / loads.mean() < 1.05
    assert (plan.version, plan.scheme) == (1, scheme)
    # Nothing changed, so there is no new plan.
    assert strategy.plan(found, plan) is plan


def test_planners_keep_keys_whole() -> None:
    found = measured(0.5)
    plan = PlannerStrategy(read_planners("mixed")["mixed"], N).plan(found, SplitPlan.empty(N))
    assert len(np.unique(plan.keys)) == len(plan.keys) > 0
    loads = loads_of(found, plan)
    assert loads.max() / loads.mean() <= 1.08 + 1e-9


def seen(hot: dict[int, float], homes: list[float]) -> BatchObservation:
    return BatchObservation(round(sum(homes)), hot, np.array(homes), np.array(homes), {})


def test_memory_follows_drift() -> None:
    history = KeyHistory(2, decay=0.5)
    history.add(seen({1: 100.0, 2: 10.0}, [110.0, 0.0]))
    for _ in range(5):
        history.add(seen({2: 100.0}, [0.0, 100.0]))
    ranked = history.measured()
    assert ranked.keys.tolist() == [2, 1]
    assert ranked.counts[1] == pytest.approx(100 / 32)
    assert ranked.home_loads[0] == pytest.approx(110 / 32)


def test_plan_folder_passes_over_broken_plans(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = PlanFolder(str(tmp_path / "plans"))
    assert folder.latest() is None
    good = RouterStrategy(read_schemes("w-choices")[0], N).plan(measured(1.4), SplitPlan.empty(N))
    folder.save(good)
    (tmp_path / "plans" / "2").write_bytes(good.to_bytes()[:-3])
    with caplog.at_level(logging.WARNING, "unskew.spark"):
        found = folder.latest()
    assert found is not None
    assert found.same_pairs(good)
    assert "plans/2 is skipped: corrupt split plan" in caplog.text


def skewed(spark: SparkSession, path: Path, files: int) -> DataFrame:
    ids = np.concatenate(list(Zipf(1.4, 1000, 40_000, 1).ids()))
    table = pa.table({"key": [f"key-{i}" for i in ids], "x": np.arange(len(ids))})
    spark.createDataFrame(table).repartition(files, "x").write.parquet(str(path))
    return spark.read.parquet(str(path))


@pytest.mark.parametrize("scheme", ["w-choices", "d-choices", "fish", "shuffle"])
def test_batch_is_balanced(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    df = skewed(spark, tmp_path / "in", 2)
    n = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    routed = Balancer(scheme, routing="planned").route(df, "key")
    assert routed.columns == ["key", "x", SLOT]
    groups = routed.groupBy("key", SLOT).agg(F.sum(F.lit(1)).alias("n"))
    loads = groups.groupBy(F.spark_partition_id().alias("w")).agg(F.sum("n").alias("n")).collect()
    assert sum(row["n"] for row in loads) == 40_000
    assert max(row["n"] for row in loads) / (40_000 / n) < 1.1


def test_stream_learns_and_goes_on_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    skewed(spark, tmp_path / "in", 8)
    n = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    checkpoint, skews = str(tmp_path / "chk"), []

    def note(batch: DataFrame, _: int) -> None:
        worker = F.pmod(F.hash("key", SLOT), F.lit(n))
        counts = [row["count"] for row in batch.groupBy(worker).count().collect()]
        skews.append(max(counts) * n / sum(counts))

    def run(batches: int) -> None:
        stream = (
            spark.readStream.schema("key string, x bigint")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / "in"))
        )
        routed = Balancer("w-choices", checkpoint=checkpoint).route(stream, "key")
        wanted = len(skews) + batches
        query = (
            routed.writeStream.foreachBatch(note)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="2 seconds")
            .start()
        )
        try:
            while len(skews) < wanted and query.isActive:
                query.awaitTermination(1)
        finally:
            query.stop()

    run(4)
    assert skews[0] > 2.5
    assert skews[3] < 1.2
    run(1)
    # It continues from the plan of the previous run, not from an empty one.
    assert skews[-1] < 1.2


def test_a_version_stays_what_it_is(tmp_path: Path) -> None:
    """The last plan of a stopped query may be saved after the next query has started."""
    folder = PlanFolder(str(tmp_path))
    first = folder.save(SplitPlan.of(N, [(5, 1)], 1, "one"))
    second = folder.save(SplitPlan.of(N, [(5, 2)], 1, "two"))
    assert (first.version, second.version) == (1, 2)
    assert folder.load(1).scheme == "one"
    assert folder.load(2).scheme == "two"


def test_plans_that_are_used_are_not_removed(tmp_path: Path) -> None:
    folder = PlanFolder(str(tmp_path / "serving"))
    for version in range(1, 105):
        folder.save(SplitPlan.of(2, [(7, 1)], version, "test"), renumber=False)
    assert folder.load(1).version == 1
    folder.remove_old(used={1})
    assert sorted(int(path.name) for path in (tmp_path / "serving").iterdir()) == [
        1,
        *range(5, 105),
    ]
    folder.remove_old()
    with pytest.raises(FileNotFoundError):
        folder.load(1)
