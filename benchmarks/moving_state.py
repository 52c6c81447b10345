"""The gain of moving keys with their state: a model for each key, over a fluctuating stream.

A record takes a millisecond of sleep: sleeping tasks need no core. The states of models cannot be
merged, so keys stay whole: plain Spark places them by their hash, planners move them.

    python benchmarks/moving_state.py [--schemes mixed,min-table,readj] [--json]
    python benchmarks/moving_state.py --unequal --schemes mixed,mixed+given,mixed+measured
    python benchmarks/moving_state.py --grow 6 --interval 100 --schemes mixed
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from unskew.spark import Balancer
from unskew.spark.session import embedded_session
from unskew.workloads import FluctuatingZipf

OUTPUT, STATE = "key string, mean double", "n bigint, mean double"


def write(folder: Path, options: argparse.Namespace) -> None:
    """Write two files for each batch, with fixed times, so that they are read in order."""
    folder.mkdir()
    stream = FluctuatingZipf(
        z=options.z,
        keys=options.keys,
        records=options.records * options.batches,
        interval=options.records * options.interval,
        f=options.f,
        workers=options.workers,
        seed=options.seed,
    )
    for batch, ids in enumerate(stream.ids(options.records)):
        half = len(ids) // 2
        for part, part_ids in enumerate((ids[:half], ids[half:])):
            table = pa.table(
                {"key": [f"key-{i}" for i in part_ids], "x": np.sqrt(np.arange(len(part_ids)))}
            )
            path = folder / f"{batch:03d}-{part}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1e9 + 2 * batch + part,) * 2)


def model(
    key: tuple[Any, ...],
    chunks: Iterator[pd.DataFrame],
    state: Any,
    delay_s: float,
    slow: int,
) -> Iterator[pd.DataFrame]:
    """Learn an exponentially weighted mean: an ordered fold, which cannot be merged.

    The first ``slow`` workers take twice as long.
    """
    context = TaskContext.get()
    if context is not None and context.partitionId() < slow:
        delay_s *= 2
    n, mean = state.get if state.exists else (0, 0.0)
    for chunk in chunks:
        for x in chunk["x"].to_numpy():
            n, mean = n + 1, mean + 0.05 * (float(x) - mean)
        time.sleep(delay_s * len(chunk))
    state.update((n, mean))
    yield pd.DataFrame({"key": [key[0]], "mean": [mean]})


def run(
    spark: SparkSession, folder: Path, scheme: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Run the stream, plain or with a planner; return the seconds of its batches and its moves."""
    slow = options.workers // 2 if options.unequal else 0
    function = partial(model, delay_s=options.delay_us / 1e6, slow=slow)
    scheme, _, how = scheme.partition("+")
    speeds = [0.5] * slow + [1.0] * (options.workers - slow)
    capacities = {"": None, "given": speeds, "measured": "measured"}[how]
    with tempfile.TemporaryDirectory(prefix="unskew-bench-", ignore_cleanup_errors=True) as chk:
        rows = (
            spark.readStream.schema("key string, x double")
            .option("maxFilesPerTrigger", 2)
            .parquet(str(folder))
        )
        first = range(options.workers - 1) if options.grow else None
        balance = (
            None
            if scheme == "plain"
            else Balancer(scheme, checkpoint=chk, capacities=capacities, active=first)
        )
        models: DataFrame
        if balance is None:
            models = rows.groupBy("key").applyInPandasWithState(
                function, OUTPUT, STATE, "update", GroupStateTimeout.NoTimeout
            )
        else:
            models = balance.groupBy(rows, "key").applyInPandasWithState(
                function, OUTPUT, STATE, "update", "NoTimeout"
            )
        query = (
            models.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", chk)
            .start()
        )
        try:
            batches: list[Any] = []
            while len(batches) < options.batches and query.isActive:
                time.sleep(0.1)
                batches = [p for p in query.recentProgress if p["numInputRows"]]
                if options.grow and balance is not None and len(batches) >= options.grow:
                    balance.activate(range(options.workers))
            if (error := query.exception()) is not None:
                raise RuntimeError(str(error))
        finally:
            query.stop()
        seconds = [p["durationMs"]["addBatch"] / 1000 for p in batches]
        moves = [] if balance is None else [*balance.metrics]
        warm = seconds[options.warm_up :]
        return {
            "scheme": f"{scheme}, capacities {how}" if how else scheme,
            "records_per_s": options.records * len(warm) / sum(warm),
            "seconds": seconds,
            "max_over_mean": [
                max(m.loads) * sum(load > 0 for load in m.loads) / sum(m.loads) for m in moves
            ],
            "moved_keys": [m.moved_keys for m in moves],
            "moved_bytes": sum(m.moved_bytes for m in moves),
            "state_rows": batches[-1]["stateOperators"][0]["numRowsTotal"],
        }


def main() -> None:
    """Compare schemes in one session."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--schemes", default="mixed,min-table,readj")
    parser.add_argument("--z", type=float, default=0.85)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--records", type=int, default=60_000, help="in a batch")
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--warm-up", type=int, default=3, help="batches that do not count")
    parser.add_argument("--interval", type=int, default=8, help="batches between fluctuations")
    parser.add_argument("--f", type=float, default=0.5, help="rate of fluctuation")
    parser.add_argument("--delay-us", type=float, default=1000.0)
    parser.add_argument("--unequal", action="store_true", help="half of the workers are slower")
    parser.add_argument("--grow", type=int, metavar="N", help="one worker joins after N batches")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, embedded_session(options.workers) as spark:
        write(Path(name) / "in", options)
        few = argparse.Namespace(**{**vars(options), "batches": options.warm_up + 1})
        run(spark, Path(name) / "in", "plain", few)
        results = [
            run(spark, Path(name) / "in", scheme, options)
            for scheme in ("plain", *options.schemes.split(","))
        ]
    ideal = options.workers / (options.delay_us / 1e6) * (0.75 if options.unequal else 1)
    for result in results:
        result["over_plain"] = result["records_per_s"] / results[0]["records_per_s"]
        result["over_ideal"] = result["records_per_s"] / ideal
    if options.json:
        print(json.dumps({"results": results}))
        return
    for r in results:
        print(
            f"{r['scheme']:10s} {r['records_per_s']:8,.0f} records/s,"
            f" {r['over_plain']:.2f} x plain,"
            f" {r['over_ideal']:.0%} of the ideal, {sum(r['moved_keys'])} keys moved"
        )
        print("           seconds " + " ".join(f"{s:.1f}" for s in r["seconds"]))
        print("          max/mean " + " ".join(f"{m:.2f}" for m in r["max_over_mean"]))


if __name__ == "__main__":
    main()
