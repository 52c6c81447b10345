"""Routing speed of every scheme on one thread, also as a ratio to PKG in the same run, as JSON.

Usage: python benchmarks/routing.py [--records 4e6] [--workers 10,100,1000]
"""

from __future__ import annotations

import argparse
import json

from unskew.bench.routing import routing_speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=float, default=4e6)
    parser.add_argument("--workers", default="10,100,1000")
    options = parser.parse_args()
    workers = [int(n) for n in options.workers.split(",")]
    results = routing_speed("all", workers, [1.0, 1.4, 2.0], records=int(options.records))
    pkg = {(r["workers"], r["z"]): r["records_per_s"] for r in results if r["scheme"] == "pkg"}
    for result in results:
        result["over_pkg"] = result["records_per_s"] / pkg[result["workers"], result["z"]]
    print(json.dumps({"results": results}))


if __name__ == "__main__":
    main()
