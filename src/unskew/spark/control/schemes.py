"""A scheme as Spark runs it: a router or a planner, and what it can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """What a balancer routes by."""

    text: str
    """As the user wrote it."""

    @property
    def name(self) -> str:
        """The scheme without its parameters."""
        return self.text.partition(":")[0].strip()

    @property
    @abstractmethod
    def keeps_keys_whole(self) -> bool:
        """Whether all rows of a key are on one worker, whatever task routes them."""

    @property
    @abstractmethod
    def can_be_planned(self) -> bool:
        """Whether a plan between batches can stand for it."""

    @property
    @abstractmethod
    def can_be_online(self) -> bool:
        """Whether it decides record by record."""

    @property
    def by_hash(self) -> bool:
        """Whether it leaves rows where Spark's own hash has them."""
        return False

    @abstractmethod
    def strategy(
        self, n_workers: int, capacities: Sequence[float] | None = None
    ) -> Strategy | None:
        """Return what makes plans for it; None if it needs none. Refuse what cannot be planned."""

    @abstractmethod
    def with_capacities(self, capacities: Sequence[float] | str, planned: bool) -> SparkScheme:
        """Return the scheme for workers of these capacities, or refuse them."""


@dataclass(frozen=True)
class RouterScheme(SparkScheme):
    """A router.

    Parameters
    ----------
    text
        As the user wrote it.
    scheme
        With its parameters.
    """

    text: str
    scheme: Scheme

    @property
    def keeps_keys_whole(self) -> bool:
        """Whether it never splits a key, and all its routers agree."""
        return self.scheme.router.fixed and not self.scheme.router.splits

    @property
    def can_be_planned(self) -> bool:
        """Whether its class says what a plan has to say."""
        return self.scheme.router.planned is not None

    @property
    def can_be_online(self) -> bool:
        """As every router."""
        return True

    @property
    def by_hash(self) -> bool:
        """Whether a plan has nothing to say."""
        return self.scheme.router.planned == BY_HASH

    @property
    def on_all_workers(self) -> bool:
        """Whether a plan has all workers for every key."""
        return self.scheme.router.planned == ALL_WORKERS

    @property
    def by_shares(self) -> bool:
        """Whether a plan has as few workers for a key as its share needs."""
        return self.scheme.router.planned == SHARES

    def strategy(
        self, n_workers: int, capacities: Sequence[float] | None = None
    ) -> Strategy | None:
        """Return what finds its hot keys."""
        if not self.can_be_planned:
            able = [name for name, router in ROUTERS.items() if router.planned is not None]
            known = ", ".join([*able, *PLANNERS])
            raise ValueError(
                f"{self.name} decides record by record, use routing='online'; planned: {known}"
            )
        if self.by_hash or self.on_all_workers:
            return None
        if self.by_shares:
            return WaterlineStrategy(n_workers, capacities)
        return RouterStrategy(self.scheme, n_workers)

    def with_capacities(self, capacities: Sequence[float] | str, planned: bool) -> RouterScheme:
        """Return the router with capacities, if it or its plans have a use for them."""
        if planned and self.by_shares and not isinstance(capacities, str):
            return self
        if planned or isinstance(capacities, str) or not self.scheme.accepts("capacities"):
            raise ValueError(
                "capacities are for planners like 'mixed', as numbers for 'waterline' in "
                "routing='planned' and for 'fish' and 'consistent' in routing='online', "
                f"not for {self.text}"
            )
        given = {**self.scheme.given, "capacities": [*capacities]}
        return replace(self, scheme=replace(self.scheme, given=given))


@dataclass(frozen=True)
class PlannerScheme(SparkScheme):
    """A planner.

    Parameters
    ----------
    text
        As the user wrote it.
    """

    text: str

    @property
    def planner(self) -> Planner:
        """The planner itself."""
        (planner,) = read_planners(self.text).values()
        return planner

    @property
    def keeps_keys_whole(self) -> bool:
        """As every planner."""
        return True

    @property
    def can_be_planned(self) -> bool:
        """As every planner."""
        return True

    @property
    def can_be_online(self) -> bool:
        """Never: it plans between batches."""
        return False

    def strategy(self, n_workers: int, capacities: Sequence[float] | None = None) -> Strategy:
        """Return the planner for Spark's workers."""
        return PlannerStrategy(self.planner, n_workers, capacities)

    def with_capacities(self, capacities: Sequence[float] | str, planned: bool) -> PlannerScheme:
        """Return the planner: it is given capacities when it plans."""
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
    scheme.router(2, **scheme.given)  # refuses bad parameters
    return RouterScheme(text, scheme)
