"""Windows whose keys stay whole: aggregates that cannot be merged, under plans that change."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from differential.restless import allow_restless
from unskew.spark import Balancer
from unskew.spark.plans.schedule import BEGIN, Schedule, ScheduleError, Term

allow_restless()
START_S, STEP_S, LATE_S = 1_767_225_600, 20, 25
FILES, ROWS, KEYS = 12, 600, 50


def write_events(folder: Path) -> None:
    """Write skewed keys, some of them null, with times that are up to 25 s late."""
    folder.mkdir()
    for file in range(FILES + 1):
        rng = np.random.default_rng(file)
        ids = np.minimum(rng.zipf(1.5, ROWS), KEYS)
        late = rng.uniform(0, LATE_S, ROWS) * (rng.random(ROWS) < 0.4)
        times = START_S + STEP_S * (file + rng.random(ROWS)) - late
        keys = [None if i == 7 else f"k{(i + file // 4) % KEYS}" for i in ids]
        if file == FILES:  # closes all windows
            keys, times = ["end"], np.array([START_S + 10_000.0])
        table = {
            "key": pa.array(keys, pa.string()),
            "x": rng.normal(size=len(keys)),
            "time": pa.array((times * 1e6).astype(np.int64), pa.timestamp("us", "UTC")),
        }
        path = folder / f"{file:03d}.parquet"
        pq.write_table(pa.table(table), path)
        os.utime(path, (1e9 + file, 1e9 + file))


def run(results: DataFrame, checkpoint: Path, out: Path, stop: int) -> None:
    query = (
        results.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", str(checkpoint))
        .trigger(processingTime="1 second")
        .start()
    )
    until = time.time() + 120
    try:
        while query.isActive and time.time() < until:
            last = query.lastProgress
            if last is not None and last["batchId"] >= stop:
                return
            time.sleep(0.1)
        raise AssertionError(f"not done: {query.exception()}")
    finally:
        query.stop()


@pytest.mark.parametrize("length", ["1 minute", pytest.param("sliding", marks=pytest.mark.full)])
def test_windows_keep_their_plans(spark: SparkSession, tmp_path: Path, length: str) -> None:
    write_events(tmp_path / "in")
    window = F.window("time", "1 minute", *(["30 seconds"] if length == "sliding" else []))
    median = F.percentile("x", F.lit(0.5))
    checkpoint, schema = tmp_path / "chk", "key string, x double, time timestamp"
    for stop in (5, FILES + 1):  # with a restart in between
        events = (
            spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(tmp_path / "in"))
            .withWatermark("time", "30 seconds")
        )
        balance = Balancer("restless", checkpoint=str(checkpoint))
        found = balance.groupBy(events, window, "key").agg(
            median.alias("middle"), F.count("*").alias("n")
        )
        assert found.columns == ["window", "key", "middle", "n"]
        run(found, checkpoint, tmp_path / "out", stop)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    events = spark.read.schema(schema).parquet(str(tmp_path / "in"))
    kept = events.where("key IS NULL OR key != 'end'")
    plain = kept.groupBy(window, "key").agg(median.alias("middle"), F.count("*").alias("n"))
    assert sorted(map(str, rows)) == sorted(map(str, plain.collect()))
    served = [*map(terms, checkpoint.glob("unskew/router/windows-*/schedule/*"))]
    assert len({term.version for several in served for term in several}) >= 4
    assert max(map(len, served)) >= 2


def terms(path: Path) -> list[Term]:
    return Schedule(str(path.parent.parent), 0).terms(int(path.name), 0)


def test_a_plan_holds_for_what_nobody_has_seen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schedule = Schedule(str(tmp_path), horizon_us=100)
    assert schedule.terms(0, 0) == [Term(0, BEGIN)]
    # The driver has not reported batch 0 yet, so the new plan has to wait.
    assert schedule.terms(1, 1) == [Term(0, BEGIN)]
    schedule.record_progress(0, 1000, 0)
    schedule.record_progress(1, 900, 0)
    first = [Term(0, BEGIN, 1001), Term(1, 1001)]
    assert schedule.terms(2, 1) == first
    assert schedule.terms(2, 5) == first  # a batch that is tried again
    # An empty batch, in which the watermark has passed old windows.
    schedule.record_progress(2, None, 1100)
    assert schedule.terms(3, 1) == first
    schedule.record_progress(3, 2000, 1102)
    assert schedule.terms(4, 7) == [Term(1, 1001, 2001), Term(7, 2001)]
    with caplog.at_level(logging.WARNING, "unskew.spark"):
        schedule.record_progress(5, 3000, 1102)
    assert "no progress was recorded for batch 4" in caplog.text
    assert schedule.terms(6, 8) == schedule.terms(4, 7)


def test_a_broken_schedule_is_told(tmp_path: Path) -> None:
    Schedule(str(tmp_path), 0).terms(0, 0)
    path = tmp_path / "schedule" / "0"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ScheduleError, match="restore that file, and start the query again"):
        Schedule(str(tmp_path), 0).terms(0, 0)
