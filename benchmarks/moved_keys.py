"""The cost of moving many or large states, relative to a plain query over the same rows.

Each batch has ``--rows`` rows for every key, of ``--columns`` columns, and each state has
``--bytes`` bytes. A worker leaves and returns (``--leave``, ``--back``), or all workers change with
every batch, so that all keys move (``--all``); without either, nothing moves.

    python benchmarks/moved_keys.py --keys 20000 --leave 2 --back 5
    python benchmarks/moved_keys.py --keys 100000 --all --batches 12 --plain 2   # a million moves
    python benchmarks/moved_keys.py --keys 200 --bytes 1000000 --all
    python benchmarks/moved_keys.py --keys 20000 --fixed --rounds 4       # no active=, no moves
    python benchmarks/moved_keys.py --keys 20000 --fixed --rounds 4 --rows 3 --columns 4

With ``--rounds`` both queries run that often, in turn, and all batches of the first round are a
warm-up, in which the JVM compiles its code.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupStateTimeout

from unskew.spark import Balancer
from unskew.spark.session import embedded_session

OUTPUT, STATE = "key bigint, n bigint", "n bigint, load string"
COLUMNS = ("key bigint", "time bigint", "price double", "url string")
"""The columns of the rows; the first ``--columns`` of them."""


def write(folder: Path, options: argparse.Namespace) -> None:
    """Write two files for each batch, at fixed times, so that they are read in order."""
    folder.mkdir()
    keys = np.array_split(np.arange(options.keys), 2)
    for number in range(2 * options.batches):
        path, ids = folder / f"{number:03d}.parquet", np.tile(keys[number % 2], options.rows)
        urls = pa.array([f"/page/{i % 1000}" for i in ids.tolist()])
        table = pa.table({"key": ids, "time": ids + number, "price": ids / 7, "url": urls})
        pq.write_table(table, path)
        os.utime(path, (1e9 + number,) * 2)


def count_with_load(
    key: tuple[Any, ...], chunks: Iterator[pd.DataFrame], state: Any, size: int
) -> Iterator[pd.DataFrame]:
    """Count the rows of a key, with a state of the given size."""
    n, load = state.get if state.exists else (0, "")
    n += sum(map(len, chunks))
    state.update((n, (f"{key[0]}-{n}-" + load)[:size].ljust(size, "x")))
    yield pd.DataFrame({"key": [key[0]], "n": [n]})


class BatchChecker:
    """Checks the results of each batch, changes the workers, and measures the files."""

    def __init__(self, options: argparse.Namespace, balance: Balancer | None, folder: Path) -> None:
        self.options, self.balance, self.folder = options, balance, folder
        self.files: list[int] = []
        self.megabytes: list[float] = []
        self.moved: list[int] = []

    def check(self, batch: DataFrame, number: int) -> None:
        """Check the results of a batch, and measure its moves."""
        rows, least, most = batch.selectExpr("count(*)", "min(n)", "max(n)").collect()[0]
        n = self.options.rows * (number + 1)
        if rows and (rows, least, most) != (self.options.keys, n, n):
            raise AssertionError(f"batch {number}: {rows} keys, n from {least} to {most}")
        moves = [*self.folder.glob(f"unskew/router/states/moves/{number}/*")]
        self.files.append(len(moves))
        self.moved.append(sum(int(path.name.split(".")[2]) for path in moves))
        self.megabytes.append(sum(path.stat().st_size for path in moves) / 1e6)
        if self.balance is not None and not self.options.fixed:
            self.balance.activate(self._active(number))

    def _active(self, number: int) -> range:
        workers, half = self.options.workers, self.options.workers // 2
        if self.options.all:
            return range(half) if number % 2 == 0 else range(half, workers)
        away = self.options.leave is not None and self.options.leave <= number < self.options.back
        return range(workers - 1 if away else workers)


def cpu_s() -> float:
    """Return the seconds of CPU of this process and all its descendants so far."""
    children: dict[int, list[int]] = {}
    ticks = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (process / "stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(stat[1]), []).append(int(process.name))
            ticks[int(process.name)] = sum(map(int, stat[11:15]))
    total, pending = 0, [os.getpid()]
    while pending:
        number = pending.pop()
        total += ticks.get(number, 0)
        pending += children.get(number, [])
    return total / os.sysconf("SC_CLK_TCK")


def run(spark: SparkSession, source: Path, moved: bool, options: argparse.Namespace) -> Any:
    """Run the stream; return the seconds of its batches, and the files of moving states."""
    function = partial(count_with_load, size=options.bytes)
    with tempfile.TemporaryDirectory(prefix="unskew-bench-", ignore_cleanup_errors=True) as name:
        rows = (
            spark.readStream.schema(", ".join(COLUMNS[: options.columns]))
            .option("maxFilesPerTrigger", 2)
            .parquet(str(source))
        )
        balance = None
        if moved:
            first = None if options.fixed else range(options.workers)
            balance = Balancer("key", checkpoint=name, active=first)
            counts = balance.groupBy(rows, "key").applyInPandasWithState(
                function, OUTPUT, STATE, "update", "NoTimeout"
            )
        else:
            counts = rows.groupBy("key").applyInPandasWithState(
                function, OUTPUT, STATE, "update", GroupStateTimeout.NoTimeout
            )
        checker = BatchChecker(options, balance, Path(name))
        out = counts.writeStream.foreachBatch(checker.check).outputMode("update")
        out = out.option("checkpointLocation", name).trigger(availableNow=True)
        started, cpu_before_s = time.perf_counter(), cpu_s()
        query = out.start()
        query.awaitTermination()
        in_all_s, used_cpu_s = time.perf_counter() - started, cpu_s() - cpu_before_s
        batches = [p for p in query.recentProgress if p["numInputRows"]]
        states = Path(name) / "unskew/router/states"
        left = [path for path in states.glob("moves/*/*") if path.name.split(".")[2] != "0"]
        return {
            "seconds": [p["durationMs"]["addBatch"] / 1000 for p in batches],
            "in_all_s": in_all_s,
            "cpu_s": used_cpu_s,
            "moved_keys": checker.moved,
            "objects": checker.files,
            "megabytes": [round(size, 1) for size in checker.megabytes],
            "objects_with_states_left": len(left),
            "files_left": sum(path.is_file() for path in states.rglob("*")),
        }


def compared(rounds: list[list[Any]]) -> dict[str, Any]:
    """Return the ratios of the two queries' seconds and CPU."""
    warm = rounds[1:] or rounds
    plain, other = ([s for pair in warm for s in pair[i]["seconds"]] for i in (0, 1))
    last_plain, last_other = (query["seconds"] for query in rounds[-1])
    missing = len(last_other) - len(last_plain)
    pairs = zip(last_other, last_plain + [float(np.median(plain))] * missing, strict=True)
    cpu_s = [sum(pair[i]["cpu_s"] for pair in warm) for i in (0, 1)]
    return {
        "ratios": [round(seconds / plain_seconds, 2) for seconds, plain_seconds in pairs],
        "in_all": float(np.mean(other) / np.mean(plain)),
        "medians": float(np.median(other) / np.median(plain)),
        "cpu": cpu_s[1] / len(other) / cpu_s[0] * len(plain),
    }


