"""A join of two streams with one hot key: Spark's plain join, and one that splits the hot key.

Each result takes a millisecond of sleep: sleeping tasks need no core. Both joins must return the
same number of results, and the same sum of their contents.

    python benchmarks/skew_join.py [--hot 0.3] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.spark import Balancer
from unskew.spark.session import embedded_session

START_S, BATCH_S = 1_767_225_600, 60
LEAST, MOST = timedelta(0), timedelta(seconds=BATCH_S)


def write(folder: Path, options: argparse.Namespace) -> None:
    """Write one file a batch for each side; the right side has each key once in a batch."""
    for side, name, at in (("clicks", "click", "at"), ("views", "view", "seen")):
        (folder / side).mkdir()
        for batch in range(options.batches + 1):
            rng = np.random.default_rng([options.seed, batch, side == "clicks"])
            if side == "clicks":
                ids = rng.integers(1, options.keys, options.records)
                ids[rng.random(options.records) < options.hot] = 0
            else:
                ids = np.arange(options.keys)
            seconds = START_S + BATCH_S * (batch + np.sort(rng.random(len(ids))))
            table = {
                "key": [f"key-{i}" for i in ids],
                name: np.arange(len(ids)) + batch * 10**6,
                at: pa.array((seconds * 1e6).astype(np.int64), pa.timestamp("us", "UTC")),
            }
            path = folder / side / f"{batch:03d}.parquet"
            pq.write_table(pa.table(table), path)
            os.utime(path, (1e9 + batch, 1e9 + batch))


def slowly(chunks: Iterator[pd.DataFrame], delay_s: float) -> Iterator[pd.DataFrame]:
    """Sleep for each result."""
    for chunk in chunks:
        time.sleep(delay_s * len(chunk))
        yield pd.DataFrame({"check": chunk["click"] * 31 + chunk["view"]})


def run(
    spark: SparkSession, folder: Path, scheme: str | None, options: argparse.Namespace
) -> dict[str, Any]:
    """Run one of the joins; return the seconds of its batches, and its results."""

    def stream(name: str, schema: str, at: str) -> DataFrame:
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(folder / name)).withWatermark(at, "1 second")

    clicks = stream("clicks", "key string, click bigint, at timestamp", "at")
    views = stream("views", "key string, view bigint, seen timestamp", "seen")
    balance = None
    with tempfile.TemporaryDirectory(prefix="unskew-bench-", ignore_cleanup_errors=True) as chk:
        if scheme is None:
            near = (F.col("seen") >= F.col("at") + F.lit(LEAST)) & (
                F.col("seen") <= F.col("at") + F.lit(MOST)
            )
            same = F.col("l.key") == F.col("r.key")
            joined = clicks.alias("l").join(views.alias("r"), same & near)
            joined = joined.select("l.key", "click", "at", "view", "seen")
        else:
            balance = Balancer(scheme, checkpoint=chk)
            times = ("at", "seen")
            joined = balance.join(clicks, views, "key", times=times, within=(LEAST, MOST))
        slow = joined.mapInPandas(partial(slowly, delay_s=options.delay_us / 1e6), "check bigint")
        total = slow.observe("all", F.count("*").alias("n"), F.sum("check").alias("check"))
        query = total.writeStream.format("noop").option("checkpointLocation", chk).start()
        try:
            batches: list[Any] = []
            while len(batches) <= options.batches and query.isActive:
                time.sleep(0.1)
                batches = [p for p in query.recentProgress if p["numInputRows"]]
            if (error := query.exception()) is not None:
                raise RuntimeError(str(error))
        finally:
            query.stop()
    seconds = [p["durationMs"]["addBatch"] / 1000 for p in batches]
    warm = seconds[options.warm_up :]
    observed = [p.observedMetrics["all"] for p in batches]
    return {
        "join": scheme or "plain",
        "records_per_s": (options.records + options.keys) * len(warm) / sum(warm),
        "seconds": seconds,
        "results": sum(row["n"] for row in observed),
        "check": sum(row["check"] or 0 for row in observed),
        "state_rows": batches[-1]["stateOperators"][0]["numRowsTotal"],
        "max_over_mean": []
        if balance is None
        else [max(m.loads) * len(m.loads) / sum(m.loads) for m in balance.metrics],
    }


def main() -> None:
    """Compare both joins in one session."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--scheme", default="w-choices")
    parser.add_argument("--hot", type=float, default=0.3, help="share of the hot key on the left")
    parser.add_argument("--keys", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--records", type=int, default=30_000, help="in a batch, on the left")
    parser.add_argument("--batches", type=int, default=11)
    parser.add_argument("--warm-up", type=int, default=6, help="batches that do not count")
    parser.add_argument("--delay-us", type=float, default=1000.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, embedded_session(options.workers) as spark:
        write(Path(name), options)
        results = [run(spark, Path(name), scheme, options) for scheme in (None, options.scheme)]
    for result in results:
        result["over_plain"] = result["records_per_s"] / results[0]["records_per_s"]
    same = len({(result["results"], result["check"]) for result in results}) == 1
    if options.json:
        print(json.dumps({"results": results, "same": same}))
    else:
        for r in results:
            print(
                f"{r['join']:10s} {r['records_per_s']:8,.0f} records/s, {r['over_plain']:.2f} x "
                f"plain, {r['results']:,} results, {r['state_rows']:,} state rows"
            )
            print("           seconds " + " ".join(f"{s:.1f}" for s in r["seconds"]))
            print("          max/mean " + " ".join(f"{m:.2f}" for m in r["max_over_mean"]))
        print("the same results" if same else "NOT the same results")
    raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
