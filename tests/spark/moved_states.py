"""Random streams of functions with state, plain and with all keys on the move.

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
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

sys.path.insert(0, str(Path(__file__).parents[1]))

from spark.streams import read_batches, write_batches
from unskew.spark import Balancer
from unskew.spark.planned import plan_key
from unskew.spark.plans import PlanFolder, SplitPlan

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
"""Types of keys, with some that hash alike."""
KINDS = ("function", "timeouts", "processor", "timers")
STATE = (
    "n bigint, s string, f float, d decimal(10,2), h smallint, r struct<a:int,b:string>, "
    "t timestamp, y date, b binary, x double, o boolean"
)
"""Neither arrays nor maps: Spark 4.3 cannot read such states of functions itself."""
OUTPUT = "key string, what string"


def odd_state(n: int) -> tuple[Any, ...]:
    """Return a state of which Spark keeps something else."""
    return (
        n,
        f"s{n}" if n % 3 else "",
        n / 7,
        Decimal(n) / 7,
        70_000 + n,
        (n, "b") if n % 4 else None,
        datetime(2020, 1, 1) + timedelta(seconds=n, microseconds=n),
        date(2020, 1, 1) + timedelta(days=n),
        b"\x00" * n,
        n / 9 if n % 5 else n,  # an integer is none of Spark's doubles
        None if n % 6 == 0 else n % 2 == 0,
    )


def fold(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any, times_out: bool
) -> Iterator[pd.DataFrame]:
    """Tell what the state is, and set another one."""
    before = repr(state.getOption)
    if state.hasTimedOut:
        yield _row(key, f"timed out with {before}")
        if state.exists and state.get[0] % 3 == 0:
            state.update(odd_state(state.get[0] + 100))  # goes on
        elif not state.exists or state.get[0] % 4:  # else it times out again
            state.remove()
        return
    rows = pd.concat(list(chunks))
    n = (state.get[0] if state.exists else 0) + len(rows)
    yield _row(key, f"{before} and {rows['x'].tolist()}")
    if rows["x"].iloc[-1] % 5 == 0:
        return  # and leave it as it is
    if rows["x"].iloc[-1] % 7 == 0:
        state.remove()
    else:
        state.update(odd_state(n))
    if times_out and rows["x"].iloc[-1] % 3:  # also without a state
        latest = int(rows["time"].max().timestamp() * 1000)
        state.setTimeoutTimestamp(max(latest + 2000, state.getCurrentWatermarkMs() + 1))


def _row(key: tuple[Any, ...], what: str) -> pd.DataFrame:
    return pd.DataFrame({"key": [repr(key)], "what": [what]})


class Several(StatefulProcessor):
    """Keeps a value, a list and a map, and tells what it has; with timers, if there are any."""

    def __init__(self, timers: bool) -> None:
        self.timers = timers

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.value = handle.getValueState("value", "f float, d decimal(10,2), h smallint")
        self.list = handle.getListState("list", "x bigint, r struct<a:int,b:string>")
        self.map = handle.getMapState("map", "k string", "v array<float>")

    def told(self) -> str:
        """Return all that there is."""
        pairs = sorted((repr(k), repr(v)) for k, v in self.map.iterator())
        timers = sorted(self.handle.listTimers()) if self.timers else []
        return f"{self.value.get()} {[*self.list.get()]} {pairs} {timers}"

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        given = pd.concat(list(rows))
        yield _row(key, f"{self.told()} and {given['x'].tolist()}")
        last = int(given["x"].iloc[-1])
        if last % 7 == 0:
            self.value.clear()
            self.list.clear()
            self.map.clear()
        else:
            self.value.update((last / 7, Decimal(last) / 7, 70_000 + last))
            self.list.appendValue((last, (last, "b")))
            self.map.updateValue((f"k{last % 3}",), ([last / 3, None],))
        if self.timers and last % 3:  # also without a state
            latest = int(given["time"].max().timestamp() * 1000)
            now = timerValues.getCurrentWatermarkInMs()
            self.handle.registerTimer(max(latest + 2000, now + 1))

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        yield _row(key, f"timer {expiredTimerInfo.getExpiryTimeInMs()} with {self.told()}")
        self.list.clear()

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Case:
    """A stream of a function with state, and what is done to its keys.

    Parameters
    ----------
    kind, key
        Of the function, and the type of the key.
    batches
        Rows: the number of a key, a value, and a time in seconds.
    plans
        Before each batch but the first: the worker of each key by number, and those that are
        active.
    restarts
        Batches before which the query is started anew.
    elastic
        Whether workers come and go.
    """

    kind: str
    key: str
    batches: tuple[tuple[tuple[int, int, int], ...], ...]
    plans: tuple[tuple[dict[int, int], tuple[int, ...]], ...]
    restarts: frozenset[int] = frozenset()
    elastic: bool = False
    workers: int = 4

    @classmethod
    def random(cls, seed: int) -> Case:
        """Return some case."""
        rng = random.Random(seed)
        kind, key = rng.choice(KINDS), rng.choice([*KEYS])
        if key in ("array", "double") and kind in ("processor", "timers"):
            key = "struct"  # Spark's processors have no arrays, and take null and NaN for one
        numbers, n, workers = range(len(KEYS[key][1])), rng.randint(3, 6), rng.choice([2, 4, 5])
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
        return cls(kind, key, tuple(batches), tuple(plans), restarts, rng.random() < 0.5, workers)

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
    """A run of a case; results come by batch."""

    spark: SparkSession
    case: Case
    folder: Path
    found: dict[int, list[Any]] = field(default_factory=dict)

    def plain(self) -> dict[int, list[Any]]:
        """Return what plain Spark makes of it."""
        return self._by(lambda rows: self._spark(rows.groupBy("key")), "plain", lambda _: None)

    def moved(self) -> dict[int, list[Any]]:
        """Return what becomes of it if keys move all the time."""
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
                self.balance.activate(active, n_workers=self.case.workers)
            places = {ids[number] % 2**64: worker for number, worker in wanted.items()}
            split = SplitPlan.of(self.case.workers, sorted(places.items()), batch + 1, "test")
            PlanFolder(f"{checkpoint}/unskew/router/states/plans").save(split)

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

            out = build(rows).writeStream.foreachBatch(take).outputMode("update")
            out = out.option("checkpointLocation", str(self.folder / name))
            out.trigger(availableNow=True).start().awaitTermination()
            first = stop
        return found

    def _spark(self, grouped: Any) -> DataFrame:
        if self.case.kind in ("function", "timeouts"):
            found = grouped.applyInPandasWithState(
                self._fold, OUTPUT, STATE, "update", self._timeout
            )
        else:
            found = grouped.transformWithStateInPandas(
                self._processor, OUTPUT, "update", self._mode
            )
        return cast(DataFrame, found)

    def _balanced(self, rows: DataFrame, balance: Balancer) -> DataFrame:
        if self.case.kind in ("function", "timeouts"):
            return balance.apply_in_pandas_with_state(
                rows,
                "key",
                function=self._fold,
                output=OUTPUT,
                state=STATE,
                timeout=self._timeout,
            )
        return balance.transform_with_state_in_pandas(
            rows, "key", processor=self._processor, output=OUTPUT, time_mode=self._mode
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
    """Return what is different between the plain run and the other one; nothing if nothing is."""
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
    """Return what went wrong in a task, if anything did."""
    found = re.findall(r"^(?:[\w.]*\.)?\w*(?:Error|Exception): .*", str(error), re.MULTILINE)
    inner = [line for line in found if "was thrown from the Python worker" not in line]
    return str((inner or found or [str(error)])[0])[:500]


def main() -> None:
    """Run random cases; print what is different."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    options = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.host", "127.0.0.1")
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
