"""Waterline against the published schemes: balance, key-worker pairs and speed, as a table.

For each stream and number of workers W: the largest load over the mean at the end and in the worst
interval of 10,000 W records after the first twentieth of the stream, both less 1 and in percent;
the key-worker pairs, in all and a key; million records a second on one thread. A star marks a
scheme that another one beats in both: in pairs, and by more than 1 % of the mean load.

Usage: python benchmarks/waterline.py [--records 5e6] [--workers 5,10,50,100,500] [--sources 1]
    [--schemes key,pkg,...] [--streams zipf,drift,files] [--data folder] [--json]

Files are Parquet files with a column ``key``, in a folder that --data or UNSKEW_DATA names.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unskew.hashing import Keys
from unskew.metrics import Replication
from unskew.routers import read_schemes
from unskew.sim.sources import Sources
from unskew.workloads import Chunk, open_stream

EXPONENTS = (0.6, 0.8, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0)
PART = 1 << 20
INTERVAL = 10_000
FIRST = 0.05
SAME = 0.01


def streams(kinds: str, records: int, data: str | None) -> Iterator[tuple[str, bool]]:
    """Give the streams by their specs, and whether they drift."""
    size = f"keys=10000,records={records},seed=1"
    if "zipf" in kinds:
        yield from ((f"zipf:z={z},{size}", False) for z in EXPONENTS)
    if "drift" in kinds:
        yield from ((f"evolving-zipf:z={z},{size}", True) for z in (1.0, 1.4, 1.8))
        yield f"fluctuating-zipf:{size},interval={records // 10}", True
        yield from ((f"{kind}:records={records},seed=1", False) for kind in ("ln1", "ln2"))
    if "files" in kinds and data:
        yield from ((f"{path}:key=key", True) for path in sorted(Path(data).glob("*.parquet")))


def measure(scheme: str, keys: Keys, workers: int, sources: int) -> dict[str, Any]:
    """Return what a scheme does with a stream."""
    (chosen,) = read_schemes(scheme)
    Sources(chosen, workers, sources).route(Chunk(keys[:1000]))  # compiles
    routed, pairs = Sources(chosen, workers, sources), Replication(workers)
    parts, seconds = [], 0.0
    for at in range(0, len(keys), PART):
        part = keys[at : at + PART]
        started = time.perf_counter()
        parts.append(routed.route(Chunk(part)))
        seconds += time.perf_counter() - started
        pairs.update(part, parts[-1])
    out = np.concatenate(parts)
    loads = np.bincount(out, minlength=workers)
    whole = len(out) // (INTERVAL * workers)
    number = np.arange(whole * INTERVAL * workers) // (INTERVAL * workers)
    by_interval = np.bincount(number * workers + out[: len(number)], minlength=whole * workers)
    worst = by_interval.reshape(whole, workers).max(axis=1)[int(np.ceil(FIRST * whole)) :]
    found = pairs.result()
    return {
        "scheme": scheme,
        "imbalance": float(loads.max() / loads.mean() - 1),
        "worst_interval": float(worst.max() / INTERVAL - 1) if len(worst) else None,
        "keys": found["keys"],
        "replicas": found["replicas"],
        "replication": found["replication"],
        "records_per_s": len(keys) / max(seconds, 1e-9),
    }


def mark_beaten(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        row["beaten_by"] = [
            other["scheme"]
            for other in rows
            if other["imbalance"] < row["imbalance"] - SAME and other["replicas"] < row["replicas"]
        ]


def run(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    schemes = options.schemes.split(",")
    for spec, drifts in streams(options.streams, int(options.records), options.data):
        keys = np.concatenate([chunk.keys for chunk in open_stream(spec).chunks(PART)])
        for workers in map(int, options.workers.split(",")):
            rows = [measure(scheme, keys, workers, options.sources) for scheme in schemes]
            mark_beaten(rows)
            name = Path(spec).name.partition(".parquet")[0]
            for row in rows:
                yield {"stream": name, "drifts": drifts, "workers": workers, **row}


def line(row: dict[str, Any]) -> str:
    worst = "" if row["worst_interval"] is None else f"{100 * row['worst_interval']:.2f}"
    return (
        f"{row['stream'][:40]:40} {row['workers']:4} {row['scheme']:10} "
        f"{100 * row['imbalance']:9.2f} {worst:>9} {row['replicas']:8} {row['replication']:6.3f} "
        f"{row['records_per_s'] / 1e6:6.1f} {'*' if row['beaten_by'] else ''}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=float, default=5e6)
    parser.add_argument("--workers", default="5,10,50,100,500")
    parser.add_argument("--sources", type=int, default=1)
    parser.add_argument("--schemes", default="key,pkg,d-choices,w-choices,fish,waterline")
    parser.add_argument("--streams", default="zipf,drift,files")
    parser.add_argument("--data", default=os.environ.get("UNSKEW_DATA"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.json:
        print(
            f"{'stream':40} {'W':>4} {'scheme':10} {'final %':>9} {'worst %':>9} {'pairs':>8}",
            end="",
        )
        print(f" {'a key':>6} {'M/s':>6}")
    rows = []
    for row in run(options):
        rows.append(row)
        if not options.json:
            print(line(row), flush=True)
    if options.json:
        print(json.dumps({"results": rows}))


if __name__ == "__main__":
    main()
