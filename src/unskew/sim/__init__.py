"""The simulator: sources and workers over a stream."""

from __future__ import annotations

from unskew.sim.run import Run, WorkerChange
from unskew.sim.simulate import Queue, simulate
from unskew.sim.sources import Sources

__all__ = ["Queue", "Run", "Sources", "WorkerChange", "simulate"]
