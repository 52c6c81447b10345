"""The gain of balancing on Spark, measured with a stateful operator that sleeps for each record.

Sleeping tasks need no core, so a small machine behaves like a large one: a batch is as slow as its
most loaded worker.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from unskew.spark.balancer import Balancer
from unskew.spark.placement.slots import SLOT
from unskew.spark.runtime.checkpoint import PARTITIONS
from unskew.spark.session import embedded_session
from unskew.workloads import Zipf

WARM_UP = 2
FILES = 2
COLD = 5
"""Further batches until the JVM has compiled most of a native query."""


@dataclass(frozen=True)
class Work:
    """A skewed stream in batches, and the time that a record takes.

    Parameters
    ----------
    z, keys, records
        The exponent of the Zipf distribution, the number of keys, and the records of a batch.
    delay_s
        The seconds that the operator sleeps for a record.
    batches
        The number of measured batches, after two for warming up.
    """

    z: float
    keys: int = 1000
    records: int = 60_000
    delay_s: float = 0.0005
    batches: int = 3
    seed: int = 1

    def write(self, folder: Path) -> None:
        """Write the batches as files, two for each."""
        count = (WARM_UP + self.batches) * FILES
        size = self.records // FILES
        stream = Zipf(self.z, self.keys, count * size, self.seed)
        folder.mkdir(parents=True)
        for i, ids in enumerate(stream.ids(size)):
            names = pa.array([f"key-{k}" for k in range(self.keys + 1)])
            table = pa.table({"key": names.take(pa.array(ids)), "x": np.arange(len(ids))})
            pq.write_table(table, folder / f"{i:05d}.parquet")


def measure(
    spark: SparkSession,
    work: Work,
    operator: Callable[[DataFrame, list[str]], DataFrame],
    balancer: Callable[[str], Balancer] | None,
) -> dict[str, Any]:
    """Run an operator over the work, plain or balanced; return its speed, state and loads.

    ``operator`` takes the rows and the grouping columns; ``balancer`` takes the location of the
    checkpoint.
    """
    with tempfile.TemporaryDirectory(prefix="unskew-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        work.write(folder / "in")
        checkpoint = str(folder / "checkpoint")
        rows = (
            spark.readStream.schema("key string, x bigint")
            .option("maxFilesPerTrigger", FILES)
            .parquet(str(folder / "in"))
        )
        balance = None if balancer is None else balancer(checkpoint)
        if balance is not None:
            rows = balance.route(rows, "key")
        query = (
            operator(rows, ["key"] if balance is None else ["key", SLOT])
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", checkpoint)
            .start()
        )
        try:
            batches: list[Any] = []
            while len(batches) < WARM_UP + work.batches and query.isActive:
                time.sleep(0.1)
                batches = [p for p in query.recentProgress if p["numInputRows"]]
            if (error := query.exception()) is not None:
                raise RuntimeError(f"the query failed: {error}")
        finally:
            query.stop()
        seconds = [p["durationMs"]["addBatch"] / 1000 for p in batches[WARM_UP:]]
        return {
            "seconds": seconds,
            "warm_up_s": sum(p["durationMs"]["addBatch"] for p in batches[:WARM_UP]) / 1000,
            "records_per_s": work.records / float(np.median(seconds)),
            "state_rows": int(batches[-1]["stateOperators"][0]["numRowsTotal"]),
            "loads": _loads(spark, folder / "in", work)
            if balance is None
            else _last_loads(balance),
        }


def _loads(spark: SparkSession, folder: Path, work: Work) -> list[int]:
    """Return the average number of records of each worker in a batch with plain grouping."""
    n_workers = int(spark.conf.get(PARTITIONS) or 200)
    worker = F.pmod(F.hash("key"), F.lit(n_workers))
    counts: dict[int, int] = dict(spark.read.parquet(str(folder)).groupBy(worker).count().collect())
    return [counts.get(n, 0) // (WARM_UP + work.batches) for n in range(n_workers)]


def _last_loads(balance: Balancer) -> list[int]:
    """Return the number of records of each worker in the last reported batch."""
    return [*balance.metrics[-1].loads]


def sleeping_count(rows: DataFrame, grouping: list[str], delay_s: float) -> DataFrame:
    """Return a running count by key that sleeps for each record."""

    def count(
        key: tuple[Any, ...], parts: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        seen = sum(len(part) for part in parts)
        time.sleep(delay_s * seen)
        state.update((seen + (state.get[0] if state.exists else 0),))
        yield pd.DataFrame({"key": [key[0]], "n": state.get})

    return rows.groupBy(*grouping).applyInPandasWithState(
        count,
        outputStructType="key string, n bigint",
        stateStructType="n bigint",
        outputMode="update",
        timeoutConf=GroupStateTimeout.NoTimeout,
    )


def collected(rows: DataFrame, grouping: list[str]) -> DataFrame:
    """Return a native aggregate that cannot be combined before the shuffle."""
    return rows.groupBy(*grouping).agg(F.size(F.collect_set(F.col("x") % 16)).alias("n"))


def gains(
    spark: SparkSession,
    schemes: Sequence[tuple[str, str | None]],
    works: Sequence[Work],
    workers: int,
    progress: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Return the speed of schemes with their routing, relative to plain grouping and the ideal."""
    results = []
    for work in works:
        operator = partial(sleeping_count, delay_s=work.delay_s)
        plain = None
        for scheme, routing in [("key", "plain"), *schemes]:
            balanced = None if routing == "plain" else partial(_balancer, scheme, routing)
            measured = measure(spark, work, operator, balanced)
            plain = plain or measured
            results.append(
                {
                    "scheme": scheme,
                    "routing": routing,
                    "z": work.z,
                    "workers": workers,
                    "records_per_s": measured["records_per_s"],
                    "warm_up_s": measured["warm_up_s"],
                    "over_key": measured["records_per_s"] / plain["records_per_s"],
                    "over_ideal": measured["records_per_s"] * work.delay_s / workers,
                    "state_rows": measured["state_rows"],
                    "loads": measured["loads"],
                }
            )
            if progress is not None:
                progress(1)
    return results


