"""Periodic schemes, which plan between intervals and keep keys whole. `PLANNERS` names them all."""

from __future__ import annotations

from unskew.plan import Plan, PlanError
from unskew.planners.base import Planner
from unskew.planners.heuristics import LeastLoadFit, MinMig, MinTable
from unskew.planners.mixed import Mixed, MixedBruteForce
from unskew.planners.problem import Moves, Proposal
from unskew.planners.readj import Readj
from unskew.planners.simple import Simple
from unskew.planners.statistics import Statistics, Window
from unskew.planners.table import PLANNERS, make_planner, read_planners

__all__ = [
    "PLANNERS",
    "LeastLoadFit",
    "MinMig",
    "MinTable",
    "Mixed",
    "MixedBruteForce",
    "Moves",
    "Plan",
    "PlanError",
    "Planner",
    "Proposal",
    "Readj",
    "Simple",
    "Statistics",
    "Window",
    "make_planner",
    "read_planners",
]
