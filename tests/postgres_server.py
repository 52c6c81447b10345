"""A real PostgreSQL on a private port of loopback, from the machine's own package."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

USER, PASSWORD = "unskew", "not-to-be-printed"
OLDEST = 15
"""The first version with MERGE."""


class NoPostgresError(RuntimeError):
    """There is no PostgreSQL on this machine that can be used."""


@dataclass(frozen=True)
class Server:
    """A running server."""

    programs: Path
    port: int

    @property
    def url(self) -> str:
        """The address for JDBC, with the password in it."""
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user={USER}&password={PASSWORD}"

    def rows(self, query: str) -> list[list[str]]:
        """Return the rows of a query as texts."""
        command = [f"{self.programs}/psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        command += ["-d", "postgres", "-At", "-F", "\t", "-c", query]
        environment = {**os.environ, "PGPASSWORD": PASSWORD}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return [line.split("\t") for line in done.stdout.splitlines()]


@contextmanager
def postgres() -> Iterator[Server]:
    """Start a server with a user and a password, and stop it at exit."""
    programs, owner = _programs(), _owner()
    with tempfile.TemporaryDirectory(prefix="unskew-postgres-") as name, socket.socket() as free:
        folder = Path(name)
        (folder / "password").write_text(PASSWORD)
        if owner is not None:
            for path in (folder, folder / "password"):
                shutil.chown(path, owner)
        data = folder / "data"
        make = [f"{programs}/initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", "--no-sync"]
        _run([*make, f"--pwfile={folder}/password"], owner)
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder}"
        control = [f"{programs}/pg_ctl", "-D", data, "-w", "-l", f"{folder}/log"]
        _run([*control, "-o", settings, "start"], owner)
        try:
            yield Server(programs, port)
        finally:
            with suppress(subprocess.CalledProcessError):
                _run([*control, "-m", "immediate", "stop"], owner)


def _programs() -> Path:
    names = [path.name for path in Path("/usr/lib/postgresql").glob("*")]
    usable = [int(name) for name in names if name.isdigit() and int(name) >= OLDEST]
    if not usable:
        raise NoPostgresError(f"no PostgreSQL {OLDEST} or newer: apt-get install postgresql")
    return Path(f"/usr/lib/postgresql/{max(usable)}/bin")


def _owner() -> str | None:
    """Return the user that runs the server, which must not be root."""
    if os.getuid():
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    raise NoPostgresError("PostgreSQL does not run as root, and there is no user postgres")


def _run(command: list[object], user: str | None) -> None:
    words = [str(word) for word in command]
    subprocess.run(
        words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user, cwd="/"
    )
