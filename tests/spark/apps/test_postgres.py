"""Results in a real PostgreSQL are exact, also after a restart, and no password is printed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maven_jars import UnavailableError, jars
from postgres_server import PASSWORD, NoPostgresError, Server, postgres

from .test_sinks import STREAM, exact

VERSION = "42.7.4"
PACKAGE = f"org.postgresql:postgresql:{VERSION}"
MAIN = "from unskew.cli import main; main()"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    dependency = f'<dependency org="org.postgresql" name="postgresql" rev="{VERSION}"/>'
    try:
        jars(f"postgresql-{VERSION}", [dependency])
        with postgres() as running:
            yield running
    except (NoPostgresError, UnavailableError) as error:
        pytest.skip(str(error))


def vwap(sink: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the application with a sink, as a person does."""
    stream = ("--stream", STREAM, "--batch-records", "1000", "--workers", "4")
    command = [*stream, "--sink", sink, "--packages", PACKAGE, "--master", "local[2]", *options]
    return subprocess.run(
        [sys.executable, "-c", MAIN, "run", "vwap", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "DATABASE_PASSWORD": PASSWORD},
    )


def test_a_restarted_query_leaves_the_exact_row_of_each_key(server: Server, tmp_path: Path) -> None:
    checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"))
    sink = f"{server.url.replace(PASSWORD, '${DATABASE_PASSWORD}')}#prices"
    for options in (("--seconds", "0"), ("--once",)):
        done = vwap(sink, *checkpoint, *options)
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr
    found = {
        symbol: float(price) for symbol, price in server.rows("SELECT symbol, vwap FROM prices")
    }
    assert found == pytest.approx(exact().to_dict(), rel=1e-12)


def test_a_wrong_password_is_told_and_none_is_printed(server: Server) -> None:
    done = vwap(f"{server.url}-wrong#prices")
    assert done.returncode == 1
    assert "password authentication failed" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_sink_without_a_table_does_not_print_its_password(server: Server) -> None:
    done = vwap(server.url)
    assert done.returncode == 2
    assert "must end in # and the name of a table" in done.stderr
    assert PASSWORD not in done.stdout + done.stderr
