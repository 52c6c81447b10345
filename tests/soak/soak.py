"""Kill a balanced query on a real cluster again and again; see that its results stay exact.

A master and two workers run on 127.0.0.1, and files of skewed, drifting and late events are dropped
while the query runs. At random moments executors, Python workers, worker JVMs and the driver are
killed, or the driver gets Ctrl-C; some executors are killed just when the next stage begins to
fetch what they have routed. What died is started again. At the end every total of a window
and a key must be there, once, and right, and the states of the routers those of a run without
kills. Of a function with state each result must follow the one before, for every key.
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
"""The share of kills that do not wait until the query has done a batch since the last one."""
MAPS_DONE = "looking for newly runnable stages"
"""What the scheduler logs when the maps of a shuffle are done."""
BACKLOG = 4 * FILES_A_BATCH
FOUND_IN_LOGS = {
    "tasks_lost": "Lost task ",
    "executors_lost": "Lost executor ",
    "stages_resubmitted": "due to fetch failure",
    "map_outputs_changed": "Checksum of map output changes",
}


class Soak:
    """A run: the cluster, the driver, the events, the kills.

    Parameters
    ----------
    folder
        Holds everything: events, results, checkpoint, logs.
    scheme
        Of the balancer.
    query
        One of `soak.query.QUERIES`.
    rows
        Of each file; two files are dropped a second.
    seed
        Of the events, and of the moments and the targets of the kills.
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
        """Kill one after the other; return the report.

        Parameters
        ----------
        kinds
            What is killed, in this order.
        seconds
            Over which the kills are spread; if 0, each comes after a batch.
        moves
            Events come until so many states have moved.
        limit_s
            When to give up.
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
                self._tend(deadline)
            self._end_driver(deadline)  # until then, what would double a result may come
        return self._report(time.monotonic() - started)

    def _turn(self, deadline: float) -> None:
        """Drop the next events, unless the query is far behind; see to the processes."""
        read = sum(map(len, checks.files_by_batch(self.folder).values()))
        if FILES_A_STEP * self._step - read < BACKLOG:
            self.records += write_step(self.folder / "in", self._step, self.rows, self.seed)
            self._step += 1
        self._tend(deadline)

    def _tend(self, deadline: float) -> None:
        """Start again what has died; watch the routers; a second passes."""
        if time.monotonic() > deadline:
            raise TimeoutError(f"the soak does not end; see {self.folder}/logs")
        while len(self._cluster.workers()) < 2:
            self._cluster.start_worker()
            self.restarts["worker"] += 1
        assert self._driver is not None
        # Two drivers with one checkpoint would be the user's fault.
        if self._driver.poll() is not None and not self._cluster.session(self._driver.pid):
            if not self._doomed:
                self._mourn()
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
                raise TimeoutError(f"the driver does not end; see {self.folder}/logs")
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
        """Kill one of a kind and tell whether that was done.

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
        # Best in the act: Python workers are idle most of the time.
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
        """Tell whether the last event was read, and a batch after it has closed the windows."""
        done = max(checks.batches(self.folder, "commits"), default=-1)
        planned = max(checks.batches(self.folder, "offsets"), default=-1)
        read = checks.files_by_batch(self.folder)
        last = [batch for batch, files in read.items() if any("end" in f.name for f in files)]
        return done == planned and any(batch < done + (self.query == "state") for batch in last)

    def _mourn(self) -> None:
        """Note the last error of a driver that nobody killed; give up when there are many."""
        text = self._log(self._driver_log())
        errors = [line for line in text.splitlines() if "Error" in line or "Exception" in line]
        self.failures.append(errors[-1][:500] if errors else "no error in its log")
        if len(self.failures) > 5 + self.kills.total() // 10:
            raise RuntimeError(f"the query fails again and again: {self.failures[-1]}")

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
