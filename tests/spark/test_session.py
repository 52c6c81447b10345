"""Commands that run Spark: nothing of its noise reaches a person, and errors are one line."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from pathlib import Path

from pyspark import __version__ as spark_version

MAIN = "from unskew.cli import main; main()"
SMALL = ("--stream", "zipf:z=1.4,keys=100,records=2000,seed=1", "--workers", "2")


def unskew(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def kept_log(errors: str) -> Path:
    """Return the log file that a failed command names in its first line."""
    named = re.match(r"unskew: the log of Spark is (\S+)\n", errors)
    assert named is not None, errors
    return Path(named[1])


def test_a_run_prints_nothing_of_sparks() -> None:
    done = unskew("run", "word-count", *SMALL, "--json")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


def test_a_missing_connector_is_named_and_the_log_is_kept() -> None:
    with socket.create_server(("127.0.0.1", 0)) as broker:
        stream = f"kafka://127.0.0.1:{broker.getsockname()[1]}/tags"
        done = unskew("run", "hashtags", "--stream", stream, "--workers", "2")
    assert done.returncode == 2
    connector = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"
    last = f"unskew: Kafka needs its connector: add --packages {connector}\n"
    assert done.stderr.endswith(last)
    assert done.stderr.count("\n") == 2
    log = kept_log(done.stderr)
    assert log.read_text()
    log.unlink()


def test_a_package_that_does_not_exist_is_named() -> None:
    done = unskew("run", "word-count", *SMALL, "--packages", "org.unskew:nothing:9.9.9")
    assert done.returncode == 2
    assert "there is no package org.unskew:nothing:9.9.9" in done.stderr
    assert done.stderr.count("\n") == 2
    kept_log(done.stderr).unlink()
