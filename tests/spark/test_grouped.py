"""The interface is that of Spark: names, parameters, order and results of GroupedData."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.group import GroupedData
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.types import StructType

from spark.streams import in_order, outputs
from unskew.spark import Balancer, combine
from unskew.spark import functions as UF
from unskew.spark.grouped import Grouped

METHODS = [name for name in vars(Grouped) if not name.startswith("_")]


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    """Return rows of a hot key and of others, with times."""
    hot = F.when(F.col("id") % 2 == 0, "hot").otherwise(F.format_string("key-%d", F.col("id") % 7))
    at = F.timestamp_seconds(F.lit(1.7e9) + F.col("id"))
    return spark.range(400).select(
        hot.alias("user"), (F.col("id") % 3).alias("shop"), "id", at.alias("time")
    )


def parameters(method: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Return the names of parameters in order, with their defaults."""
    found = inspect.signature(method).parameters.values()
    return [(p.name, p.default) for p in found if p.kind != p.VAR_POSITIONAL]


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_those_of_spark(name: str) -> None:
    assert parameters(getattr(Grouped, name)) == parameters(getattr(GroupedData, name))


GROUPINGS: dict[str, Callable[[], list[Any]]] = {
    "a name": lambda: ["user"],
    "a list": lambda: [["user", "shop"]],
    "another case": lambda: ["USER"],
    "a column": lambda: [F.col("user"), "shop"],
    "an expression": lambda: [F.upper("user").alias("loud"), F.col("shop") + 1],
    "a window first": lambda: [F.window("time", "1 minute"), "user"],
    "a window last": lambda: ["user", "shop", F.window("time", "1 minute")],
    "a window between": lambda: ["user", F.window("time", "2 minutes", "1 minute"), "shop"],
    "a session": lambda: ["user", F.session_window("time", "3 seconds")],
}


def aggregates() -> list[Column]:
    return [
        F.count("*").alias("n"),
        F.avg("id"),
        UF.collect_set("shop"),
        F.max("time").alias("user"),
    ]


@pytest.mark.parametrize("scheme", [None, "w-choices", "mixed", "shuffle", "key"])
@pytest.mark.parametrize("grouping", GROUPINGS)
def test_groupings(events: DataFrame, grouping: str, scheme: str | None) -> None:
    plain = events.groupBy(*GROUPINGS[grouping]()).agg(*aggregates())
    balanced = Balancer(scheme).groupBy(events, *GROUPINGS[grouping]()).agg(*aggregates())
    assert balanced.schema == plain.schema
    assert in_order(balanced) == in_order(plain)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_windows_of_a_stream_in_any_place(
    spark: SparkSession, events: DataFrame, tmp_path: Path, at: int
) -> None:
    events.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(events.schema).parquet(str(tmp_path / "in"))
    timely = stream.withWatermark("time", "1 second")
    grouping: list[Any] = ["user", "shop"]
    grouping.insert(at, F.window("time", "1 minute"))
    median = F.percentile("id", F.lit(0.5))
    balance = Balancer("mixed", checkpoint=str(tmp_path / "balanced"))
    balanced = balance.groupBy(timely, *grouping).agg(median, F.count("*").alias("n"))
    plain = timely.groupBy(*grouping).agg(median, F.count("*").alias("n"))
    assert balanced.columns == plain.columns
    assert outputs(balanced, tmp_path / "balanced", "append") == outputs(
        plain, tmp_path / "plain", "append"
    )


def test_shorthands(events: DataFrame) -> None:
    grouped, plain = Balancer("w-choices").groupBy(events, "user"), events.groupBy("user")
    pairs = [
        (grouped.count(), plain.count()),
        (grouped.sum(), plain.sum()),
        (grouped.avg("id", "shop"), plain.avg("id", "shop")),
        (grouped.mean("id"), plain.mean("id")),
        (grouped.min("id"), plain.min("id")),
        (grouped.max(), plain.max()),
        (grouped.agg({"*": "count", "id": "sum"}), plain.agg({"*": "count", "id": "sum"})),
    ]
    for balanced, other in pairs:
        assert balanced.schema == other.schema
        assert in_order(balanced) == in_order(other)


class Largest:
    """The largest value, as a CombineFn."""

    def create_accumulator(self) -> int:
        return -1

    def add_input(self, accumulator: int, element: int) -> int:
        return max(accumulator, element)

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        return max(accumulators)

    def extract_output(self, accumulator: int) -> int:
        return accumulator


