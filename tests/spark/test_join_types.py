"""Joins of keys with different types lose no row under any plan, or are refused."""

from __future__ import annotations

import contextlib
import io
import itertools
import re
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from spark.streams import in_order, outputs, read_batches, write_batches
from unskew.spark import Balancer
from unskew.spark.placement.common_types import common_type

HOWS = ["inner", "left", "right", "semi", "anti"]
PAIRS = [
    ("int", "bigint"),
    ("smallint", "decimal(12,2)"),
    ("decimal(10,2)", "decimal(12,4)"),
    ("float", "double"),
    ("bigint", "double"),
    ("date", "timestamp"),
    ("date", "timestamp_ntz"),
    ("array<int>", "array<bigint>"),
    ("struct<a:int,b:float>", "struct<a:bigint,b:double>"),
]


def keyed(rows: DataFrame, kind: str) -> DataFrame:
    """Return rows whose key is the column ``n`` cast to a type; n = 7 is null."""
    n: dict[str, str] = {
        "date": "date_add(DATE'2024-01-01', cast(n AS int))",
        "timestamp": "cast(date_add(DATE'2024-01-01', cast(n AS int)) AS timestamp)",
        "timestamp_ntz": "cast(date_add(DATE'2024-01-01', cast(n AS int)) AS timestamp_ntz)",
        "array<int>": "array(cast(n AS int), null)",
        "array<bigint>": "array(n, null)",
        "struct<a:int,b:float>": "named_struct('a', cast(n AS int), 'b', cast(n AS float) / 4)",
        "struct<a:bigint,b:double>": "named_struct('a', n, 'b', n / 4)",
    }
    key = F.expr(n.get(kind, f"cast(n AS {kind})")).cast(kind)
    return rows.withColumn("k", F.when(F.col("n") != 7, key)).drop("n")


@pytest.mark.parametrize(("left", "right"), [*PAIRS, *(pair[::-1] for pair in PAIRS[:4])])
def test_tables(spark: SparkSession, left: str, right: str) -> None:
    clicks = spark.range(600).selectExpr("CASE WHEN id % 10 < 6 THEN 1 ELSE id % 50 END AS n", "id")
    users = spark.range(40).selectExpr("id AS n", "id * 2 AS y")
    a, b = keyed(clicks, left), keyed(users, right)
    for how in HOWS:
        found, plain = Balancer("w-choices").join(a, b, "k", how=how), a.join(b, ["k"], how)
        assert found.schema == plain.schema
        assert in_order(found) == in_order(plain)


def test_what_spark_compares_by(spark: SparkSession) -> None:
    """The common types are those that ``==`` casts to, ANSI or not."""
    families = [
        [
            *("tinyint", "smallint", "int", "bigint", "float", "double"),
            *("decimal(5,0)", "decimal(20,3)", "decimal(38,18)", "decimal(38,0)"),
        ],
        ["date", "timestamp", "timestamp_ntz"],
    ]
    for ansi in ("true", "false"):
        spark.conf.set("spark.sql.ansi.enabled", ansi)
        for family in families:
            for left, right in itertools.combinations(family, 2):
                found = common_type(spark.range(0), kind(spark, left), kind(spark, right), "k")
                assert compared_by(spark, left, right) == {found.simpleString()}, (left, right)
    spark.conf.unset("spark.sql.ansi.enabled")


def kind(spark: SparkSession, name: str) -> DataType:
    return spark.range(0).select(F.lit(None).cast(name).alias("x")).schema[0].dataType


def compared_by(spark: SparkSession, left: str, right: str) -> set[str]:
    """Return the types in which Spark compares two columns, from its plan."""
    names = {"a": left, "b": right}
    df = spark.range(1).select(
        *(F.lit(None).cast(kind).alias(name) for name, kind in names.items())
    )
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        df.select(F.col("a") == F.col("b")).explain(True)
    plan = text.getvalue().partition("== Analyzed Logical Plan ==")[2]
    (sides,) = re.findall(r"\((.* = .*)\) AS", plan)
    found = set()
    for side in sides.split(" = "):
        name = re.findall(r"\b([ab])#", side)[0]
        casts = re.findall(r" as (\w+(?:\([\d,]+\))?)\)", side)
        found.add(casts[-1] if casts else kind(spark, names[name]).simpleString())
    return found


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("int", "string"),
        ("boolean", "int"),
        ("int", "date"),
        ("struct<a:int>", "struct<a:decimal(5,2)>"),
    ],
)
def test_what_is_refused(spark: SparkSession, left: str, right: str) -> None:
    a = spark.range(0).select(F.lit(None).cast(left).alias("k"))
    b = spark.range(0).select(F.lit(None).cast(right).alias("k"))
    message = f"key 'k' is {left} on the left and {right} on the right: cast one of them, as in"
    with pytest.raises(TypeError, match=re.escape(message)):
        Balancer("w-choices").join(a, b, "k")


def test_streams(spark: SparkSession, tmp_path: Path) -> None:
    """A stream is joined with a table and with a stream, from the first plan on."""
    keys = [1 if i % 10 < 6 else i % 50 for i in range(300)]
    at = [1_767_225_600_000_000 + i * 1_000_000 for i in range(300)]
    time = pa.array(at, pa.timestamp("us", "UTC"))
    table = pa.table({"k": pa.array(keys, pa.int32()), "x": range(300), "at": time})
    write_batches(tmp_path / "in", [table] * 4)
    users = spark.range(40).selectExpr("id AS k", "id * 2 AS y")
    events = read_batches(spark, tmp_path / "in")
    balance = Balancer("w-choices", checkpoint=str(tmp_path / "chk"))
    found = outputs(balance.join(events, users, "k"), tmp_path / "chk", "append")
    plain = spark.createDataFrame(table).join(users, ["k"])
    assert found == [in_order(plain)] * 4
    assert [*tmp_path.glob("chk/unskew/router/*/plans/*")], "something was planned"
    views = read_batches(spark, tmp_path / "in").selectExpr("cast(k AS bigint) k", "at AS seen")
    views = views.withWatermark("seen", "1 minute")
    balance = Balancer("w-choices", checkpoint=str(tmp_path / "two"))
    met = balance.join(
        events.withWatermark("at", "1 minute"),
        views,
        "k",
        times=("at", "seen"),
        within=(timedelta(0), timedelta(0)),
    )
    found = [row for batch in outputs(met, tmp_path / "two", "append") for row in batch]
    left = events.withWatermark("at", "1 minute").alias("l")
    same = F.expr("l.k = r.k AND seen >= at AND seen <= at")
    plain = left.join(views.alias("r"), same).select("l.k", "x", "at", "seen")
    wanted = [row for batch in outputs(plain, tmp_path / "plain", "append") for row in batch]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert len(found) >= 4 * 300