COSTLY = (("waterline", "planned"), ("dstream", "online"), ("waterline", "online"))


def overheads(
    workers: int, records: int, turns: int, progress: Callable[[int], None] | None = None
) -> list[dict[str, Any]]:
    """Return the overhead of routing without skew, as a fraction of the plain query's time.

    Each run has a JVM of its own, because earlier queries change how a JVM compiles its code; the
    runs take turns, and only later batches count.
    """
    work = Work(z=0.0, keys=records // 10, records=records, batches=4 * COLD)
    runs = [("plain", "plain"), *COSTLY]
    results: dict[tuple[str, str], list[dict[str, Any]]] = {run: [] for run in runs}
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as own_process:
        for run in runs * turns:
            results[run].append(own_process.apply(_measure_alone, (run, work, workers)))
            if progress is not None:
                progress(1)
    seconds = {
        run: float(np.median([turn["seconds"][COLD:] for turn in measured]))
        for run, measured in results.items()
    }
    return [
        {
            "routing": routing,
            "scheme": scheme,
            "seconds": seconds[scheme, routing],
            "fraction": seconds[scheme, routing] / seconds[runs[0]] - 1,
            "state_rows": results[scheme, routing][-1]["state_rows"],
        }
        for scheme, routing in COSTLY
    ]


def _measure_alone(run: tuple[str, str], work: Work, workers: int) -> dict[str, Any]:
    with embedded_session(workers) as spark:
        balanced = None if run[0] == "plain" else partial(_balancer, *run)
        return measure(spark, work, collected, balanced)


def _balancer(scheme: str, routing: str | None, checkpoint: str) -> Balancer:
    return Balancer(scheme, routing=routing, checkpoint=checkpoint)
