"""Each operator of each query has a folder of its own, and finds it again."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState

from spark.streams import in_order, outputs, read_batches, write_batches
from unskew.spark import Balancer

pytestmark = pytest.mark.usefixtures("three_workers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, rng, tables = tmp_path_factory.mktemp("events"), np.random.default_rng(1), []
    for i in range(5):
        keys = [f"k{k}" for k in np.minimum(rng.zipf(1.6, 200), 20)]
        at = 1_767_225_600 + 30 * i + rng.uniform(0, 30, 200)
        time = pa.array((at * 1e6).astype(np.int64), pa.timestamp("us", "UTC"))
        tables.append(pa.table({"key": keys, "x": rng.normal(size=200), "time": time}))
    write_batches(path, tables)
    return path


def test_two_operators_in_a_query(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    """Medians in windows of two lengths, whose plans are valid at different times."""

    def both(medians: Callable[[DataFrame, Column], DataFrame]) -> DataFrame:
        rows = read_batches(spark, folder).withWatermark("time", "10 seconds")
        lengths = ("20 seconds", "50 seconds")
        found = [medians(rows, F.window("time", length)) for length in lengths]
        return found[0].unionByName(found[1])

    balance = Balancer("mixed", checkpoint=str(tmp_path / "chk"))
    middle = F.percentile("x", F.lit(0.5))
    found = both(lambda rows, w: balance.groupBy(rows, w, "key").agg(middle.alias("middle")))
    native = both(lambda rows, w: rows.groupBy(w, "key").agg(middle.alias("middle")))
    wanted = chain.from_iterable(outputs(native, tmp_path / "plain", "append"))
    rows = chain.from_iterable(outputs(found, tmp_path / "chk", "append"))
    assert sorted(rows, key=repr) == sorted(wanted, key=repr)
    assert len([*tmp_path.glob("chk/unskew/router/windows-*")]) == 2


def test_the_same_operator_twice_is_refused(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    balance = Balancer("w-choices", checkpoint=str(tmp_path / "chk"))
    rows = read_batches(spark, folder)
    once, twice = (balance.route(rows, "key") for _ in range(2))
    with pytest.raises(
        StreamingQueryException, match=r"two operators of one query .* another name"
    ):
        outputs(once.union(twice), tmp_path / "chk", "append")
    other = Balancer("w-choices", checkpoint=str(tmp_path / "named"), name="other")
    balance = Balancer("w-choices", checkpoint=str(tmp_path / "named"))
    routed = [b.route(rows, "key").select("key") for b in (balance, other)]
    found = outputs(routed[0].union(routed[1]), tmp_path / "named", "append")
    assert [len(batch) for batch in found] == [400] * 5


def counted(key: Any, chunks: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    n = state.get[0] if state.exists else 0
    n += sum(map(len, chunks))
    state.update((n,))
    yield pd.DataFrame({"key": [key[0]], "n": [n]})


@pytest.mark.parametrize("kind", ["planned", "online", "state"])
def test_a_second_query_is_refused(
    spark: SparkSession, folder: Path, tmp_path: Path, kind: str
) -> None:
    rows = read_batches(spark, folder)
    scheme = {"planned": "w-choices", "online": "pkg", "state": "mixed"}[kind]
    balance = Balancer(scheme, checkpoint=str(tmp_path / "one"))
    if kind == "state":
        found = balance.groupBy(rows, "key").applyInPandasWithState(
            counted, "key string, n bigint", "n bigint", "update", "NoTimeout"
        )
    else:
        found = balance.route(rows, "key")
    mode = "update" if kind == "state" else "append"
    assert len(outputs(found, tmp_path / "one", mode)) == 5
    with pytest.raises(StreamingQueryException, match=r"give Balancer.* own checkpointLocation"):
        outputs(found, tmp_path / "two", mode)
    shutil.copy(tmp_path / "two/metadata", tmp_path / "one/metadata")
    with pytest.raises(StreamingQueryException, match=r"belongs to query .* checkpoint of its own"):
        outputs(found, tmp_path / "two", mode)


@pytest.mark.parametrize("name", ["", "x/y", "../../x", ".hidden", "a b", None])
def test_names_of_balancers(name: Any) -> None:
    with pytest.raises(ValueError, match=r"^name must be letters, digits"):
        Balancer("w-choices", name=name)


def planned(balance: Balancer, batches: int) -> None:
    """Wait for the metrics of this many batches."""
    deadline = time.monotonic() + 120
    while len(balance.metrics) < batches and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [m.batch for m in balance.metrics] == [*range(batches)]


def test_a_dataframe_that_is_started_again(spark: SparkSession, tmp_path: Path) -> None:
    """The second run has metrics and plans like the first; the results are those of one run."""
    keys = ["hot" if i % 10 < 6 else f"k{i % 50}" for i in range(500)]
    write_batches(tmp_path / "in", [pa.table({"key": keys})] * 2)
    balance = Balancer("w-choices", checkpoint=str(tmp_path / "chk"))
    found = balance.groupBy(read_batches(spark, tmp_path / "in"), "key").agg(
        F.count("*").alias("n")
    )
    outputs(found, tmp_path / "chk", "update")
    planned(balance, 2)
    (plans,) = tmp_path.glob("chk/unskew/router/*/plans")
    before = {*plans.iterdir()}
    assert before
    cold = ["new" if i % 10 < 6 else f"k{i % 50}" for i in range(500)]
    write_batches(tmp_path / "in", [pa.table({"key": cold})] * 2, first=2)
    last = outputs(found, tmp_path / "chk", "update")[-1]
    planned(balance, 4)
    assert {*plans.iterdir()} > before, "the new hot key is planned for"
    everything = spark.read.parquet(str(tmp_path / "in")).groupBy("key").count()
    assert {*last} <= {*in_order(everything)}
