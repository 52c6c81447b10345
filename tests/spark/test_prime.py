"""A balancer that is primed with old records has a plan from the first batch on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.spark import Balancer
from unskew.spark.plans.split_plan import PlanFolder

from .streams import in_order, outputs, read_batches, write_batches

ROWS, KEYS, START_S = 8000, 60, 1_767_225_600
Query = Callable[[Any, DataFrame], Any]


def zipf(seed: int) -> pa.Table:
    """Return rows of a batch whose hottest key has three tenths of them."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1.0, KEYS + 1) ** -1.2
    ids = rng.choice(KEYS, ROWS, p=shares / shares.sum())
    times = START_S + 60 * seed + rng.integers(0, 60, ROWS)
    at = pa.array((times * 1_000_000).astype(np.int64), pa.timestamp("us", "UTC"))
    return pa.table({"user": [f"u{i}" for i in ids], "x": rng.integers(0, 50, ROWS), "at": at})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("primed")
    write_batches(folder / "in", map(zipf, range(1, 3)))
    write_batches(folder / "old", [zipf(0)])
    return folder


def old(spark: SparkSession, data: Path) -> DataFrame:
    return spark.read.parquet(str(data / "old"))


def sets(grouping: Any, rows: DataFrame) -> Any:
    return grouping(rows, "user").agg(F.sort_array(F.collect_set("x")).alias("xs"))


def windows(grouping: Any, rows: DataFrame) -> Any:
    late = rows.withWatermark("at", "1 minute")
    values = F.sort_array(F.collect_list("x")).alias("xs")
    return grouping(late, F.window("at", "30 seconds"), "user").agg(values)


