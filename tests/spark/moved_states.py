"""Random streams of functions with state, plain and with all keys moving.

python tests/spark/moved_states.py [--cases 200] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

sys.path.insert(0, TESTS := str(Path(__file__).parents[1]))

from spark.odd_states import OUTPUT, STATE, Several, fold
from spark.streams import read_batches, write_batches
from unskew.spark import Balancer
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan
from unskew.spark.routing.planned import plan_key

STRUCT = pa.struct([("a", pa.int32()), ("b", pa.int32())])
KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), [None, "", "a", "b,c", 'q"', "ü", "null", "z" * 300]),
    "bigint": (pa.int64(), [None, 0, -1, 2**62, 5, 7, 11, 13]),
    "struct": (
        STRUCT,
        [
            None,
            *({"a": a, "b": b} for a, b in ((None, 5), (5, None), (None, None), (5, 5), (0, 1))),
        ],
    ),
    "array": (pa.list_(pa.int32()), [None, [], [None], [1], [1, None], [None, 1], [2]]),
    "double": (pa.float64(), [None, float("nan"), 0.0, 1.5, float("inf"), -1.5]),
    "date": (pa.date32(), [None, date(1, 1, 1), date(2020, 2, 29), date(9999, 12, 31)]),
    "decimal": (pa.decimal128(20, 3), [None, Decimal("1.500"), Decimal("-7.125"), Decimal(0)]),
    "binary": (pa.binary(), [None, b"", b"\x00", b"a,b", b"\xff\xfe"]),
}
"""Types of keys, with some values whose hashes are equal."""
KINDS = ("function", "timeouts", "processor", "timers")


@dataclass(frozen=True)
class Case:
    """A stream of a function with state, and the moves of its keys.

    Parameters
    ----------
    kind, key
        The kind of the function, and the type of the key.
    batches
        The rows of each batch: the number of a key, a value, and a time in seconds.
    plans
        Before each batch except the first: the worker of each key by number, and the workers that
        are active.
    restarts
        The batches before which the query is restarted.
    elastic
        Whether workers join and leave.
    mode, spelled
        The output mode, and how the key is written in ``groupBy``.
    primed
        Whether the first plan exists before the query starts.
    """

    kind: str
    key: str
    batches: tuple[tuple[tuple[int, int, int], ...], ...]
    plans: tuple[tuple[dict[int, int], tuple[int, ...]], ...]
    restarts: frozenset[int] = frozenset()
    elastic: bool = False
    workers: int = 4
    mode: str = "update"
    spelled: str = "key"
    primed: bool = False

    @classmethod
    def random(cls, seed: int) -> Case:
        """Return a random case."""
        rng = random.Random(seed)
        kind, key = rng.choice(KINDS), rng.choice([*KEYS])
        if key in ("array", "double") and kind in ("processor", "timers"):
            key = "struct"  # Spark's processors have no arrays, and treat null and NaN as one
        # Spark's processors mix up the states of all keys if a numeric key is null.
        first = 1 if key == "bigint" and kind in ("processor", "timers") else 0
        numbers = range(first, len(KEYS[key][1]))
        n, workers = rng.randint(3, 6), rng.choice([2, 4, 5])
        batches, plans, at = [], [], 0
        for _ in range(n):
            at += rng.choice([0, 1, 3, 10])
            some = rng.sample([*numbers], rng.randint(1, len(numbers)))
            rows = [(k, rng.randint(1, 40), at + rng.randint(0, 2)) for k in some for _ in "ab"]
            batches.append(tuple(rows))
            plan = {k: rng.randrange(workers) for k in numbers if rng.random() < 0.8}
            active = rng.sample(range(workers), rng.randint(1, workers))
            plans.append((plan, tuple(active)))
        restarts = frozenset(b for b in range(1, n) if rng.random() < 0.25)
        elastic, mode = rng.random() < 0.5, rng.choice(["update", "append"])
        how = (restarts, elastic, workers, mode, rng.choice(["key", "KEY"]), rng.random() < 0.5)
        return cls(kind, key, tuple(batches), tuple(plans), *how)

    def tables(self) -> list[pa.Table]:
        """Return the rows of each batch."""
        kind, values = KEYS[self.key]
        return [
            pa.table(
                {
                    "key": pa.array([values[k] for k, _, _ in rows], kind),
                    "x": pa.array([x for _, x, _ in rows], pa.int64()),
                    "time": pa.array(
                        [datetime(2024, 1, 1) + timedelta(seconds=at) for _, _, at in rows],
                        pa.timestamp("us", "UTC"),
                    ),
                }
            )
            for rows in self.batches
        ]


@dataclass
class Run:
    """A run of a case, with its results by batch."""

    spark: SparkSession
    case: Case
    folder: Path
    found: dict[int, list[Any]] = field(default_factory=dict)

    def plain(self) -> dict[int, list[Any]]:
        """Return the results of plain Spark."""
        return self._by(
            lambda rows: self._spark(rows.groupBy(self.case.spelled)), "plain", lambda _: None
        )

    def moved(self) -> dict[int, list[Any]]:
        """Return the results if keys move all the time."""
        checkpoint = str(self.folder / "moved")
        ids = self._ids()

        def build(rows: DataFrame) -> DataFrame:
            active = range(self.case.workers) if self.case.elastic else None
            self.balance = Balancer("key", checkpoint=checkpoint, active=active)
            return self._balanced(rows, self.balance)

        def plan(batch: int) -> None:
            if batch >= len(self.case.plans):
                return
            wanted, active = self.case.plans[batch]
            if self.case.elastic:
                self.balance.activate(active)
            save(wanted, batch + 1)

        def save(wanted: dict[int, int], version: int) -> None:
            places = {ids[number] % 2**64: worker for number, worker in wanted.items()}
            split = SplitPlan.of(self.case.workers, sorted(places.items()), version, "test")
            PlanFolder(f"{checkpoint}/unskew/router/states/plans").save(split)

        if self.case.primed:
            save(self.case.plans[-1][0], 1)
        return self._by(build, "moved", plan)

    def _by(
        self, build: Callable[[DataFrame], DataFrame], name: str, plan: Callable[[int], None]
    ) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = {}
        tables, source = self.case.tables(), self.folder / f"{name}-in"
        self.spark.conf.set("spark.sql.shuffle.partitions", self.case.workers)
        first = 0
        for stop in (*sorted(self.case.restarts), len(tables)):
            write_batches(source, tables[first:stop], first)
            rows = read_batches(self.spark, source).withWatermark("time", "1 second")

            def take(batch: DataFrame, number: int) -> None:
                found[number] = sorted(map(tuple, batch.collect()))
                plan(number)

            out = build(rows).writeStream.foreachBatch(take).outputMode(self.case.mode)
            out = out.option("checkpointLocation", str(self.folder / name))
            out.trigger(availableNow=True).start().awaitTermination()
            first = stop
        return found

    def _spark(self, grouped: Any) -> DataFrame:
        if self.case.kind in ("function", "timeouts"):
            found = grouped.applyInPandasWithState(
                self._fold, OUTPUT, STATE, self.case.mode, self._timeout
            )
        else:
            found = grouped.transformWithStateInPandas(
                self._processor, OUTPUT, self.case.mode, self._mode
            )
        return cast(DataFrame, found)

    def _balanced(self, rows: DataFrame, balance: Balancer) -> DataFrame:
        if self.case.kind in ("function", "timeouts"):
            return balance.groupBy(rows, self.case.spelled).applyInPandasWithState(
                self._fold, OUTPUT, STATE, self.case.mode, self._timeout
            )
        return balance.groupBy(rows, self.case.spelled).transformWithStateInPandas(
            self._processor, OUTPUT, self.case.mode, self._mode
        )

    @property
    def _fold(self) -> Any:
        return partial(fold, times_out=self.case.kind == "timeouts")

    @property
    def _timeout(self) -> str:
        timeouts = self.case.kind == "timeouts"
        return GroupStateTimeout.EventTimeTimeout if timeouts else GroupStateTimeout.NoTimeout

    @property
    def _processor(self) -> StatefulProcessor:
        return Several(self.case.kind == "timers")

    @property
    def _mode(self) -> str:
        return "EventTime" if self.case.kind == "timers" else "None"

    def _ids(self) -> list[int]:
        kind, values = KEYS[self.case.key]
        table = pa.table({"key": pa.array(values, kind), "n": range(len(values))})
        df = self.spark.createDataFrame(table)
        found = df.select("n", plan_key([F.col("key")]).alias("id")).collect()
        return [row["id"] for row in sorted(found)]


def difference(spark: SparkSession, case: Case) -> str:
    """Return the difference between the plain run and the other; empty if they are the same."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        run = Run(spark, case, Path(name))
        try:
            plain = run.plain()
        except StreamingQueryException as error:
            return f"plain fails: {cause(error)}"
        try:
            moved = run.moved()
        except StreamingQueryException as error:
            return f"moved fails: {cause(error)}"
    if plain == moved:
        return ""
    for batch in sorted({*plain, *moved}):
        one, other = plain.get(batch, []), moved.get(batch, [])
        if one != other:
            return f"batch {batch}: plain {[r for r in one if r not in other]}, moved " + str(
                [r for r in other if r not in one]
            )
    raise AssertionError


def cause(error: Exception) -> str:
    """Return the error of a failed task, if there is one."""
    found = re.findall(r"^(?:[\w.]*\.)?\w*(?:Error|Exception): .*", str(error), re.MULTILINE)
    inner = [line for line in found if "was thrown from the Python worker" not in line]
    return str((inner or found or [str(error)])[0])[:500]


def main() -> None:
    """Run random cases; print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    options = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    os.environ["PYTHONPATH"] = os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.daemon.module", "unskew.spark.warm_daemon")
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    started, bad, kinds = time.time(), [], dict.fromkeys(KINDS, 0)
    for n in range(options.first, options.first + options.cases):
        case = Case.random(options.seed * 1_000_000 + n)
        kinds[case.kind] += 1
        found = difference(spark, case)
        if found:
            bad.append(n)
            print(n, replace(case, batches=(), plans=()), found, flush=True)
        if n % 10 == 9 or n == options.first + options.cases - 1:
            took = time.time() - started
            print(
                f"{n + 1 - options.first} cases, {took:.0f} s, {len(bad)} differences", flush=True
            )
    print(json.dumps({"cases": options.cases, "kinds": kinds, "differences": bad}))
    spark.stop()
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