def test_combined_in_any_place(events: DataFrame) -> None:
    grouping: list[Any] = ["user", F.window("time", "1 minute")]
    largest = combine(Largest(), "id", returns="bigint")
    found = Balancer().groupBy(events, *grouping).agg(F.count("*"), largest.alias("max"))
    plain = events.groupBy(*grouping).agg(F.count("*"), F.max("id").alias("max"))
    assert found.columns == plain.columns
    assert in_order(found) == in_order(plain)
    assert Balancer().groupBy(events, "user").agg(largest).columns == ["user", "combine(Largest)"]


@pytest.mark.parametrize("scheme", [None, "mixed", "key"])
def test_functions_of_whole_groups(events: DataFrame, scheme: str | None) -> None:
    def of_rows(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(n=len(frame)).tail(1)

    def of_key(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({"text": [f"{key} {[*frame.columns]} {frame['id'].sum()}"]})

    with_count = StructType([*events.schema]).add("n", "long")
    for function, schema in ((of_rows, with_count), (of_key, "text string")):
        balanced = Balancer(scheme).groupBy(events, "user", "shop").applyInPandas(function, schema)
        plain = events.groupBy("user", "shop").applyInPandas(function, schema)
        assert in_order(balanced) == in_order(plain)


def counted(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    n = sum(map(len, chunks)) + (state.get[0] if state.exists else 0)
    state.update((n,))
    yield pd.DataFrame({"user": [key[0]], "n": [n]})


def test_a_balancer_chooses_and_says_why(
    spark: SparkSession, events: DataFrame, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(events.schema).parquet(str(tmp_path / "in"))
    balance = Balancer(checkpoint=str(tmp_path / "chk"))
    balance.groupBy(events, "user").agg(F.sum("id"), F.count("*"))
    balance.groupBy(events, "user").agg(F.collect_list("id"))
    arguments = (counted, "user string, n bigint", "n bigint", "update")
    found = balance.groupBy(stream, "user").applyInPandasWithState(
        *arguments, GroupStateTimeout.NoTimeout
    )
    assert len(outputs(found, tmp_path / "chk", "update")[0]) == 8
    balance.join(events, events.select("user").distinct(), "user", how="left")
    chosen = [(decision.operator, decision.scheme) for decision in balance.decisions]
    assert chosen == [
        ("groupBy(user).agg", "key"),
        ("groupBy(user).agg", "waterline"),
        ("groupBy(user).applyInPandasWithState", "mixed"),
        ("join(user)", "waterline"),
    ]
    balance.explain()
    printed = capsys.readouterr().out
    assert "groupBy(user).agg: key, planned: Spark combines the rows of a key before" in printed
    assert "collect_list may keep all values of a key" in printed


def test_what_cannot_be_is_refused(events: DataFrame) -> None:
    balance = Balancer("mixed")
    window = F.window("time", "1 minute")
    refused: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: balance.groupBy(events, window), ValueError, "group by a key as well"),
        (lambda: balance.groupBy(events), ValueError, "at least one key column is needed"),
        (lambda: balance.groupBy(events, 7), TypeError, "a key must be a Column or"),  # type: ignore[arg-type]
        (lambda: balance.groupBy(events, "user").agg(), ValueError, "at least one aggregate"),
        (
            lambda: balance.groupBy(events, "user").applyInPandas(lambda a, b, c: a, "x int"),
            ValueError,
            "must take a pandas DataFrame, or a key and",
        ),
        (
            lambda: Balancer("pkg").groupBy(events, "user").applyInPandas(lambda x: x, "x int"),
            ValueError,
            "pkg may split the rows of a key .* use a planner like 'mixed'",
        ),
        (
            lambda: (
                Balancer("key", routing="online")
                .groupBy(events, "user")
                .applyInPandas(lambda x: x, "x int")
            ),
            ValueError,
            "applyInPandas needs planned routing, got key with online routing",
        ),
        (
            lambda: balance.groupBy(events, window, "user").applyInPandas(lambda x: x, "x int"),
            ValueError,
            "make a column of the window first",
        ),
        (
            lambda: balance.groupBy(events, "user").transformWithStateInPandas(
                cast(Any, None),
                "x int",
                "update",
                "None",
                eventTimeColumnName="time",
            ),
            ValueError,
            "initialState and eventTimeColumnName are not supported",
        ),
    ]
    for call, kind, message in refused:
        with pytest.raises(kind, match=message):
            call()
