"""Checks of a soak: Spark's logs, the results, and the states of the routers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow.parquet as pq

from soak.events import Totals
from unskew import hash_keys
from unskew.routers import read_schemes
from unskew.spark.routing.online import start
from unskew.spark.routing.state_files import StateFiles
from unskew.state import Snapshot

ROUTER = "checkpoint/unskew/router/*"


def batches(folder: Path, log: str) -> list[int]:
    """Return the batches in a log of the checkpoint: ``offsets`` planned, ``commits`` done."""
    return sorted(int(p.name) for p in _numbered(folder, f"checkpoint/{log}"))


def files_by_batch(folder: Path) -> dict[int, list[Path]]:
    """Return the input files of each batch, as the source of the query logged them."""
    found: dict[int, set[Path]] = {}
    for entry in _entries(folder / "checkpoint/sources/0"):
        found.setdefault(entry["batchId"], set()).add(_local(entry["path"]))
    return {batch: sorted(files) for batch, files in sorted(found.items())}


def compare(folder: Path, exact: Totals) -> dict[str, int]:
    """Return how many totals are missing, duplicated, wrong or unexpected; all 0 if correct.

    Only files that the sink committed count, as for every reader of it.
    """
    rows: Counter[tuple[int, str]] = Counter()
    wrong = 0
    for path in _committed(folder):
        for row in pq.ParquetFile(path).read().to_pylist():
            at = int(row["window"]["start"].timestamp()), row["key"]
            rows[at] += 1
            wrong += at in exact and exact[at] != (row["n"], row["total"])
    return {
        "missing": len(exact.keys() - rows.keys()),
        "doubled": sum(n - 1 for n in rows.values()),
        "wrong": wrong,
        "unexpected": len(rows.keys() - exact.keys()),
    }


def compare_states(folder: Path) -> dict[str, int]:
    """Return how many keys are missing, or have results that are missing, duplicated or wrong.

    A result contains its number of records, and how many of them are new, so those of a key
    follow one another without a gap.
    """
    exact: dict[str, list[int]] = {}
    for path in sorted((folder / "in").glob("*.parquet")):
        table = pq.read_table(path)
        for key, x in zip(table["key"].to_pylist(), table["x"].to_pylist(), strict=True):
            known = exact.setdefault(key, [0, 0])
            known[0] += 1
            known[1] += x
    found: dict[str, list[tuple[int, int, int]]] = {}
    for path in _committed(folder):
        for row in pq.ParquetFile(path).read().to_pylist():
            found.setdefault(row["key"], []).append((row["n"], row["added"], row["total"]))
    gaps = wrong = 0
    for key, rows in found.items():
        reached = 0
        for n, added, _ in sorted(rows):
            gaps += n - added != reached
            reached = n
        wrong += list(max(rows)[::2]) != exact.get(key)
    missing = len(exact.keys() - found.keys())
    return {"missing": missing, "gaps": gaps, "wrong": wrong, "keys": len(exact)}


def moved(folder: Path) -> int:
    """Return how many states left their workers, from the metrics of the query."""
    paths = folder.glob(f"{ROUTER}/metrics.jsonl")
    lines = (line for path in paths for line in path.read_text().splitlines())
    return sum(json.loads(line)["moved_keys"] for line in lines)


def _committed(folder: Path) -> list[Path]:
    return sorted({_local(entry["path"]) for entry in _entries(folder / "out/_spark_metadata")})


def router_heights(folder: Path) -> dict[str, int]:
    """Return the last batch of each source's state; for plans, the last version."""
    heights = {f"source {source}": max(kept) for source, kept in _kept(folder).items() if kept}
    plans = [int(p.name) for p in _numbered(folder, f"{ROUTER}/plans")]
    return heights | ({"plan": max(plans)} if plans else {})


def differing_states(folder: Path, scheme: str, workers: int) -> int:
    """Return how many router states differ from those of a run without kills.

    The batches are routed again, from the source's log and the files. Spark orders the files of a
    batch, each of them a partition, by size.
    """
    chosen = read_schemes(scheme)[0]
    kept = _kept(folder)
    (router,) = folder.glob(ROUTER)
    actual = StateFiles(str(router))
    differing = 0
    with TemporaryDirectory() as scratch:
        files = StateFiles(scratch)
        for batch, paths in files_by_batch(folder).items():
            by_size = sorted(paths, key=lambda path: -path.stat().st_size)
            for source, path in enumerate(by_size):
                routing = start(chosen, workers, source, batch, files)
                routing.route(hash_keys(pq.read_table(path)["key"]))
                files.save(source, batch, routing.snapshot())
                if batch in kept.get(source, []):
                    differing += not _same(actual.load(source, batch + 1), routing.snapshot())
    return differing


def _kept(folder: Path) -> dict[int, list[int]]:
    """Return the batches whose states are kept, by source."""
    sources = _numbered(folder, ROUTER)
    return {int(at.name): [int(p.name) for p in _numbered(at, ".")] for at in sources}


def _numbered(folder: Path, within: str) -> list[Path]:
    return [p for p in folder.glob(f"{within}/*") if p.name.isdigit()]


def _same(one: Snapshot | None, other: Snapshot) -> bool:
    return one is not None and all(np.array_equal(one[name], other[name]) for name in other)


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a log of files; those before a compaction are yielded twice."""
    for path in log.glob("[0-9]*"):
        for line in path.read_text().splitlines()[1:]:
            yield json.loads(line)


def _local(uri: str) -> Path:
    return Path(unquote(urlparse(uri).path))
