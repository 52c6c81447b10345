"""States that move on real Spark: the results of plain Spark, or a refusal with a way out."""

from __future__ import annotations

import pickle
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from spark.moved_states import KINDS, Case, cause, difference
from spark.streams import outputs, read_batches, write_batches
from unskew.spark import Balancer
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan
from unskew.spark.routing.planned import plan_key
from unskew.spark.state import exports, move_log, record
from unskew.spark.state.log_identity import LostStateError

WORKERS = 3

pytestmark = pytest.mark.usefixtures("three_workers")


def first_of(kind: str, elastic: bool) -> Case:
    """Return the first random case of a kind."""
    cases = (Case.random(seed) for seed in range(1000))
    return next(case for case in cases if (case.kind, case.elastic) == (kind, elastic))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("elastic", [False, True])
def test_moved_states_are_those_of_plain_spark(
    spark: SparkSession, kind: str, elastic: bool
) -> None:
    assert difference(spark, first_of(kind, elastic)) == ""


def counted(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any
) -> Iterator[pd.DataFrame]:
    """Count the rows of a key, and emit the worker that counted them."""
    n = (state.get[0] if state.exists else 0) + sum(map(len, chunks))
    state.update((n,))
    context = TaskContext.get()
    assert context is not None
    yield pd.DataFrame({"key": [str(key[0])], "n": [n], "worker": [context.partitionId()]})


@dataclass
class Counts:
    """A query that counts rows, is started and stopped, and follows plans made by hand."""

    spark: SparkSession
    folder: Path
    name: str = "router"
    scheme: str = "key"
    active: Any = None
    batches: int = 0
    found: dict[int, list[Any]] = field(default_factory=dict)

    def put(self, *batches: list[Any]) -> Counts:
        """Write batches of keys."""
        kind = pa.float64() if isinstance(batches[0][0], float) else pa.string()
        tables = [pa.table({"key": pa.array(keys, kind)}) for keys in batches]
        write_batches(self.folder / "in", tables, self.batches)
        self.batches += len(batches)
        return self

    def run(self, then: Callable[[int], None] = lambda number: None) -> dict[int, list[Any]]:
        """Run the query over all batches so far; return the results by batch."""
        checkpoint = str(self.folder / "checkpoint")
        self.balance = Balancer(
            self.scheme, checkpoint=checkpoint, name=self.name, active=self.active
        )
        found = self.balance.groupBy(
            read_batches(self.spark, self.folder / "in"), "key"
        ).applyInPandasWithState(
            counted, "key string, n bigint, worker int", "n bigint", "update", "NoTimeout"
        )

        def take(batch: DataFrame, number: int) -> None:
            self.found[number] = sorted(map(tuple, batch.collect()))
            then(number)

        out = found.writeStream.foreachBatch(take).outputMode("update")
        out = out.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        out.start().awaitTermination()
        return self.found

    def plan(self, places: dict[str, int], version: int = 1) -> None:
        """Save a plan that puts keys on workers."""
        df = self.spark.createDataFrame([(key,) for key in places], "key string")
        ids = df.select("key", plan_key([F.col("key")]).alias("id")).collect()
        rows = sorted((row["id"] % 2**64, places[row["key"]]) for row in ids)
        PlanFolder(str(self.states / "plans")).save(SplitPlan.of(WORKERS, rows, version, "test"))

    @property
    def states(self) -> Path:
        return self.folder / "checkpoint/unskew" / self.name / "states"

    def failure(self) -> str:
        """Return the error of the query."""
        with pytest.raises((StreamingQueryException, LostStateError)) as error:
            self.run()
        return cause(error.value)


def test_active_is_neither_added_nor_left_out(spark: SparkSession, tmp_path: Path) -> None:
    counts = Counts(spark, tmp_path).put(["a", "b"])
    counts.run()
    counts.put(["a", "b"]).active = range(2)
    assert "had no active=...: leave it out" in counts.failure()


def test_lost_and_foreign_folders_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    counts = Counts(spark, tmp_path).put(["a", "b"])
    counts.run()
    counts.put(["a", "b"])
    # Another name means another folder.
    counts.name = "other"
    assert re.search(
        "has run before, and there is no record .*the name that it had", counts.failure()
    )
    counts.name = "router"
    shutil.move(tmp_path / "checkpoint/unskew", tmp_path / "kept")
    assert "restore that folder" in counts.failure()
    shutil.rmtree(tmp_path / "checkpoint/unskew", ignore_errors=True)
    shutil.move(tmp_path / "kept", tmp_path / "checkpoint/unskew")
    (counts.states / "orders/0").rename(tmp_path / "orders-0")
    assert re.search(
        r"orders/0 \(the orders of a batch\): the file is missing; restore", counts.failure()
    )
    (tmp_path / "orders-0").rename(counts.states / "orders/0")
    assert [row[:2] for row in counts.run()[1]] == [("a", 2), ("b", 2)]


