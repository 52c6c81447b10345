"""Online schemes, which decide record by record at a source. `ROUTERS` names them all."""

from __future__ import annotations

import difflib
from typing import Any

from unskew.routers.base import Router
from unskew.routers.consistent import ConsistentHash, ElasticRouter
from unskew.routers.distribution_key import DistributionKey
from unskew.routers.dstream import DStream
from unskew.routers.fish import Fish
from unskew.routers.greedy import GreedyD, PartialKey
from unskew.routers.head_choices import DChoices, RoundRobinHead, WChoices
from unskew.routers.key import KeyGrouping
from unskew.routers.shuffle import Shuffle
from unskew.routers.static import OffGreedy, OnGreedy, StaticChoices

ROUTERS: dict[str, type[Router]] = {
    "key": KeyGrouping,
    "shuffle": Shuffle,
    "potc": StaticChoices,
    "on-greedy": OnGreedy,
    "off-greedy": OffGreedy,
    "greedy-d": GreedyD,
    "pkg": PartialKey,
    "d-choices": DChoices,
    "w-choices": WChoices,
    "round-robin-head": RoundRobinHead,
    "dkg": DistributionKey,
    "dstream": DStream,
    "fish": Fish,
    "consistent": ConsistentHash,
}


def make_router(name: str, n_workers: int, **parameters: Any) -> Router:
    """Return a router by the name of its scheme.

    Examples
    --------
    >>> make_router("pkg", 8, load="global")
    PartialKey(n_workers=8, seed=0, source=0, load='global', probe_records=100000)
    """
    if name not in ROUTERS:
        near = difflib.get_close_matches(name, ROUTERS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"unknown scheme {name!r}{hint} (known: {', '.join(ROUTERS)})")
    scheme = ROUTERS[name]
    known = [field for field in scheme.__dataclass_fields__.values() if field.init]
    unknown = sorted(parameters.keys() - {field.name for field in known})
    if unknown:
        names = ", ".join(field.name for field in known if field.name != "n_workers")
        raise ValueError(f"{name} has no parameter {', '.join(unknown)} (it has: {names})")
    return scheme(n_workers, **parameters)


__all__ = [
    "ROUTERS",
    "ConsistentHash",
    "DChoices",
    "DStream",
    "DistributionKey",
    "ElasticRouter",
    "Fish",
    "GreedyD",
    "KeyGrouping",
    "OffGreedy",
    "OnGreedy",
    "PartialKey",
    "RoundRobinHead",
    "Router",
    "Shuffle",
    "StaticChoices",
    "WChoices",
    "make_router",
]
