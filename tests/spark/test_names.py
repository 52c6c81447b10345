"""Any column names of users work, and names are resolved as Spark resolves them."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import unskew.spark
from spark.streams import in_order, named, outputs, read_batches, write_batches
from unskew.spark import Balancer
from unskew.spark.placement.names import Names

ODD = {"Slot": 1, "Window": 2, "__unskew_id": 3, "__UNSKEW_slot_2": 4, "a.b": 5, "a b": 6, "c`d": 7}
SCHEMES = ["w-choices", "pkg", "mixed", "shuffle", "key"]


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    keys = "CASE WHEN id % 10 < 6 THEN 1 ELSE id % 40 END"
    df = spark.range(2000).selectExpr(f"{keys} AS User", "timestamp_seconds(id) AS time")
    return df.withColumns({name: F.lit(value) for name, value in ODD.items()})


def totals() -> dict[str, Column]:
    names = ("Slot", "slot", "Window", "__unskew_id", "`a.b`", "a b", "`c``d`")
    return {f"total{i}": F.sum(name) for i, name in enumerate(names)}


def plain(df: DataFrame, *grouping: Any, **aggregates: Column) -> DataFrame:
    return df.groupBy(*grouping).agg(*(a.alias(name) for name, a in aggregates.items()))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_columns_of_the_user_stay_what_they_are(events: DataFrame, scheme: str) -> None:
    window = F.window("time", "10 minutes")
    for keys in (["User"], ["Slot", "user"], ["Window"], ["`a.b`"], ["`c``d`", "a b"]):
        found = Balancer(scheme).groupBy(events, *keys).agg(*named(totals()))
        assert found.schema == plain(events, *keys, **totals()).schema
        assert in_order(found) == in_order(plain(events, *keys, **totals()))
    hidden = {"__unskew_slot": F.count("*"), "__unskew_part0": F.max("time")}
    found = Balancer(scheme).groupBy(events, "user").agg(*named(hidden))
    assert in_order(found) == in_order(plain(events, "user", **hidden))
    assert found.columns == ["user", *hidden]
    found = Balancer(scheme).groupBy(events, window, "window").agg(*named(totals()))
    assert found.columns[:2] == ["window", "window"]
    assert in_order(found) == in_order(plain(events, window, "window", **totals()))


@pytest.mark.parametrize("scheme", ["w-choices", "mixed", "pkg"])
def test_streams(spark: SparkSession, tmp_path: Path, scheme: str) -> None:
    keys = [1 if i % 10 < 6 else i % 40 for i in range(300)]
    odd = {name: [value] * 300 for name, value in ODD.items()}
    at = pa.array([1_767_225_600 + i for i in range(300)], pa.timestamp("s", "UTC"))
    write_batches(tmp_path / "in", [pa.table({"User": keys, "time": at, **odd})] * 3)
    events = read_batches(spark, tmp_path / "in")
    balance = Balancer(scheme, checkpoint=str(tmp_path / "chk"))
    found = outputs(
        balance.groupBy(events, "USER").agg(*named(totals())), tmp_path / "chk", "update"
    )
    native = plain(events, "USER", **totals())
    assert found == outputs(native, tmp_path / "plain", "update")


@pytest.fixture
def case_sensitive(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.usefixtures("case_sensitive")
def test_where_case_matters(events: DataFrame) -> None:
    df = events.withColumn("user", F.lit(9)).withColumn("slot", F.lit(8))
    for keys in (["User"], ["user"], ["slot", "User"]):
        found = (
            Balancer("w-choices")
            .groupBy(df, *keys)
            .agg(F.sum("Slot").alias("n"), F.sum("slot").alias("N"))
        )
        native = plain(df, *keys, n=F.sum("Slot"), N=F.sum("slot"))
        assert found.columns == native.columns
        assert in_order(found) == in_order(native)
    routed = Balancer("w-choices").route(events, "User")
    assert {"Slot", "slot"} <= {*routed.columns}
    with pytest.raises(ValueError, match=r"^no column 'TIME'.*: there are"):
        Balancer("w-choices").groupBy(df, "TIME").agg(F.count("*").alias("n"))


def test_a_slot_of_the_users_is_refused_where_ours_is_seen(events: DataFrame) -> None:
    with pytest.raises(ValueError, match=r"^there is a column 'Slot' already: rename it"):
        Balancer("pkg").route(events, "User")


@pytest.mark.parametrize("scheme", ["w-choices", "mixed"])
def test_keys_in_any_form(events: DataFrame, scheme: str) -> None:
    total = {"n": F.count("*"), "N": F.max("time")}
    for keys in (["USER"], [["user", "slot"]], [F.col("user")], [events["User"], "window"]):
        found = Balancer(scheme).groupBy(events, *keys).agg(*named(total))
        native = plain(events, *keys, **total)
        assert found.schema == native.schema
        assert in_order(found) == in_order(native)
    key = F.expr("User % 3").alias("third")
    assert in_order(Balancer(scheme).groupBy(events, key).agg(*named(total))) == in_order(
        plain(events, key, **total)
    )


def test_joins(events: DataFrame) -> None:
    spark = events.sparkSession
    other = spark.range(40).selectExpr("id AS USER", "id AS slot", "id AS left", "id AS `A.B`")
    left = events.withColumn("right", F.struct(F.lit(1).alias("user")))
    for how in ("inner", "left", "right", "semi", "anti"):
        found = Balancer("w-choices").join(left, other, ["user"], how=how)
        native = left.join(other, ["user"], how)
        assert found.schema == native.schema
        assert in_order(found) == in_order(native)
    assert Balancer("w-choices").join(left, other, "a.b").columns == (
        left.join(other, ["a.b"]).columns
    )


def test_names_are_free(spark: SparkSession) -> None:
    assert Names.free_in(spark.range(1)) == Names()
    df = spark.range(1).toDF("__Unskew_x").withColumn("__unskew_y_2", F.lit(1))
    assert Names.free_in(df)("y") == "__unskew_y_3"


@pytest.mark.parametrize(
    ("keys", "error", "message"),
    [
        (
            ("a.b",),
            ValueError,
            r"^there is a column 'a.b', but Spark reads .* write '`a.b`'$",
        ),
        (("c`d",), ValueError, r"write '`c``d`'$"),
        (("User.x",), ValueError, r"^no column 'User.x' .*; give one of these$"),
        ((7,), TypeError, r"^a key must be a Column or the name of one, got 7"),
    ],
)
def test_keys_that_are_refused(
    events: DataFrame, keys: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Balancer("w-choices").groupBy(events, *keys).agg(F.count("*").alias("n"))


def test_public_names_are_the_same_however_often_they_are_imported() -> None:
    for name in unskew.spark.__all__:
        first = getattr(unskew.spark, name)
        importlib.import_module("unskew.spark.profiles")
        assert getattr(unskew.spark, name) is first
    assert callable(unskew.spark.profile)
