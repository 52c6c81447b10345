"""Planning time and migration at the mixed-routing paper's settings, with ratios, as JSON.

Ratios are taken in one run: over Mixed in the original key space for the same setting.

Usage: python benchmarks/planning.py [--keys 1e6] [--quick]
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from unskew.bench.planning import planning_speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=float, default=1e6)
    parser.add_argument("--quick", action="store_true", help="K = 10^5 throughout, fewer intervals")
    options = parser.parse_args()
    keys = [100_000 if options.quick else int(options.keys)]
    intervals = 4 if options.quick else 6
    default = planning_speed(
        "mixed,min-table,min-mig,llfd,readj", keys, [15, 40], resolutions=[0, 8],
        intervals=intervals,
    )  # fmt: skip
    # Fig. 12: by the fluctuation. Brute force needs a smaller key space to finish.
    figure_12 = planning_speed(
        "mixed,mixed-bf:resolution=8,readj", [100_000], [15],
        fluctuations=[0.25, 0.5, 1.0, 2.0], intervals=intervals,
    )  # fmt: skip
    print(json.dumps({"results": with_ratios(default), "figure_12": with_ratios(figure_12)}))


def with_ratios(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    base = {
        (r["keys"], r["workers"], r["f"]): r
        for r in results
        if r["planner"] == "mixed" and r["resolution"] == 0
    }
    for r in results:
        mixed = base[r["keys"], r["workers"], r["f"]]
        r["time_over_mixed"] = r["plan_s"] / mixed["plan_s"]
        r["moved_over_mixed"] = r["moved_fraction"] / max(mixed["moved_fraction"], 1e-12)
    return results


if __name__ == "__main__":
    main()
