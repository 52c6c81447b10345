"""Every operator on every stream: plain Spark, and a balancer that chooses its own scheme.

A table of throughputs, plain Spark = 1. Operators in Python sleep for each record, so that a small
machine behaves like a large one; native operators do not. With ``--reference`` the last stream also
runs plain with uniform keys, as many as the balanced query has groups: what the engine could reach.

    python benchmarks/operators.py                                        # half an hour
    python benchmarks/operators.py --streams uniform,2.0 --operators state,whole --reference
    python benchmarks/operators.py --records 200 --batches 12 --delay-us 0    # small batches
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from unskew.spark import Balancer
from unskew.spark import functions as UF
from unskew.spark.grouped import Grouped
from unskew.spark.session import embedded_session
from unskew.workloads import EvolvingZipf, Zipf

START_S, BATCH_S, FILES = 1_767_225_600, 60, 2
MOST = timedelta(seconds=BATCH_S)
STREAMS = ("uniform", "1.0", "1.4", "2.0", "evolving")
"""Zipf exponents, and a stream of exponent 1.4 whose ranks turn over halfway."""
COUNTS, COUNT = "key string, n bigint", "n bigint"


def write(folder: Path, stream: str, keys: int, options: argparse.Namespace) -> None:
    """Write the batches of a stream, two files each, and a table of keys for each batch."""
    size, batches = options.records // FILES, options.warm_up + options.batches
    total = size * FILES * batches
    if stream == "evolving":
        ids = EvolvingZipf(1.4, keys, total, shift=0.5, seed=options.seed).ids(size)
    else:
        z = 0.0 if stream == "uniform" else float(stream)
        ids = Zipf(z, keys, total, seed=options.seed).ids(size)
    names = pa.array([f"key-{k}" for k in range(keys + 1)])
    (folder / "in").mkdir(parents=True)
    (folder / "keys").mkdir()
    for number, part in enumerate(ids):
        at_s = START_S + BATCH_S * (
            number // FILES + np.sort(np.random.default_rng(number).random(len(part)))
        )
        table = {"key": names.take(pa.array(part)), "x": np.arange(len(part)), "at": times(at_s)}
        save(table, folder / "in" / f"{number:05d}.parquet", number)
    for batch in range(batches):
        at_s = np.full(keys, START_S + BATCH_S * (batch + 1.0))
        table = {"key": names[1:], "y": np.arange(keys), "seen": times(at_s)}
        save(table, folder / "keys" / f"{batch:05d}.parquet", batch)


def times(seconds: Any) -> pa.Array:
    """Return times as Spark's timestamps."""
    return pa.array((seconds * 1e6).astype(np.int64), pa.timestamp("us", "UTC"))


def save(columns: dict[str, Any], path: Path, number: int) -> None:
    """Write a file whose time says its place in the order."""
    pq.write_table(pa.table(columns), path)
    os.utime(path, (1e9 + number,) * 2)


def count_rows(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any, delay_s: float
) -> Iterator[pd.DataFrame]:
    """Count the rows of a key, and sleep for each."""
    seen = sum(map(len, chunks))
    time.sleep(delay_s * seen)
    state.update((seen + (state.get[0] if state.exists else 0),))
    yield pd.DataFrame({"key": [key[0]], "n": state.get})


@dataclass
class SlowCount:
    """A CombineFn that counts, and sleeps for each element."""

    delay_s: float

    def create_accumulator(self) -> int:
        """Return zero."""
        return 0

    def add_input(self, accumulator: int, element: Any) -> int:
        """Add one."""
        return self.add_inputs(accumulator, [element])

    def add_inputs(self, accumulator: int, elements: list[Any]) -> int:
        """Add the number of elements."""
        time.sleep(self.delay_s * len(elements))
        return accumulator + len(elements)

    def merge_accumulators(self, accumulators: Iterable[int]) -> int:
        """Add up."""
        return sum(accumulators)

    def extract_output(self, accumulator: int) -> int:
        """Return the count."""
        return accumulator


