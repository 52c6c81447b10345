"""Kills a balanced query on a real cluster repeatedly, and checks that its results stay exact.

A master and two workers run on 127.0.0.1, and files of skewed, drifting and late events are written
while the query runs. At random moments executors, Python workers, worker JVMs and the driver are
killed, or the driver receives Ctrl-C; some executors are killed just when the next stage starts to
fetch their output. Dead processes are restarted. At the end there must be exactly one correct total
for every window and key, and the states of the routers must be those of a run without kills. For a
function with state, each result of a key must follow from the one before.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from soak import checks
from soak.cluster import Cluster, Process
from soak.events import FILES_A_STEP, exact_totals, write_end, write_step
from soak.query import FILES_A_BATCH, WINDOW_S, WORKERS

QUERY = str(Path(__file__).with_name("query.py"))
HASTY = 0.25
"""The share of kills that do not wait for a finished batch since the last kill."""
MAPS_DONE = "looking for newly runnable stages"
"""The message of the scheduler when the map tasks of a shuffle are done."""
BACKLOG = 4 * FILES_A_BATCH
FOUND_IN_LOGS = {
    "tasks_lost": "Lost task ",
    "executors_lost": "Lost executor ",
    "stages_resubmitted": "due to fetch failure",
    "map_outputs_changed": "Checksum of map output changes",
}


class Soak:
    """A run with its cluster, driver, events and kills.

    Parameters
    ----------
    folder
        The folder of events, results, checkpoint and logs.
    scheme
        The scheme of the balancer.
    query
        One of `soak.query.QUERIES`.
    rows
        The rows of each file; two files are written a second.
    seed
        The seed of the events, and of the times and targets of the kills.
    """

    def __init__(
        self, folder: Path, scheme: str, query: str, *, rows: int = 2000, seed: int = 1
    ) -> None:
        self.folder = folder
        self.scheme = scheme
        self.query = query
        self.rows = rows
        self.seed = seed
        self.rng = np.random.default_rng([seed, 1])
        self.kills: Counter[str] = Counter()
        self.restarts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.went_back = 0
        self.records = 0
        self._step = 0
        self._heights: dict[str, int] = {}
        self._doomed = False
        self._done = -1
        self._driver: subprocess.Popen[bytes] | None = None
        self._cluster: Cluster

    def run(
        self,
        kinds: Sequence[str],
        seconds: float = 0.0,
        *,
        moves: int = 0,
        limit_s: float | None = None,
    ) -> dict[str, Any]:
        """Kill processes one after the other; return the report.

        Parameters
        ----------
        kinds
            The kinds of processes to kill, in this order.
        seconds
            The time over which the kills are spread; if 0, each comes after a batch.
        moves
            Events are written until this many states have moved.
        limit_s
            The time limit of the run.
        """
        started = time.monotonic()
        deadline = started + (3 * seconds + 240 if limit_s is None else limit_s)
        (self.folder / "in").mkdir(parents=True)
        with Cluster(self.folder) as self._cluster:
            self._start_driver()
            while not checks.batches(self.folder, "commits"):
                self._turn(deadline)
            first = time.monotonic()
            moments = first + np.sort(self.rng.uniform(0, seconds, len(kinds)))
            for moment, kind in zip(moments, kinds, strict=True):
                hasty = seconds > 0 and self.rng.random() < HASTY
                while time.monotonic() < moment or not self._kill(kind, hasty):
                    self._turn(deadline)
            while time.monotonic() < first + seconds or checks.moved(self.folder) < moves:
                self._turn(deadline)
            write_end(self.folder / "in", self._step)
            while not self._drained():
                self._maintain(deadline)
            self._end_driver(deadline)  # until then, a duplicate result may still appear
        return self._report(time.monotonic() - started)

    def _turn(self, deadline: float) -> None:
        """Write the next events unless the query is far behind, and restart dead processes."""
        read = sum(map(len, checks.files_by_batch(self.folder).values()))
        if FILES_A_STEP * self._step - read < BACKLOG:
            self.records += write_step(self.folder / "in", self._step, self.rows, self.seed)
            self._step += 1
        self._maintain(deadline)

    def _maintain(self, deadline: float) -> None:
        """Restart dead processes, check the routers, and sleep for a second."""
        if time.monotonic() > deadline:
            raise TimeoutError(f"the soak exceeds its time limit: see {self.folder}/logs")
        while len(self._cluster.workers()) < 2:
            self._cluster.start_worker()
            self.restarts["worker"] += 1
        assert self._driver is not None
        # Two drivers with one checkpoint would be a fault of the user.
        if self._driver.poll() is not None and not self._cluster.session(self._driver.pid):
            if not self._doomed:
                self._record_failure()
            self.restarts["driver"] += 1
            self._start_driver()
        heights = checks.router_heights(self.folder)
        self.went_back += sum(heights.get(s, -1) < height for s, height in self._heights.items())
        self._heights = heights
        time.sleep(1)

    def _end_driver(self, deadline: float) -> None:
        assert self._driver is not None
        self._driver.send_signal(signal.SIGINT)
        while self._driver.poll() is None or self._cluster.session(self._driver.pid):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the driver did not stop in time: see {self.folder}/logs")
            time.sleep(0.2)

    def _start_driver(self) -> None:
        command = (
            sys.executable,
            QUERY,
            self._cluster.url,
            str(self.folder),
            self.scheme,
            self.query,
        )
        self._driver = self._cluster.start(*command, log=self._driver_log())
        self._doomed = False

    def _kill(self, kind: str, hasty: bool) -> bool:
        """Kill a process of a kind; return whether that was done.

        The query must run and, unless in haste, have done a batch since the last kill.
        """
        assert self._driver is not None
        done = max(checks.batches(self.folder, "commits"), default=-1)
        if self._doomed or not self._cluster.executors() or not (hasty or done > self._done):
            return False
        time.sleep(self.rng.uniform(0, 2))
        if kind in ("driver", "interrupt"):
            self._doomed = True
            if kind == "interrupt":
                self._driver.send_signal(signal.SIGINT)
            else:
                for process in self._cluster.session(self._driver.pid):
                    self._cluster.kill(process)
        elif not self._kill_process(kind):
            return False
        self.kills[kind] += 1
        self._done = done
        print(f"killed {kind} after batch {done}", file=sys.stderr)
        return True

    def _kill_process(self, kind: str) -> bool:
        living = {
            "executor": self._cluster.executors,
            "shuffle": self._cluster.executors,
            "python": self._cluster.python_workers,
            "worker": self._cluster.workers,
        }[kind]
        stages = self._log(self._driver_log()).count(MAPS_DONE)
        patience = time.monotonic() + 10
        targets: list[Process] = []
        # Preferably a busy one: Python workers are idle most of the time.
        while not targets and time.monotonic() < patience:
            time.sleep(0.05)
            if kind == "shuffle":
                if self._log(self._driver_log()).count(MAPS_DONE) > stages:
                    # By then some tasks of the next stage have fetched, and others have not.
                    time.sleep(self.rng.uniform(0, 1))
                    targets = living()
            else:
                targets = [p for p in living() if p.busy]
        targets = targets or living()
        return bool(targets) and self._cluster.kill(targets[self.rng.integers(len(targets))])

    def _drained(self) -> bool:
        """Return whether the last event was read, and a later batch has closed the windows."""
        done = max(checks.batches(self.folder, "commits"), default=-1)
        planned = max(checks.batches(self.folder, "offsets"), default=-1)
        read = checks.files_by_batch(self.folder)
        last = [batch for batch, files in read.items() if any("end" in f.name for f in files)]
        return done == planned and any(batch < done + (self.query == "state") for batch in last)

    def _record_failure(self) -> None:
        """Record the last error of a driver that was not killed; raise if there are many."""
        text = self._log(self._driver_log())
        errors = [line for line in text.splitlines() if "Error" in line or "Exception" in line]
        self.failures.append(errors[-1][:500] if errors else "no error in its log")
        if len(self.failures) > 5 + self.kills.total() // 10:
            raise RuntimeError(f"the query fails repeatedly: {self.failures[-1]}")

    def _driver_log(self) -> str:
        return f"driver-{self.restarts['driver']:03}"

    def _log(self, pattern: str) -> str:
        paths = sorted((self.folder / "logs").glob(f"{pattern}.log"))
        return "".join(path.read_text(errors="replace") for path in paths)

    def _report(self, seconds: float) -> dict[str, Any]:
        if self.query == "state":
            mismatches = checks.compare_states(self.folder)
            totals = mismatches.pop("keys")
        else:
            exact = exact_totals(self.folder / "in", WINDOW_S)
            mismatches, totals = checks.compare(self.folder, exact), len(exact)
        online = self.query == "online"
        differing = checks.differing_states(self.folder, self.scheme, WORKERS) if online else 0
        text = self._log("driver-*")
        logged = {name: text.count(words) for name, words in FOUND_IN_LOGS.items()}
        bad = sum(mismatches.values()) + differing + self.went_back + logged["map_outputs_changed"]
        return {
            "exact": bad == 0,
            "scheme": self.scheme,
            "query": self.query,
            "seed": self.seed,
            "seconds": round(seconds, 1),
            "kills": dict(sorted(self.kills.items())),
            "restarts": dict(sorted(self.restarts.items())),
            "driver_failures": self.failures,
            "records": self.records,
            "batches": max(checks.batches(self.folder, "commits")) + 1,
            "totals": totals,
            "moved": checks.moved(self.folder),
            "mismatches": mismatches,
            "routers": {
                "last": self._heights,
                "went_back": self.went_back,
                "differing_states": differing,
            },
            "logged": logged,
            "processes_left": len(self._cluster.processes()),
        }
