"""The events of a soak: skewed keys that drift, and late event times, in files."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

START_S = 1_767_225_600
STEP_S = 5
LATE_S = 20
KEYS = 1000
FILES_A_STEP = 2

Totals = dict[tuple[int, str], tuple[int, int]]
"""The number and sum of events by the start of their window in seconds and by key."""


def write_step(folder: Path, step: int, rows: int, seed: int) -> int:
    """Write the files of a step into a folder, each atomically; return their number of rows.

    A step is 5 seconds of event time, and events are up to 20 seconds late: a watermark of 30 s
    loses none, whichever batches the files fall into. Every 10 steps other keys are hot.
    """
    for i in range(FILES_A_STEP):
        rng = np.random.default_rng([seed, step, i])
        ranks = np.minimum(rng.zipf(1.4, rows), KEYS)
        keys = (ranks + 37 * (step // 10)) % KEYS
        late_s = rng.uniform(0, LATE_S, rows) * (rng.random(rows) < 0.3)
        times = START_S + STEP_S * (step + rng.random(rows)) - late_s
        _drop(folder / f"{step:06}-{i}.parquet", [f"key-{k}" for k in keys], times, rng)
    return FILES_A_STEP * rows


def write_end(folder: Path, step: int) -> None:
    """Write one event of the far future, which closes the windows of all others."""
    far = START_S + STEP_S * step + 10**6
    rng = np.random.default_rng(step)
    _drop(folder / f"{step:06}-end.parquet", ["end"], np.array([float(far)]), rng)


def exact_totals(folder: Path, window_s: int) -> Totals:
    """Return the totals of all events in a folder except the last one."""
    table = pq.read_table(folder)
    seconds = pc.divide(table["time"].cast(pa.int64()), 10**6)
    starts = pc.multiply(pc.divide(seconds, window_s), window_s)
    table = table.append_column("start", starts).filter(pc.field("key") != "end")
    sums = table.group_by(["start", "key"]).aggregate([("x", "count"), ("x", "sum")])
    columns = (sums[name].to_pylist() for name in ("start", "key", "x_count", "x_sum"))
    return {(start, key): (n, x) for start, key, n, x in zip(*columns, strict=True)}


def _drop(path: Path, keys: list[str], times_s: np.ndarray, rng: np.random.Generator) -> None:
    table = pa.table(
        {
            "key": keys,
            "x": rng.integers(-(10**9), 10**9, len(keys)),
            "time": pa.array((times_s * 1e6).astype(np.int64), pa.timestamp("us", "UTC")),
        }
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}")
    pq.write_table(table, part)
    part.rename(path)
    # Spark reads files in the order of their times, which are in milliseconds.
    time.sleep(0.002)