def main() -> None:
    """Run the stream plain and moved, in one session."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--bytes", type=int, default=200, help="size of a state")
    parser.add_argument("--rows", type=int, default=1, help="of a key in a batch")
    parser.add_argument("--columns", type=int, default=1, help="of a row: 1 to 4")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--leave", type=int, metavar="N", help="a worker leaves after batch N")
    parser.add_argument(
        "--back", type=int, metavar="N", default=10**9, help="it returns after batch N"
    )
    parser.add_argument("--plain", type=int, metavar="N", help="run N batches of the plain query")
    parser.add_argument("--all", action="store_true", help="all keys move, in every batch")
    parser.add_argument(
        "--fixed", action="store_true", help="workers do not change, and nothing moves"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often both queries run")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.plain = options.plain or options.batches
    with tempfile.TemporaryDirectory() as name, embedded_session(options.workers) as spark:
        few_batches = argparse.Namespace(**{**vars(options), "batches": options.plain})
        for folder, amount in {"plain": few_batches, "moved": options}.items():
            write(Path(name) / folder, amount)
        few = argparse.Namespace(**{**vars(options), "keys": 500, "batches": 2, "bytes": 10})
        write(Path(name) / "warm", few)
        for moved in (False, True):
            run(spark, Path(name) / "warm", moved, few)
        rounds = [
            [run(spark, Path(name) / kind, kind == "moved", options) for kind in ("plain", "moved")]
            for _ in range(options.rounds)
        ]
    plain, other = rounds[-1]
    result = {"options": vars(options), "plain": plain, "moved": other, **compared(rounds)}
    if options.json:
        print(json.dumps(result))
        return
    print("plain, seconds  " + " ".join(f"{s:6.1f}" for s in plain["seconds"]))
    print("moved, seconds  " + " ".join(f"{s:6.1f}" for s in other["seconds"]))
    print("ratio           " + " ".join(f"{ratio:6.2f}" for ratio in result["ratios"]))
    print("keys moved      " + " ".join(f"{n:6d}" for n in other["moved_keys"]))
    print("objects         " + " ".join(f"{n:6d}" for n in other["objects"]))
    print("megabytes       " + " ".join(f"{n:6.1f}" for n in other["megabytes"]))
    print(
        f"in all {result['in_all']:.2f} times plain, {result['cpu']:.2f} times its CPU, "
        f"medians {result['medians']:.2f}; "
        f"left: {other['objects_with_states_left']} objects with states, "
        f"{other['files_left']} files"
    )


if __name__ == "__main__":
    main()