def slowly(chunks: Iterator[pd.DataFrame], delay_s: float) -> Iterator[pd.DataFrame]:
    """Sleep for each result of a join."""
    for chunk in chunks:
        time.sleep(delay_s * len(chunk))
        yield chunk[["key", "x", "y"]]


class Inputs:
    """The streams that operators read, and their delay."""

    def __init__(self, spark: SparkSession, folder: Path, delay_s: float) -> None:
        self.spark, self.folder, self.delay_s = spark, folder, delay_s

    @property
    def rows(self) -> DataFrame:
        """The skewed stream."""
        return self._read("in", "key string, x bigint, at timestamp", FILES)

    @property
    def keys(self) -> DataFrame:
        """The stream that has each key once in a batch."""
        return self._read("keys", "key string, y bigint, seen timestamp", 1)

    def _read(self, name: str, schema: str, files: int) -> DataFrame:
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", files)
        return reader.parquet(str(self.folder / name))


def count(inputs: Inputs, balance: Balancer | None) -> DataFrame:
    """Count: Spark combines it before the shuffle."""
    return grouped(inputs.rows, balance).count()


def collect_set(inputs: Inputs, balance: Balancer | None) -> DataFrame:
    """Collect the values of each key."""
    values = F.size(F.collect_set(F.col("x") % 16)).alias("n")
    return grouped(inputs.rows, balance).agg(values)


def combine(inputs: Inputs, balance: Balancer | None) -> DataFrame:
    """Run a CombineFn; plain, a function with state that does the same."""
    if balance is None:
        return whole(inputs, None)
    function = UF.combine(SlowCount(inputs.delay_s), "x", returns="bigint").alias("n")
    return balance.groupBy(inputs.rows, "key").agg(function)


def state(inputs: Inputs, balance: Balancer | None) -> DataFrame:
    """Run a function with state over (key, slot), as users do who merge by themselves."""
    if balance is None:
        return whole(inputs, None)
    routed = balance.route(inputs.rows, "key").groupBy("key", "slot")
    function = partial(count_rows, delay_s=inputs.delay_s)
    return routed.applyInPandasWithState(
        function, COUNTS, COUNT, "update", GroupStateTimeout.NoTimeout
    )


def whole(inputs: Inputs, balance: Balancer | None) -> DataFrame:
    """Run a function with state over whole keys, which move."""
    function = partial(count_rows, delay_s=inputs.delay_s)
    return grouped(inputs.rows, balance).applyInPandasWithState(
        function, COUNTS, COUNT, "update", GroupStateTimeout.NoTimeout
    )


def join(inputs: Inputs, balance: Balancer | None) -> DataFrame:
    """Join two streams by key and time."""
    rows = inputs.rows.withWatermark("at", "1 second")
    keys = inputs.keys.withWatermark("seen", "1 second")
    if balance is None:
        near = F.expr("seen >= at and seen <= at + interval 60 seconds")
        same = F.col("l.key") == F.col("r.key")
        pairs = rows.alias("l").join(keys.alias("r"), same & near).select("l.key", "x", "y")
    else:
        within = (timedelta(0), MOST)
        pairs = balance.join(rows, keys, "key", times=("at", "seen"), within=within)
    schema = "key string, x bigint, y bigint"
    return pairs.mapInPandas(partial(slowly, delay_s=inputs.delay_s), schema)


def grouped(rows: DataFrame, balance: Balancer | None) -> Grouped:
    """Return the rows by key, plain or balanced."""
    if balance is None:
        return cast(Grouped, rows.groupBy("key"))  # the methods are the same
    return balance.groupBy(rows, "key")


Operator = Callable[[Inputs, Balancer | None], DataFrame]
OPERATORS: dict[str, Operator] = {
    o.__name__: o for o in (count, collect_set, combine, state, whole, join)
}


