"""The simulator: sources and workers over a stream."""

from __future__ import annotations

from unskew.sim.contenders import Migration
from unskew.sim.intervals import simulate_plans
from unskew.sim.run import Run, WorkerChange
from unskew.sim.simulate import Queue, simulate
from unskew.sim.sources import Sources

__all__ = ["Migration", "Queue", "Run", "Sources", "WorkerChange", "simulate", "simulate_plans"]