class Bomb:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_crafted_file_runs_no_code(spark: SparkSession, tmp_path: Path) -> None:
    counts = Counts(spark, tmp_path).put(["a"], ["a"])
    counts.run(lambda number: counts.plan({"a": number % WORKERS, "x": 0}, number + 1))
    moves = sorted((counts.states / "moves").glob("*/*"), key=lambda path: path.stat().st_mtime)
    assert moves
    bomb = pickle.dumps(Bomb(tmp_path / "ran"))
    for path in moves:
        path.write_bytes(bomb)
    counts.put(["a"])
    assert "restore that file as it was" in counts.failure()
    assert not (tmp_path / "ran").exists()
    for module in (exports, record, move_log):
        assert not hasattr(module, "pickle")


def test_new_keys_are_born_where_they_belong(spark: SparkSession, tmp_path: Path) -> None:
    names = [[f"k{number}-{n}" for n in range(20)] for number in range(5)]
    counts = Counts(spark, tmp_path, active=range(WORKERS))
    counts.put(*[names[0], names[1] + names[0], *[names[n] + names[0][:5] for n in (2, 3, 4)]])
    gone = WORKERS - 1

    def leave(number: int) -> None:
        if number == 0:
            counts.balance.activate(range(gone))

    found = counts.run(leave)
    assert {row[2] for row in found[0]} == {0, 1, 2}
    for number in range(1, 5):
        new = [row for row in found[number] if row[0] in names[number]]
        assert len(new) == 20
        assert gone not in {row[2] for row in new}
    # The keys of a worker that left move with their first rows.
    assert gone in {row[2] for row in found[1]}
    assert gone not in {row[2] for number in (2, 3, 4) for row in found[number]}
    assert [row[1] for row in found[4] if row[0] in names[0]] == [5] * 5


def test_minus_zero_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    counts = Counts(spark, tmp_path).put([1.5, 0.0])
    counts.run()
    counts.put([0.0, -0.0])
    with pytest.raises(StreamingQueryException, match=r"a key is -0\.0.*F\.col\(key\) \+ 0\.0"):
        counts.run()


class Timeless(StatefulProcessor):
    """Counts rows; sets no timer, and fails if it sees one."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle, self.count = handle, handle.getValueState("n", "n bigint")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        assert [*self.handle.listTimers()] == []
        (n,) = self.count.get() or (0,)
        n += sum(map(len, rows))
        self.count.update((n,))
        yield pd.DataFrame({"key": [key[0]], "n": [n]})

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        raise AssertionError("a timer that nobody set")

    def close(self) -> None:
        pass


def test_null_numbers_are_no_keys_of_processors(spark: SparkSession, tmp_path: Path) -> None:
    write_batches(tmp_path / "in", [pa.table({"key": pa.array([1, None, 2], pa.int64())})])
    checkpoint = str(tmp_path / "checkpoint")
    rows = read_batches(spark, tmp_path / "in")
    grouped = Balancer("key", checkpoint=checkpoint).groupBy(rows, "key")
    found = grouped.transformWithStateInPandas(
        Timeless(), "key bigint, n bigint", "update", "ProcessingTime"
    )
    with pytest.raises(StreamingQueryException, match=r"is a number is null.*F\.coalesce"):
        outputs(found, tmp_path / "checkpoint", "update")


def test_processors_see_no_timers_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    counts = Counts(spark, tmp_path).put(*[["a", "b", "c"]] * 4)
    checkpoint = str(tmp_path / "checkpoint")
    totals: list[list[Any]] = []
    balance = Balancer("key", checkpoint=checkpoint)
    found = balance.groupBy(read_batches(spark, tmp_path / "in"), "key").transformWithStateInPandas(
        Timeless(), "key string, n bigint", "update", "ProcessingTime"
    )

    def take(batch: DataFrame, number: int) -> None:
        totals.append(sorted(map(tuple, batch.collect())))
        counts.plan({"a": number % 3, "b": (number + 1) % 3, "c": 0}, number + 1)

    out = found.writeStream.foreachBatch(take).outputMode("update")
    # Not with availableNow: with processing-time timers, Spark would never stop.
    out = out.option("checkpointLocation", checkpoint).trigger(processingTime="1 second")
    query = out.start()
    until = time.time() + 120
    while query.isActive and len([*filter(None, totals)]) < 4 and time.time() < until:
        time.sleep(0.2)
    query.stop()
    assert query.exception() is None
    results = [batch for batch in totals if batch]
    assert results == [[("a", n), ("b", n), ("c", n)] for n in (1, 2, 3, 4)]
