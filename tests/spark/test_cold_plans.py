"""A plan does not wait for a compiler: strategies and planners run without numba on a driver."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import numpy as np
from unskew.murmur import homes
from unskew.planners import PLANNERS
from unskew.routers import ROUTERS
from unskew.spark.control.hot_keys import KeyFrequencies
from unskew.spark.control.schemes import read_scheme
from unskew.spark.plans.split_plan import SplitPlan

W, K = 8, 400
keys = np.random.default_rng(1).integers(0, 2**64, K, np.uint64)
counts = 1e5 / np.arange(1, K + 1) ** 1.2
loads = np.bincount(homes(keys, W), counts, minlength=W) + 1000.0
measured = KeyFrequencies(keys, counts, float(loads.sum()), loads)
planned = [name for name, router in ROUTERS.items() if router.planned is not None]
for name in [*planned, *PLANNERS]:
    strategy = read_scheme(name).strategy(W)
    if strategy is not None:
        plan = strategy.plan(measured, SplitPlan.empty(W))
        assert len(plan.keys), name
        print(name, plan.version)
assert "numba" not in sys.modules
"""


def test_no_planned_scheme_needs_a_compiler() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"waterline", "w-choices", "fish", "dstream", "mixed", "readj"} <= printed
