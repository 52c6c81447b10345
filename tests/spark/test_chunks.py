"""The rows of a key are those of Spark's worker, without our hidden columns."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from unskew.spark import Balancer
from unskew.spark.state.chunks import Rows, joined, unjoined

TIME = pd.Timestamp("2026-01-02 03:04:05")
COLUMNS = [
    pd.Series([1, 2], name="long"),
    pd.Series([1.5, None], name="double"),
    pd.Series(["a", None], name="text"),
    pd.Series([TIME.tz_localize("UTC"), None], name="zoned"),
    pd.Series([TIME, None], name="time"),
    pd.Series([Decimal("1.1"), None], name="decimal"),
    pd.Series([{"a": 1}, None], name="struct"),
    pd.Series([[1, 2], None], name="array"),
    pd.Series([True, None], name="boolean"),
    pd.Series(pd.array([1, None], dtype="Int64"), name="extension"),
    pd.Series([pd.Timedelta(1), None], name="interval"),
]
OURS = [pd.Series(["orders", "orders"], name="orders"), pd.Series([7, 7], name="slot")]


def test_columns_are_joined_as_by_spark() -> None:
    plain = pd.concat(COLUMNS, axis=1)
    pd.testing.assert_frame_equal(joined(COLUMNS), plain, check_column_type=True)
    twice = [COLUMNS[0], COLUMNS[1].rename("long")]
    pd.testing.assert_frame_equal(joined(twice), pd.concat(twice, axis=1))


def test_rows_can_be_written_to_as_sparks_can() -> None:
    locked = pd.Series([1, 2], name="x").to_numpy()
    locked.flags.writeable = False
    column = pd.Series(locked, name="x", copy=False)
    frame = joined([column, column.rename("y")])
    frame.loc[0, "x"] = 5
    assert frame.to_numpy().tolist() == [[5, 1], [2, 2]]
    assert locked.tolist() == [1, 2]


@pytest.mark.parametrize("known", [True, False])
def test_our_columns_are_taken_out(known: bool) -> None:
    some = [*COLUMNS, *OURS]
    chunks: Iterator[pd.DataFrame] = (pd.concat(x, axis=1) for x in [some, some])
    rows = Rows.split(chunks if known else iter([*chunks]))
    assert rows.orders == "orders"
    for _ in range(2):
        pd.testing.assert_frame_equal(next(rows.chunks), pd.concat(COLUMNS, axis=1))
    assert next(rows.chunks, None) is None
    (empty,) = rows.empty()
    assert [*empty.columns] == [column.name for column in COLUMNS]
    assert not len(empty)


def test_other_generators_are_left_alone() -> None:
    assert unjoined(pd.concat(x, axis=1).head() for x in [COLUMNS]) is None
    assert unjoined(iter([pd.DataFrame()])) is None


SCHEMA = (
    "key bigint, text string, x double, d decimal(10,2), at timestamp, ntz timestamp_ntz, "
    "day date, bits binary, flag boolean, s struct<a:int,b:array<string>>, m map<string,int>, "
    "small smallint, _hidden int, wait interval day to second"
)


def rows(number: int) -> list[tuple[Any, ...]]:
    """Return rows of three keys, with a value and a null of each type."""
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901)
    full = ("a", 0.1, Decimal("1.25"), at, at, at.date(), b"x", True, (1, ["b", None]), {"c": 1})
    last = (7, 8, datetime.timedelta(days=1, microseconds=3))
    none = (None,) * 13
    return [(1, *full, *last), (1, *none), (2, *none), (number, *full, *last)]


def described(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Emit everything that a function receives."""
    for chunk in chunks:
        types = [type(value).__name__ for value in chunk.iloc[0]]
        chunk.loc[0, "small"] = 3
        text = f"{key} {[*chunk.columns]} {[*chunk.dtypes]} {types} {chunk.to_dict()}"
        yield pd.DataFrame({"text": [text]})
    state.update((1,))


def direct(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Return whether columns can be selected before they are joined."""
    yield pd.DataFrame({"text": [str(unjoined(chunks) is not None)]})


def test_functions_are_given_what_spark_gives_them(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        spark.createDataFrame(rows(number), SCHEMA).write.parquet(str(tmp_path / f"in/{number}"))
    stream = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "in/*"))
    arguments = ("text string", "n int", "update", GroupStateTimeout.NoTimeout)
    plain = stream.groupBy("key").applyInPandasWithState(described, *arguments)
    balance = Balancer("key", checkpoint=str(tmp_path / "balanced"))
    balanced = balance.groupBy(stream, "key").applyInPandasWithState(
        described, "text string", "n int", "update", "NoTimeout"
    )
    known = stream.groupBy("key").applyInPandasWithState(direct, *arguments)
    results = {}
    for name, query in (("plain", plain), ("balanced", balanced), ("known", known)):
        out = query.writeStream.format("memory").queryName(name).outputMode("update")
        out = out.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        out.start().awaitTermination()
        results[name] = sorted(row.text for row in spark.table(name).collect())
    assert results["balanced"] == results["plain"]
    assert len(results["plain"]) == 3
    assert {*results["known"]} == {"True"}, "PySpark's worker is not as it was: see chunks.py"