def run(
    spark: SparkSession, folder: Path, operator: str, balanced: bool, options: argparse.Namespace
) -> dict[str, Any]:
    """Run an operator; return the seconds of its batches, the groups, and the last loads."""
    with tempfile.TemporaryDirectory(prefix="unskew-bench-", ignore_cleanup_errors=True) as chk:
        balance = Balancer(checkpoint=chk) if balanced else None
        inputs = Inputs(spark, folder, options.delay_us / 1e6)
        out = OPERATORS[operator](inputs, balance).writeStream.format("noop")
        out = out.outputMode("append" if operator == "join" else "update")
        query = out.option("checkpointLocation", chk).start()
        try:
            batches: list[Any] = []
            while len(batches) < options.warm_up + options.batches and query.isActive:
                time.sleep(0.1)
                batches = [p for p in query.recentProgress if p["numInputRows"]]
            if (error := query.exception()) is not None:
                raise RuntimeError(str(error))
        finally:
            query.stop()
        seconds = [p["durationMs"]["addBatch"] / 1000 for p in batches]
        loads = balance.metrics[-1].loads if balance is not None and balance.metrics else []
        return {
            "seconds": seconds,
            "median_s": float(np.median(seconds[options.warm_up :])),
            "groups": max(s["numRowsTotal"] for s in batches[-1]["stateOperators"]),
            "max_over_mean": max(loads) * len(loads) / sum(loads) if loads else None,
        }


def compare(
    spark: SparkSession, root: Path, stream: str, operator: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Run an operator on a stream, plain and balanced."""
    folder = root / stream
    if not folder.exists():
        write(folder, stream, options.keys, options)
    plain, balanced = (run(spark, folder, operator, b, options) for b in (False, True))
    result = {
        "stream": stream,
        "operator": operator,
        "plain": plain,
        "balanced": balanced,
        "over_plain": plain["median_s"] / balanced["median_s"],
        "added_s": balanced["median_s"] - plain["median_s"],
    }
    if options.reference and stream == options.streams[-1] and operator != "join":
        even = root / f"uniform-{balanced['groups']}"
        if not even.exists():
            write(even, "uniform", balanced["groups"], options)
        ideal = run(spark, even, operator, False, options)
        result["over_uniform"] = ideal["median_s"] / balanced["median_s"]
    return result


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commas = partial(str.split, sep=",")
    parser.add_argument("--streams", type=commas, default=[*STREAMS])
    parser.add_argument("--operators", type=commas, default=[*OPERATORS])
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--records", type=int, default=60_000, help="of a batch")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--warm-up", type=int, default=3, help="batches that do not count")
    parser.add_argument("--delay-us", type=float, default=500.0, help="of a record, in Python")
    parser.add_argument("--reference", action="store_true", help="also plain with uniform keys")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if unknown := {*options.operators} - {*OPERATORS}:
        parser.error(f"unknown operators: {', '.join(unknown)}; known: {', '.join(OPERATORS)}")
    results = []
    if not options.json:
        print("stream     operator      plain s  balanced s  added s  over plain  max/mean")
    with tempfile.TemporaryDirectory() as name, embedded_session(options.workers) as spark:
        for stream in options.streams:
            for operator in options.operators:
                r = compare(spark, Path(name), stream, operator, options)
                results.append(r)
                if options.json:
                    continue
                busiest, even = r["balanced"]["max_over_mean"], r.get("over_uniform")
                print(
                    f"{stream:10s} {operator:12s} {r['plain']['median_s']:8.2f} "
                    f"{r['balanced']['median_s']:11.2f} {r['added_s']:8.2f} "
                    f"{r['over_plain']:11.2f} {busiest or float('nan'):9.2f}"
                    + (f"   {even:.2f} of plain with uniform keys" if even else ""),
                    flush=True,
                )
    if options.json:
        print(json.dumps({"options": vars(options), "results": results}))


if __name__ == "__main__":
    main()
