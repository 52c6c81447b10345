"""The table of planners, and how they are named in a spec string."""

from __future__ import annotations

from typing import Any

from unskew.planners.base import Planner
from unskew.planners.heuristics import LeastLoadFit, MinMig, MinTable
from unskew.planners.mixed import Mixed, MixedBruteForce
from unskew.planners.readj import Readj
from unskew.planners.simple import Simple
from unskew.spec import check_named, read_named

PLANNERS: dict[str, type[Planner]] = {
    planner.name: planner
    for planner in (Simple, LeastLoadFit, MinTable, MinMig, Mixed, MixedBruteForce, Readj)
}


def make_planner(name: str, **parameters: Any) -> Planner:
    """Return a planner by its name.

    Examples
    --------
    >>> make_planner("mixed", resolution=8)
    Mixed(theta_max=0.08, resolution=8, beta=1.5, max_entries=3000)
    """
    check_named("planner", name, PLANNERS, parameters)
    return PLANNERS[name](**parameters)


def read_planners(text: str) -> dict[str, Planner]:
    """Return the planners that a string names, by the way each is written.

    Examples
    --------
    >>> list(read_planners("mixed:theta_max=0.02:resolution=8,readj"))
    ['mixed:theta_max=0.02:resolution=8', 'readj']
    """
    return {
        ":".join([name, *(f"{key}={value}" for key, value in given.items())]): make_planner(
            name, **given
        )
        for name, given in read_named("planner", text, PLANNERS)
    }
