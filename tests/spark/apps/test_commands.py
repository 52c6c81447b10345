"""The commands that run applications, called as users call them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

MAIN = [sys.executable, "-c", "from unskew.cli import main; main()"]


def unskew(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MAIN, *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "wordcount"], "unknown application 'wordcount' (did you mean 'word-count'?)"),
        (["run", "word-count:n=5"], "word-count has no parameter 'n'"),
        (["run", "word-count:k=few"], "k must be a number"),
        (["run", "vwap", "--scheme", "wchoices"], "unknown scheme 'wchoices'"),
        (["run", "vwap", "--workers", "0"], "workers must be at least 1, got 0"),
        (["run", "vwap", "--batch-records", "0"], "batch-records must be at least 1, got 0"),
        (["run", "vwap", "--delay-us", "-1"], "delay-us must be at least 0"),
        (["run", "vwap", "--sink", "mysql:x"], "unknown sink 'mysql'"),
        (["run", "vwap", "--columns", "price"], "options must look like word=key,ts=time"),
        (["compare", "vwap", "--schemes", "key,mixed@online"], "use routing='planned'"),
        (["compare", "vwap", "--plot", "x.doc"], "a picture must end in one of"),
    ],
)
def test_bad_input_is_refused_before_spark_starts(arguments: list[str], message: str) -> None:
    found = unskew(*arguments)
    assert found.returncode == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_a_comparison_shows_what_balance_gains(tmp_path: Path) -> None:
    picture = tmp_path / "words.png"
    found = unskew(
        *("compare", "vwap", "--schemes", "key,dstream", "--workers", "8"),
        *(
            "--batch-records",
            "2e3",
            "--stream",
            "zipf:z=2.5,keys=100,records=12e3",
            "--delay-us",
            "1500",
        ),
        *("--plot", str(picture), "--json"),
    )
    assert found.returncode == 0, found.stderr
    key, dstream = json.loads(found.stdout)["results"]
    assert key["records"] == dstream["records"] == 12_000
    assert [batch["records"] for batch in key["batches"]] == [2000] * 6
    # The hottest key has two thirds of the records: 2 s of a batch, and a quarter of that if split.
    assert key["latency_s"] > 2.0
    assert dstream["imbalance"] < 0.3 * key["imbalance"]
    assert dstream["over_first"] > 1.2
    assert key["state_rows"] == dstream["state_rows"] <= 100  # merged at the homes of keys
    assert picture.read_bytes().startswith(b"\x89PNG")


def reported(out: Path) -> bool:
    """Return whether a batch with records has ended; the first batches may have none."""
    done = sorted(int(path.parent.name[6:]) for path in out.glob("batch=*/_SUCCESS"))
    some = [n for n in done if any(map(rows_of, out.glob(f"batch={n}/*.parquet")))]
    return bool(some) and done[-1] > some[0]


def rows_of(path: Path) -> int:
    return int(pq.read_metadata(path).num_rows)


def test_an_interrupt_stops_cleanly_and_reports(tmp_path: Path) -> None:
    arguments = ("run", "vwap", "--stream", "rate://2000", "--workers", "2", "--json")
    sink = ("--sink", f"parquet:{tmp_path / 'out'}")
    process = subprocess.Popen(
        [*MAIN, *arguments, *sink], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    while not reported(tmp_path / "out"):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert errors.rstrip().endswith("unskew: interrupted")
    report = json.loads(output)
    assert report["stopped"] == "interrupted"
    assert report["records"] > 0