def counts(grouping: Any, rows: DataFrame) -> Any:
    def count(
        key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        n = sum(map(len, chunks)) + (state.get[0] if state.exists else 0)
        state.update((n,))
        yield pd.DataFrame({"user": [key[0]], "n": [n]})

    arguments = ("user string, n bigint", "n bigint", "update", "NoTimeout")
    return grouping(rows, "user").applyInPandasWithState(count, *arguments)


def plain(rows: DataFrame, *columns: Any) -> Any:
    return rows.groupBy(*columns)


def first_loads(balance: Balancer) -> list[int]:
    """Wait for the metrics of the first batch, and return its loads."""
    deadline = time.monotonic() + 60
    while not balance.metrics and time.monotonic() < deadline:
        time.sleep(0.05)
    assert balance.metrics[0].batch == 0
    return [*balance.metrics[0].loads]


def saved(checkpoint: Path) -> PlanFolder:
    """Return the only folder of plans beside a checkpoint."""
    (folder,) = checkpoint.glob("unskew/router/*/plans")
    return PlanFolder(str(folder))


@pytest.mark.parametrize(
    ("scheme", "query", "bound"), [(None, sets, 1.3), ("mixed", windows, 2.6), (None, counts, 2.6)]
)
def test_the_first_batch_is_balanced(
    spark: SparkSession, data: Path, tmp_path: Path, scheme: str | None, query: Query, bound: float
) -> None:
    rows = read_batches(spark, data / "in")
    expected = outputs(query(plain, rows), tmp_path / "plain", "update")
    busiest = {}
    for primed in (False, True):
        checkpoint = tmp_path / f"primed-{primed}"
        balance = Balancer(scheme, checkpoint=str(checkpoint))
        if primed:  # of a shuffle, so that rows have no fixed order, and with nothing but keys
            balance.prime(old(spark, data).select("user").repartition(3), "user")
        assert outputs(query(balance.groupBy, rows), checkpoint, "update") == expected
        loads = first_loads(balance)
        busiest[primed] = max(loads) * len(loads) / sum(loads)
    # A key with three tenths of the rows, kept whole, is 2.4 times the mean of 8 workers.
    assert busiest[True] < bound < busiest[False]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_joins_start_with_a_plan(spark: SparkSession, data: Path, tmp_path: Path, how: str) -> None:
    rows = read_batches(spark, data / "in")
    names = spark.createDataFrame([(f"u{i}", i) for i in range(KEYS // 2)], "USER string, n int")
    expected = outputs(rows.join(names, "user", how), tmp_path / "plain", "append")
    balance = Balancer(checkpoint=str(tmp_path / "chk"))
    balance.prime(old(spark, data), "USER")
    joined = balance.join(rows, names, "user", how)
    assert outputs(joined, tmp_path / "chk", "append") == expected
    loads = first_loads(balance)
    assert max(loads) * len(loads) / sum(loads) < 1.3


def test_a_query_that_has_a_plan_keeps_it(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    rows = read_batches(spark, data / "in").where("x >= 0")
    balance = Balancer(checkpoint=str(tmp_path))
    balance.prime(old(spark, data), "user")
    outputs(sets(balance.groupBy, rows), tmp_path, "update")
    first_loads(balance)
    before = saved(tmp_path).latest()
    again = Balancer(checkpoint=str(tmp_path))
    again.prime(old(spark, data).where(F.raise_error(F.lit("no job")).isNull()), "user")
    sets(again.groupBy, rows)
    after = saved(tmp_path).latest()
    assert before is not None
    assert after is not None
    assert after.version >= before.version >= 1


def test_a_plan_for_other_workers_is_made_again(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    rows = read_batches(spark, data / "in")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        for workers in ("8", "4"):  # built twice, and not started in between
            spark.conf.set("spark.sql.shuffle.partitions", workers)
            balance = Balancer(checkpoint=str(tmp_path))
            balance.prime(old(spark, data), "user")
            sets(balance.groupBy, rows)
            plan = saved(tmp_path).latest()
            assert plan is not None
            assert plan.n_workers == int(workers)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "200")


def test_balanced_or_empty_history_makes_no_plan(
    spark: SparkSession, data: Path, tmp_path: Path
) -> None:
    rows = read_batches(spark, data / "in")
    for number, history in enumerate((spark.range(0), spark.range(100_000))):
        checkpoint = tmp_path / str(number)
        balance = Balancer(checkpoint=str(checkpoint))
        balance.prime(history.select(F.concat(F.lit("v"), F.col("id")).alias("user")), "user")
        sets(balance.groupBy, rows)
        assert not [*checkpoint.glob("unskew/router/*/plans/*")]


def test_batches_and_schemes_without_plans_ignore_it(spark: SparkSession, data: Path) -> None:
    balance = Balancer()
    balance.prime(old(spark, data).limit(0), "user")
    expected = in_order(sets(plain, old(spark, data)))
    assert in_order(sets(balance.groupBy, old(spark, data))) == expected


def test_what_cannot_be_a_history_is_refused(
    spark: SparkSession, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = read_batches(spark, data / "in")
    balance = Balancer(checkpoint=str(tmp_path))
    with pytest.raises(ValueError, match=r"must be a table.*spark\.read"):
        balance.prime(rows, "user")
    with pytest.raises(ValueError, match=r"no column 'usr'.*did you mean 'user'"):
        balance.prime(old(spark, data), "usr")
    with pytest.raises(ValueError, match="at least one key"):
        balance.prime(old(spark, data))
    with pytest.raises(ValueError, match="online routing decides record by record"):
        Balancer("pkg", routing="online").prime(old(spark, data), "user")
    with pytest.raises(ValueError, match="online routing decides record by record"):
        Balancer("pkg").prime(old(spark, data), "user")
    balance.prime(old(spark, data).select(F.length("user").alias("user")), "user")
    with pytest.raises(ValueError, match=r"int in the history and of type string.*cast"):
        sets(balance.groupBy, rows)
    other = Balancer(checkpoint=str(tmp_path))
    other.prime(old(spark, data), "x")
    with caplog.at_level(logging.WARNING, "unskew.spark"):
        sets(other.groupBy, rows)
    assert "user starts without a plan: primed are x" in caplog.text
