"""Schemes that keep a key whole: static PoTC, On-Greedy, Off-Greedy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys, as_keys
from unskew.kernels.choices import Loads, new_loads
from unskew.kernels.static import place_greedily, route_least_of_all, route_static_choices
from unskew.kernels.table_route import route_homes
from unskew.routers.base import Router, Workers
from unskew.sketches.exact import FIRST_CAPACITY, KeyIndex, grown


@dataclass(repr=False, eq=False)
class StaticRouter(Router):
    """A key is put somewhere once and stays; all sources share the table of places."""

    splits: ClassVar[bool] = False
    index: KeyIndex = field(init=False, default_factory=KeyIndex)
    homes: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.homes = np.full(FIRST_CAPACITY, -1, np.int64)

    @property
    def shared(self) -> bool:
        """One table for all sources."""
        return True

    def _number(self, keys: Keys) -> NDArray[np.int32]:
        """Return the numbers of the keys, and make room for their homes."""
        ids = self.index.number(keys)
        self.homes = grown(self.homes, len(self.index), -1)
        return ids

    def _home(self, key: np.uint64) -> int:
        """Return where a key is, -1 if it has not come yet."""
        number = int(self.index.find(np.array([key], np.uint64))[0])
        return int(self.homes[number]) if number >= 0 else -1


@dataclass(repr=False, eq=False)
class StaticChoices(StaticRouter):
    """Static PoTC: a new key takes the less loaded of its two candidates, and stays there.

    Keeps keys whole, at the price of a table with an entry for each key that all sources share.

    Examples
    --------
    >>> StaticChoices(n_workers=4).route([7, 7, 7, 8]).tolist()
    [0, 0, 0, 1]

    References
    ----------
    "PoTC" in Nasir et al., ICDE 2015 (see `GreedyD`).
    """

    loads: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.loads = np.zeros(self.n_workers, np.int64)

    def _candidates(self, key: np.uint64) -> Workers:
        home = self._home(key)
        return np.array([home], np.int32) if home >= 0 else self._choices(key, 2)

    def _route(self, keys: Keys, out: Workers) -> None:
        ids = self._number(keys)
        route_static_choices(keys, ids, self._hash_seed, self.homes, self.loads, self._prime, out)


@dataclass(repr=False, eq=False)
class OnGreedy(StaticRouter):
    """A new key goes to the least loaded of all workers, and stays there.

    Of equally loaded workers the one with the lowest number is taken.

    Examples
    --------
    >>> OnGreedy(n_workers=4).route([7, 7, 8, 9]).tolist()
    [0, 0, 1, 2]

    References
    ----------
    "On-Greedy" in Nasir et al., ICDE 2015 (see `GreedyD`).
    """

    loads: Loads = field(init=False)
    cursor: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.loads = new_loads(self.n_workers)
        self.cursor = np.zeros(2, np.int64)

    def _candidates(self, key: np.uint64) -> Workers:
        home = self._home(key)
        return np.array([home], np.int32) if home >= 0 else self._all_workers()

    def _route(self, keys: Keys, out: Workers) -> None:
        route_least_of_all(self._number(keys), self.homes, self.loads, self.cursor, out)


@dataclass(repr=False, eq=False)
class OffGreedy(StaticRouter):
    """Knows all frequencies: keys in descending order, each to the worker with the least so far.

    An offline yardstick: the best that a greedy scheme can do with whole keys. `learn` gives it
    the frequencies; a key that it was not told of goes by its hash.

    Examples
    --------
    >>> router = OffGreedy(n_workers=2)
    >>> router.learn([7, 8, 9], [10, 6, 5])
    >>> router.route([7, 8, 9]).tolist()
    [0, 1, 1]

    References
    ----------
    "Off-Greedy" in Nasir et al., ICDE 2015 (see `GreedyD`).
    """

    offline: ClassVar[bool] = True

    def learn(self, keys: Any, counts: Any) -> None:
        """Place keys by their frequencies; of equally frequent ones the smaller key first."""
        given = as_keys(keys)
        weights = np.asarray(counts, np.float64)
        if len(np.unique(given)) != len(given) or len(weights) != len(given):
            raise ValueError("learn needs each key once, and a count for each")
        order = np.lexsort((given, -weights))
        homes = place_by_weight(weights[order], self.n_workers)
        self.index = KeyIndex()
        ids = self.index.number(given[order])
        self.homes = np.full(max(FIRST_CAPACITY, len(given)), -1, np.int64)
        self.homes[ids] = homes

    def _candidates(self, key: np.uint64) -> Workers:
        home = self._home(key)
        return np.array([home], np.int32) if home >= 0 else self._choices(key, 1)

    def _route(self, keys: Keys, out: Workers) -> None:
        ids = self.index.find(keys)
        route_homes(keys, ids, self._hash_seed, self.homes, self.n_workers, out)


def place_by_weight(weights: NDArray[np.float64], n_workers: int) -> NDArray[np.int32]:
    """Return a worker for each weight: the one with the least so far, the lowest of equals."""
    out = np.empty(len(weights), np.int32)
    place_greedily(weights, np.zeros(n_workers), np.arange(n_workers, dtype=np.int32), out)
    return out
