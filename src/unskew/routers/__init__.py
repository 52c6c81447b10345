"""Online schemes, which decide record by record at a source. `ROUTERS` names them all."""

from __future__ import annotations

from unskew.routers.base import Router
from unskew.routers.consistent import ConsistentHash, ElasticRouter
from unskew.routers.distribution_key import DistributionKey
from unskew.routers.dstream import DStream
from unskew.routers.fish import Fish
from unskew.routers.greedy import GreedyD, PartialKey
from unskew.routers.head_choices import DChoices, RoundRobinHead, WChoices
from unskew.routers.key import KeyGrouping
from unskew.routers.planned import TableRouter
from unskew.routers.shuffle import Shuffle
from unskew.routers.static import OffGreedy, OnGreedy, StaticChoices
from unskew.routers.table import ROUTERS, Scheme, make_router, read_schemes
from unskew.routers.waterline import Waterline

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
    "Scheme",
    "Shuffle",
    "StaticChoices",
    "TableRouter",
    "WChoices",
    "Waterline",
    "make_router",
    "read_schemes",
]
