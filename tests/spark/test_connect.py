"""The same program on Spark Connect, in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_connect(tmp_path: Path) -> None:
    program = Path(__file__).with_name("connect_query.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path / "work"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["session"] == "pyspark.sql.connect.session"
    batches = ("batch planned", "batch online", "combined", "joined")
    for name in (*batches, "stream planned", "stream online", "moving"):
        assert found[name] == found["expected"], name
    assert found["moved"] > 5
    for mode in ("planned", "online"):
        metrics = found[f"metrics {mode}"]
        assert [records for records, _ in metrics] == [2000] * 3
        loads = metrics[-1][1]
        assert max(loads) / (sum(loads) / 4) < 1.4
    first = found["metrics planned"][0][1]
    assert max(first) / (sum(first) / 4) > 1.6, "nothing was known of the keys yet"
