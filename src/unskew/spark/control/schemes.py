"""Schemes on Spark: a router or a planner, and what it supports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from unskew.kernels.jit import uncompiled
from unskew.planners import PLANNERS, Planner, read_planners
from unskew.routers import ROUTERS, Scheme, read_schemes
from unskew.routers.base import ALL_WORKERS, BY_HASH, SHARES
from unskew.spark.control.hot_keys import (
    PlannerStrategy,
    RouterStrategy,
    Strategy,
    WaterlineStrategy,
)

MEASURED = "measured"


class SparkScheme(ABC):
    """A scheme that a balancer routes by."""

    text: str
    """The scheme as the user wrote it."""

    @property
    def name(self) -> str:
        """The name of the scheme, without its parameters."""
        return self.text.partition(":")[0].strip()

    @property
    @abstractmethod
    def keeps_keys_whole(self) -> bool:
        """Whether all rows of a key go to one worker, whichever task routes them."""

    @property
    @abstractmethod
    def can_be_planned(self) -> bool:
        """Whether plans made between batches can replace it."""

    @property
    @abstractmethod
    def can_be_online(self) -> bool:
        """Whether it decides record by record."""

    @property
    def by_hash(self) -> bool:
        """Whether it leaves rows where Spark's own hash puts them."""
        return False

    @abstractmethod
    def strategy(
        self, n_workers: int, capacities: Sequence[float] | None = None
    ) -> Strategy | None:
        """Return the strategy that makes its plans, None if it needs none; or refuse to plan it."""

    @abstractmethod
    def with_capacities(self, capacities: Sequence[float] | str, planned: bool) -> SparkScheme:
        """Return the scheme for workers of these capacities, or refuse them."""


@dataclass(frozen=True)
class RouterScheme(SparkScheme):
    """A scheme that is a router.

    Parameters
    ----------
    text
        The scheme as the user wrote it.
    scheme
        The router with its parameters.
    """

    text: str
    scheme: Scheme

    @property
    def keeps_keys_whole(self) -> bool:
        """Whether it never splits a key, and the routers of all tasks agree."""
        return self.scheme.router.fixed and not self.scheme.router.splits

    @property
    def can_be_planned(self) -> bool:
        """Whether its class declares what a plan for it contains."""
        return self.scheme.router.planned is not None

    @property
    def can_be_online(self) -> bool:
        """Always true for a router."""
        return True

    @property
    def by_hash(self) -> bool:
        """Whether a plan for it would be empty, as Spark's hash does the same."""
        return self.scheme.router.planned == BY_HASH

    @property
    def on_all_workers(self) -> bool:
        """Whether a plan for it would have all workers for every key."""
        return self.scheme.router.planned == ALL_WORKERS

    @property
    def by_shares(self) -> bool:
        """Whether a plan has as few workers for a key as its share needs."""
        return self.scheme.router.planned == SHARES

    def strategy(
        self, n_workers: int, capacities: Sequence[float] | None = None
    ) -> Strategy | None:
        """Return the strategy that finds its hot keys."""
        if not self.can_be_planned:
            routers = [name for name, router in ROUTERS.items() if router.planned is not None]
            planned = ", ".join([*routers, *PLANNERS])
            raise ValueError(
                f"{self.name} decides record by record, use routing='online'; planned: {planned}"
            )
        if self.by_hash or self.on_all_workers:
            return None
        if self.by_shares:
            return WaterlineStrategy(n_workers, capacities)
        return RouterStrategy(self.scheme, n_workers)

    def with_capacities(self, capacities: Sequence[float] | str, planned: bool) -> RouterScheme:
        """Return the router with capacities; refuse them if it does not use them."""
        if planned and self.by_shares and not isinstance(capacities, str):
            return self
        if planned or isinstance(capacities, str) or not self.scheme.accepts("capacities"):
            raise ValueError(
                "capacities are for planners like 'mixed', as numbers for 'waterline' in "
                "routing='planned' and for 'fish' and 'consistent' in routing='online', "
                f"not for {self.text}"
            )
        parameters = {**self.scheme.given, "capacities": [*capacities]}
        return replace(self, scheme=replace(self.scheme, given=parameters))


@dataclass(frozen=True)
class PlannerScheme(SparkScheme):
    """A scheme that is a planner.

    Parameters
    ----------
    text
        The scheme as the user wrote it.
    """

    text: str

    @property
    def planner(self) -> Planner:
        """The planner itself."""
        (planner,) = read_planners(self.text).values()
        return planner

    @property
    def keeps_keys_whole(self) -> bool:
        """Always true for a planner."""
        return True

    @property
    def can_be_planned(self) -> bool:
        """Always true for a planner."""
        return True

    @property
    def can_be_online(self) -> bool:
        """Never true: a planner plans between batches."""
        return False

    def strategy(self, n_workers: int, capacities: Sequence[float] | None = None) -> Strategy:
        """Return the strategy that plans by the planner."""
        return PlannerStrategy(self.planner, n_workers, capacities)

    def with_capacities(self, capacities: Sequence[float] | str, planned: bool) -> PlannerScheme:
        """Return the scheme unchanged, as a planner gets the capacities when it plans."""
        if isinstance(capacities, str) and capacities != MEASURED:
            raise ValueError(f"capacities must be numbers or {MEASURED!r}, got {capacities!r}")
        return self


def read_scheme(text: str) -> RouterScheme | PlannerScheme:
    """Return the one scheme that a text names.

    Examples
    --------
    >>> read_scheme("pkg").keeps_keys_whole, read_scheme("mixed:theta_max=0.05").keeps_keys_whole
    (False, True)
    """
    planner = text.partition(":")[0].strip() in PLANNERS
    named = [*read_planners(text)] if planner else read_schemes(text)
    if len(named) != 1:
        raise ValueError(f"a balancer has one scheme, got {text}")
    (scheme,) = named
    if not isinstance(scheme, Scheme):
        return PlannerScheme(text)
    with uncompiled():
        scheme.router(2, **scheme.given)  # raises an error for bad parameters
    return RouterScheme(text, scheme)
