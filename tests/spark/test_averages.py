"""Averages and sums of every type have the values and types of plain Spark, ANSI or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.streams import in_order
from unskew.spark import Balancer
from unskew.spark import functions as agg

ANSI = "spark.sql.ansi.enabled"
VALUES = {
    "bigint": "CASE WHEN id % 2 = 0 THEN 9000000000000000000 ELSE id END",
    "text": "CASE WHEN id % 5 = 0 THEN 'abc' ELSE cast(id AS string) END",
    "small": "cast(id AS decimal(10,2)) / 7",
    "wide": "cast(cast(id AS decimal(29,0)) * 123456789012345678 / 7 AS decimal(29,9))",
    "widest": "cast(cast(id AS decimal(38,0)) * 1234567890123456789012 AS decimal(38,10))",
    "overflowing": "cast('99999999999999999999999999999999999999' AS decimal(38,0))",
    "real": "cast(id AS float) / 4",
    "months": "make_ym_interval(0, cast(id AS int))",
    "days": "make_dt_interval(cast(id AS int), 1, 1, 0.5)",
}


@pytest.fixture(params=["true", "false"])
def ansi(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    spark.conf.set(ANSI, request.param)
    yield
    spark.conf.unset(ANSI)


@pytest.mark.usefixtures("ansi")
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("scheme", ["shuffle", "mixed"])
def test_averages_and_sums(spark: SparkSession, scheme: str, kind: str) -> None:
    rows = spark.range(0, 60, 1, 3).selectExpr("id % 3 AS k", f"{VALUES[kind]} AS x")
    rows = rows.withColumn("x", F.when(F.col("k") != 2, F.col("x")))
    for aggregate in (agg.mean("x"), agg.sum("x")):
        found = Balancer(scheme).groupBy(rows, "k").agg(aggregate.alias("y"))
        native = rows.groupBy("k").agg(aggregate.alias("y"))
        assert found.schema == native.schema
        assert result(found) == result(native)


def result(df: DataFrame) -> list[Any] | type[Exception]:
    """Return the rows, or the error that Spark raises in ANSI mode."""
    try:
        return in_order(df)
    except PySparkException as error:
        return type(error)
