"""Kills and failures: results stay exact, and retried routers repeat their decisions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from soak.soak import Soak
from unskew.spark.routing.online import SECONDS
from unskew.spark.routing.state_files import StateFiles

FLAKY = Path(__file__).with_name("flaky_query.py")
SCHEMES = ("fish:epoch=100", "pkg")
BATCHES = 2


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_kills_on_a_cluster_leave_results_exact(tmp_path: Path) -> None:
    soak = Soak(tmp_path / "soak", "fish", "online", rows=500)
    kinds = ("shuffle", "python", "driver", "interrupt")
    report = soak.run(kinds, limit_s=900)
    assert report["kills"] == dict.fromkeys(sorted(kinds), 1)
    assert report["restarts"] == {"driver": 2}
    assert report["driver_failures"] == []
    assert report["totals"] > 100
    assert report["mismatches"] == {"missing": 0, "doubled": 0, "wrong": 0, "unexpected": 0}
    routers = report["routers"]
    assert len(routers["last"]) >= 2
    assert (routers["went_back"], routers["differing_states"]) == (0, 0)
    assert report["logged"]["map_outputs_changed"] == 0
    assert report["processes_left"] == 0


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_kills_while_states_move_lose_nothing(tmp_path: Path) -> None:
    soak = Soak(tmp_path / "soak", "restless", "state", rows=300)
    report = soak.run(("python", "driver"), moves=50, limit_s=900)
    assert report["kills"] == {"driver": 1, "python": 1}
    assert report["driver_failures"] == []
    assert report["mismatches"] == {"missing": 0, "gaps": 0, "wrong": 0}
    assert report["totals"] > 100
    assert report["moved"] >= 50
    assert report["processes_left"] == 0


@pytest.fixture(scope="module")
def flaky(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of runs with and without failing tasks."""
    folder = tmp_path_factory.mktemp("flaky")
    write_input(folder / "in")
    command = [sys.executable, str(FLAKY), str(folder), *SCHEMES]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_task_tried_again_gives_the_same_slots(flaky: Path, scheme: str) -> None:
    plain, failing = flaky / scheme / "plain", flaky / scheme / "failing"
    expected, again = (pq.read_table(run / "out").sort_by("id") for run in (plain, failing))
    assert set(expected["attempt"].to_pylist()) == {0}
    assert set(again["attempt"].to_pylist()) == {1}
    assert expected["id"].to_pylist() == list(range(len(expected)))
    assert again.drop_columns("attempt") == expected.drop_columns("attempt")
    for source in range(2):
        for batch in range(BATCHES):
            assert state(plain, source, batch) == state(failing, source, batch)


def state(run: Path, source: int, batch: int) -> dict[str, bytes]:
    """Return the state of a router after a batch."""
    (folder,) = (run / "checkpoint/unskew/router").iterdir()
    found = StateFiles(str(folder)).load(source, batch + 1)
    assert found is not None
    return {name: array.tobytes() for name, array in found.items() if name != SECONDS}


def write_input(folder: Path) -> None:
    """Write skewed keys, two files a batch, of different sizes."""
    folder.mkdir()
    rng = np.random.default_rng(5)
    first = 0
    for i in range(2 * BATCHES):
        ids = np.arange(first, first := first + 600 + 50 * i)
        path = folder / f"{i}.parquet"
        keys = [f"key-{key}" for key in rng.zipf(1.5, len(ids))]
        pq.write_table(pa.table({"id": ids, "key": keys}), path)
        os.utime(path, (i, i))
