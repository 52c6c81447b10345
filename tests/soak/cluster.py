"""A standalone Spark cluster on 127.0.0.1, from the pip package, whose processes can be killed.

Every process carries a marker in its environment, which its children inherit: executors, Python
workers and drivers are found by it in /proc, so this runs on Linux only, and nothing else is ever
signalled.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pyspark

HOME = Path(pyspark.__file__).parent
MARKER = "UNSKEW_CLUSTER"
DAEMON = "org.apache.spark.deploy"
MASTER_OPTIONS = "-Dspark.deploy.maxExecutorRetries=-1 -Dspark.master.rest.enabled=false"


@dataclass(frozen=True)
class Process:
    """A process of the cluster: its session, its command, and whether it is running."""

    pid: int
    session: int
    command: str
    busy: bool


class Cluster:
    """A master and its workers, started on entry; on exit all their processes are killed.

    Parameters
    ----------
    folder
        The folder for logs and scratch files.
    workers
        The number of worker JVMs; each may run executors with two cores in total.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self.folder = folder
        self.url = ""
        self._marker = f"{MARKER}={uuid.uuid4().hex}"
        self._started: list[subprocess.Popen[bytes]] = []
        self._workers = workers

    def __enter__(self) -> Cluster:
        try:
            master = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
            self._daemon("master.Master", *master, log="master")
            self.url = self._wait_for(self.folder / "logs/master.log", r"spark://127\.0\.0\.1:\d+")
            for _ in range(self._workers):
                self.start_worker()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(
        self, *command: str, log: str, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process of the cluster in its own session; its output is appended to a log."""
        name, _, value = self._marker.partition("=")
        path = self.folder / "logs" / f"{log}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as out:
            process = subprocess.Popen(
                command,
                env={**os.environ, **_environment(self.folder), **(env or {}), name: value},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def start_worker(self) -> None:
        """Start another worker, or replace a dead one."""
        given = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "2", "--memory", "2g"]
        self._daemon("worker.Worker", *given, self.url, log="workers")

    def workers(self) -> list[Process]:
        """Return the live worker JVMs."""
        return [p for p in self.processes() if f"{DAEMON}.worker.Worker" in p.command]

    def executors(self) -> list[Process]:
        """Return the live executor JVMs."""
        return [p for p in self.processes() if "CoarseGrainedExecutorBackend" in p.command]

    def python_workers(self) -> list[Process]:
        """Return the Python processes of executors: daemons and the workers that they fork."""
        return [p for p in self.processes() if "unskew.spark.warm_daemon" in p.command]

    def session(self, leader: int) -> list[Process]:
        """Return the live processes in the session of a started process."""
        return [p for p in self.processes() if p.session == leader]

    def processes(self) -> list[Process]:
        """Return all live processes of the cluster."""
        for process in self._started:
            process.poll()
        return list(_marked(self._marker.encode()))

    def kill(self, process: Process) -> bool:
        """Kill a process at once; return whether it was alive."""
        try:
            os.kill(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def stop(self) -> None:
        """Kill all started processes and their descendants; Ctrl-C is ignored meanwhile."""
        with _deaf():
            deadline = time.monotonic() + 30
            while (left := self.processes()) and time.monotonic() < deadline:
                for process in left:
                    self.kill(process)
                time.sleep(0.1)
            for started in self._started:
                started.wait(10)
            self._started.clear()
        if left:
            raise RuntimeError(f"processes that could not be killed: {[p.pid for p in left]}")

    def _daemon(self, name: str, *arguments: str, log: str) -> None:
        self.start(str(HOME / "bin/spark-class"), f"{DAEMON}.{name}", *arguments, log=log)

    def _wait_for(self, log: Path, pattern: str, timeout_s: float = 60) -> str:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text())
            if found:
                return found[0]
            time.sleep(0.1)
        raise TimeoutError(f"no {pattern} in {log} after {timeout_s:.0f} s:\n{log.read_text()}")


def _environment(folder: Path) -> dict[str, str]:
    return {
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": os.environ.get("SPARK_SUBMIT_OPTS", ""),
        "SPARK_MASTER_OPTS": MASTER_OPTIONS,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def _marked(marker: bytes) -> Iterator[Process]:
    """Yield the processes with a marker in their environment, except this one."""
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        # It may end at any time, or be another user's; a dead process has no environment.
        with contextlib.suppress(OSError):
            if marker not in (folder / "environ").read_bytes().split(b"\0"):
                continue
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            state = (folder / "stat").read_text().rpartition(")")[2].split()
            yield Process(int(folder.name), int(state[3]), command, state[0] == "R")


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Ignore Ctrl-C within the context, where that is possible."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
