"""Functions with state over keys that move: the results of plain Spark, on real streams."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from unskew.plan import Plan
from unskew.planners import PLANNERS, Planner, Proposal, Statistics
from unskew.planners.problem import Homes, Problem
from unskew.spark import Balancer
from unskew.workloads import Zipf

SCHEMA = "key string, x bigint, file bigint"
OUTPUT = "key string, n bigint, chain bigint, file bigint"
STATE = "n bigint, chain bigint"


class Restless(Planner):
    """Sends every key that it knows somewhere else, after every batch."""

    name: ClassVar[str] = "restless"

    def plan(self, statistics: Statistics, plan: Plan) -> Proposal:
        problem = Problem.of(statistics, plan)
        return problem.proposal(self._homes(problem), self.name, 0.0)

    def _homes(self, problem: Problem) -> Homes:
        rng = np.random.default_rng(problem.old.version)
        return rng.integers(0, len(problem.capacities), len(problem.keys)).astype(np.int32)


@pytest.fixture(autouse=True)
def _restless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLANNERS, "restless", Restless)


def write_stream(folder: Path, files: int, keys: int, records: int) -> None:
    """Write a drifting stream, a file for each batch, with null among the keys."""
    folder.mkdir()
    for file in range(files):
        ids = np.concatenate(list(Zipf(0.8, keys, records, file).ids()))
        ranks = np.random.default_rng(file // 3).permutation(keys + 1)
        names = [None if i == 0 else f"k{i}" for i in range(keys + 1)]
        table = {
            "key": [names[ranks[i]] for i in ids],
            "x": np.arange(len(ids)) + file * records,
            "file": np.full(len(ids), file),
        }
        path = folder / f"{file:03d}.parquet"
        pq.write_table(pa.table(table), path)
        os.utime(path, (1e9 + file, 1e9 + file))


def read(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder))


def chained(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Fold values in order: any row lost, doubled or out of order shows."""
    n, chain = state.get if state.exists else (0, 7)
    file = -1
    for chunk in chunks:
        assert [*chunk.columns] == ["key", "x", "file"]
        for x in chunk["x"]:
            n, chain = n + 1, (chain * 31 + int(x)) % 1_000_003
        file = int(chunk["file"].iloc[-1])
    state.update((n, chain))
    yield pd.DataFrame({"key": [key[0]], "n": [n], "chain": [chain], "file": [file]})


Results = dict[Any, list[tuple[int, ...]]]


class Sink:
    """Collects results by key in order, and the batch of each; a batch that comes again counts once."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def take(self, batch: DataFrame, number: int) -> None:
        self.batches[number] = batch.collect()

    def by_key(self) -> Results:
        found: Results = defaultdict(list)
        for number in sorted(self.batches):
            for row in self.batches[number]:
                found[row["key"]].append(tuple(row)[1:])
        return found


def start(results: DataFrame, sink: Sink, checkpoint: Path, mode: str = "update") -> StreamingQuery:
    return (
        results.writeStream.foreachBatch(sink.take)
        .outputMode(mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="500 milliseconds")
        .start()
    )


def wait(query: StreamingQuery, done: Callable[[int], bool]) -> None:
    """Wait until a batch of that number is done, then stop."""
    until = time.time() + 120
    try:
        while query.isActive and time.time() < until:
            last = query.lastProgress
            if last is not None and done(last["batchId"]):
                return
            time.sleep(0.1)
        raise AssertionError(f"not done: {query.exception()}")
    finally:
        query.stop()


def plain(spark: SparkSession, folder: Path, checkpoint: Path, files: int) -> Results:
    sink = Sink()
    found = (
        read(spark, folder)
        .groupBy("key")
        .applyInPandasWithState(chained, OUTPUT, STATE, "update", GroupStateTimeout.NoTimeout)
    )
    wait(start(found, sink, checkpoint), lambda batch: batch >= files - 1)
    return sink.by_key()


@pytest.mark.parametrize(
    ("scheme", "files", "least"),
    [
        ("mixed:theta_max=0.02", 6, 1),
        ("restless", 6, 200),
        pytest.param("restless", 16, 1000, marks=pytest.mark.full),
        pytest.param("key", 4, 0, marks=pytest.mark.full),
    ],
)
def test_moved_keys_give_the_results_of_plain_spark(
    spark: SparkSession, tmp_path: Path, scheme: str, files: int, least: int
) -> None:
    write_stream(tmp_path / "in", files, keys=200, records=2000)
    sink, checkpoint, metrics = Sink(), tmp_path / "balanced", []
    for stop in (files // 2, files):  # with a restart in between
        balance = Balancer(scheme, checkpoint=str(checkpoint))
        found = balance.apply_in_pandas_with_state(
            read(spark, tmp_path / "in"), "key", function=chained, output=OUTPUT, state=STATE
        )
        wait(start(found, sink, checkpoint), lambda batch, stop=stop: batch >= stop - 1)  # type: ignore[misc]
        metrics += balance.metrics
    assert sink.by_key() == plain(spark, tmp_path / "in", tmp_path / "plain", files)
    assert sum(found.moved_keys for found in metrics) >= least
    # No row waits; batches and files have the same numbers here.
    assert all(number == row["file"] for number, rows in sink.batches.items() for row in rows)
