"""The table of schemes, and how they are named in a spec string."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from unskew.routers.base import Router
from unskew.routers.consistent import ConsistentHash
from unskew.routers.distribution_key import DistributionKey
from unskew.routers.dstream import DStream
from unskew.routers.fish import Fish
from unskew.routers.greedy import GreedyD, PartialKey
from unskew.routers.head_choices import DChoices, RoundRobinHead, WChoices
from unskew.routers.key import KeyGrouping
from unskew.routers.shuffle import Shuffle
from unskew.routers.static import OffGreedy, OnGreedy, StaticChoices
from unskew.routers.waterline import Waterline
from unskew.spec import check_named, init_fields, read_named

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
    "waterline": Waterline,
}


@dataclass(frozen=True)
class Scheme:
    """A scheme with some of its parameters given: a router still without workers and a source."""

    name: str
    given: dict[str, Any] = field(default_factory=dict)

    @property
    def router(self) -> type[Router]:
        """The class of its routers."""
        return ROUTERS[self.name]

    def accepts(self, parameter: str) -> bool:
        """Say whether it has a parameter that is not given yet."""
        return parameter in parameters_of(self.router) and parameter not in self.given

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{name}={value}" for name, value in self.given.items())])


def parameters_of(router: type[Router]) -> dict[str, str]:
    """Return the parameters of a scheme besides its workers, with their types."""
    return {name: kind for name, kind in init_fields(router).items() if name != "n_workers"}


def make_router(name: str, n_workers: int, **parameters: Any) -> Router:
    """Return a router by the name of its scheme.

    Examples
    --------
    >>> make_router("pkg", 8, load="global")
    PartialKey(n_workers=8, seed=0, source=0, load='global', probe_records=100000)
    """
    check_named("scheme", name, ROUTERS, parameters, parameters_of)
    return ROUTERS[name](n_workers, **parameters)


def read_schemes(text: str) -> list[Scheme]:
    """Return the schemes that a string names, with commas between them.

    Parameters follow a scheme's name after colons.

    Examples
    --------
    >>> [str(scheme) for scheme in read_schemes("key,pkg:load=global,fish:alpha=0.5:epoch=1e4")]
    ['key', 'pkg:load=global', 'fish:alpha=0.5:epoch=10000']
    """
    named = read_named("scheme", text, ROUTERS, parameters_of)
    return [Scheme(name, given) for name, given in named]
