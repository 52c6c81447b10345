"""Loads of a fixed stream under every scheme, kept in ``golden.json``.

Written only by ``python tests/routers/golden.py --write``: a change of routing decisions breaks
running queries that restore their routers, so it must not happen unnoticed.
"""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.routers import ROUTERS, OffGreedy, make_router

PATH = Path(__file__).with_name("golden.json")
N_WORKERS, RECORDS = 7, 3000
# Small enough that the short stream gets through learning, epochs, evictions and declines.
GIVEN: dict[str, dict[str, Any]] = {
    "greedy-d": {"d": 3},
    "d-choices": {"capacity": 40, "theta": 0.04},
    "w-choices": {"capacity": 40, "theta": 0.04},
    "round-robin-head": {"capacity": 40, "theta": 0.04},
    "dkg": {"learning": 1000},
    "dstream": {"threshold": 2, "decline": 0.05},
    "fish": {"counters": 40, "epoch": 200, "rate": 10.0},
    "consistent": {"capacities": [1, 1, 1, 1, 2, 2, 2]},
    "waterline": {"capacity": 100, "epoch": 200, "alarm": 40},
}


def fixed_stream() -> NDArray[np.uint64]:
    """Return a drifting stream of skewed keys, made of integers alone: the same everywhere."""
    keys, state = [], 1
    for i in range(RECORDS):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        rank = 65 - (state >> 8).bit_length()
        tail = (state >> 33) % 8 < 3
        key = (state >> 20) % 500 + 100 if tail else rank + 50 * (i // 1000)
        keys.append(key * 0x9E3779B97F4A7C15 % 2**64)
    return np.array(keys, np.uint64)


def measure(name: str) -> dict[str, Any]:
    """Return the loads, and a checksum of every decision."""
    keys = fixed_stream()
    router = make_router(name, N_WORKERS, **GIVEN.get(name, {}))
    if isinstance(router, OffGreedy):
        router.learn(*np.unique(keys[::2], return_counts=True))
    workers = router.route(keys)
    loads = np.bincount(workers, minlength=N_WORKERS).tolist()
    return {"loads": loads, "crc32": zlib.crc32(workers.astype("<i4").tobytes())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", required=True, help="rewrite golden.json")
    parser.parse_args()
    lines = [f"  {json.dumps(name)}: {json.dumps(measure(name))}" for name in ROUTERS]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
