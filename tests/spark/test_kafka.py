"""With a real Kafka, totals stay exact while the broker and the query are restarted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_broker import broker_jars, connector_jars
from maven_jars import UnavailableError

PROGRAM = Path(__file__).with_name("kafka_query.py")
ROUNDS, ROUND = 5, 2000


@pytest.fixture(scope="module", autouse=True)
def _kafka() -> None:
    try:
        broker_jars()
        connector_jars()
    except UnavailableError as error:
        pytest.skip(str(error))


def test_restarts_of_the_broker_and_of_the_query_lose_and_double_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, PROGRAM, tmp_path / "work"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=300)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its broker too, whatever its state
    assert process.returncode == 0, errors[-3000:]
    found = json.loads(output.splitlines()[-1])
    expected = found["expected"]
    assert sum(n for _, n in expected) == ROUNDS * ROUND
    assert found["latest"] == expected
    assert found["first batch again"] > 0, "the query went on from its checkpoint"
    app = found["app"]
    assert app["records"] == ROUND + 3
    assert app["bad_records"] == 3
    assert sorted(app["bad"]) == ["7", "no JSON", '{"symbol": 1']
    first, *later = app["imbalances"]
    assert len(later) >= 3
    assert min(later) < 0.6 * first, "nothing was known of the keys at first"
    assert app["written"] > len(app["exact"]), "prices were updated"
    assert app["latest"] == pytest.approx(app["exact"])
