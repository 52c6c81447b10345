"""Slots are the same when a task is retried, whatever the order of its rows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.spark import Balancer
from unskew.spark.placement.draws import CHECKSUMS, keeps_order


def hot(spark: SparkSession, rows: int = 800) -> DataFrame:
    return spark.range(0, rows, 1, 2).selectExpr("1 AS k", "id AS x", "map('a', id) AS m")


@pytest.mark.parametrize("scheme", ["shuffle", "w-choices"])
def test_the_order_of_rows_does_not_matter_behind_a_shuffle(
    spark: SparkSession, scheme: str
) -> None:
    found = []
    for backwards in (False, True):
        rows = hot(spark).orderBy(F.col("x") * (-1 if backwards else 1)).coalesce(1)
        routed = Balancer(scheme).route(rows, "k").select("x", "slot").collect()
        found.append({row["x"]: row["slot"] for row in routed})
    assert found[0] == found[1]
    counts = Counter(found[0].values())
    assert len(counts) == 8
    assert max(counts.values()) < 2 * min(counts.values())


def test_which_rows_keep_their_order(spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "in"))
    file = spark.read.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("id bigint").parquet(str(tmp_path / "in"))
    timely = stream.withColumn("t", F.current_timestamp()).withWatermark("t", "1 minute")
    for df in (spark.range(3), file, stream, timely, file.where("id > 1").union(file)):
        assert keeps_order(df)
    for df in (
        file.repartition(2),
        file.groupBy("id").count(),
        file.join(file.withColumnRenamed("id", "other"), F.expr("id = other")),
        file.distinct(),
        file.orderBy("id"),
        timely.dropDuplicates(["id"]),
        spark.createDataFrame([(1,)], "id bigint"),
    ):
        assert not keeps_order(df)


def test_a_user_who_draws_too(spark: SparkSession) -> None:
    """A hot key is spread over all workers, even if rows were selected by random numbers."""
    rows = spark.range(0, 20_000, 1, 2).withColumn("r", F.rand(0)).where("r < 0.25")
    routed = Balancer("shuffle").route(rows.withColumn("k", F.lit(1)), "k")
    counts = {row["slot"]: row["count"] for row in routed.groupBy("slot").count().collect()}
    assert len(counts) == 8
    assert max(counts.values()) < 1.3 * min(counts.values())


def test_routers_go_by_order(spark: SparkSession) -> None:
    shuffled = hot(spark).repartition(3)
    assert Balancer("pkg").route(shuffled, "k").count() == 800
    spark.conf.set(CHECKSUMS[0], "false")
    try:
        with pytest.raises(ValueError, match=r"set spark.sql.shuffle.* to true, route before"):
            Balancer("pkg").route(shuffled, "k")
        assert Balancer("pkg").route(hot(spark), "k").count() == 800
        assert Balancer("w-choices").route(shuffled, "k").count() == 800
    finally:
        spark.conf.set(CHECKSUMS[0], "true")


@pytest.mark.parametrize("scheme", ["shuffle", "w-choices"])
def test_a_shuffle_file_that_is_lost(tmp_path: Path, scheme: str) -> None:
    """Files are lost while reducers run, without the checksums of newer versions of Spark."""
    script = Path(__file__).with_name("lost_shuffle.py")
    out = subprocess.run(
        [sys.executable, str(script), str(tmp_path), scheme],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    assert out.returncode == 0, out.stderr[-3000:]
    assert out.stdout.split() == ["6000", "6000", "retried"]
