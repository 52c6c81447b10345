"""Simulate 10^8 records with PKG, W = 100, S = 10: records a second, and peak memory, as JSON.

Usage: python benchmarks/simulation.py [--records 1e8] [--scheme pkg]
"""

from __future__ import annotations

import argparse
import json
import resource
import time

from unskew import simulate
from unskew.workloads import Zipf


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=float, default=1e8)
    parser.add_argument("--scheme", default="pkg")
    parser.add_argument("--keys", type=float, default=1e4)
    parser.add_argument("--z", type=float, default=1.0)
    options = parser.parse_args()

    def run(records: float) -> float:
        stream = Zipf(options.z, int(options.keys), int(records), seed=1)
        started = time.perf_counter()
        simulate(stream, options.scheme, workers=100, sources=10)
        return time.perf_counter() - started

    run(1e5)  # compiles the kernels
    seconds = run(options.records)
    result = {
        "scheme": options.scheme,
        "records": int(options.records),
        "keys": int(options.keys),
        "z": options.z,
        "workers": 100,
        "sources": 10,
        "records_per_s": options.records / seconds,
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps({"results": [result]}))


if __name__ == "__main__":
    main()
