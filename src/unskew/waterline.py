"""Waterline: perfect balance needs few split keys, so split no more than that.

Pour the records of all known keys over the workers, as water over an uneven floor: they come to one
level L, and no plan has a lower maximum. A plan that reaches L fills workers one after another and
splits a key only at an edge, where one worker is full and the next one begins. W workers have W - 1
edges between them. So balance costs W - 1 key-worker pairs beyond one a key, however skewed the
keys are, where schemes that give hot keys d choices pay for d workers of each.

Symbols, where K keys are known and there are W workers:

======  ============================================================================
``c``   amounts: the load of each known key, a constant times its records
``h``   homes: the worker of each key by its hash
``r``   rest: the load of each worker by keys that are not known, at their homes
``q``   capacities of the workers
``b``   pair_cost: the load of a key on a worker besides its records
``L``   the level: sum of max(0, L q_w - r_w) = sum of c_i
======  ============================================================================

The load of worker w is r_w, plus its parts of the c_i, plus b for each of its pairs; its height is
its load divided by q_w.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SWEEPS = 8
"""The number of times that split keys are poured again over their workers."""
MOST_KEPT = 4
"""The most extra pairs for each worker where pairs are kept."""


@dataclass(frozen=True, eq=False)
class Demand:
    """The measured load: that of the known keys with their homes, and the rest by worker.

    Parameters
    ----------
    amounts, homes
        The load c and the home h of each key.
    rest, capacities
        The other load r and the capacity q of each worker.
    pair_cost
        The cost b of a pair.
    """

    amounts: Floats
    homes: Ints
    rest: Floats
    capacities: Floats
    pair_cost: float = 0.0

    @property
    def n_workers(self) -> int:
        """The number of workers."""
        return len(self.rest)

    def level(self) -> float:
        """Return the lowest maximum height that any plan can have: L, or that of a rest above it.

        If pairs have a cost, that of 2 W splits is included.
        """
        pairs = len(self.amounts) + 2 * self.n_workers
        movable = float(self.amounts.cumsum()[-1]) if len(self.amounts) else 0.0
        rest, capacities = self.rest.tolist(), self.capacities.tolist()
        poured = water_level(movable + self.pair_cost * pairs, rest, capacities)
        return max(poured, float((self.rest / self.capacities).max()))


@dataclass(frozen=True, eq=False)
class Pairs:
    """The workers of each key with the load that each of them has, by key and then by worker.

    Parameters
    ----------
    keys, workers
        The numbers of the key and of the worker of each pair.
    amounts
        The load of each pair; those of a key sum up to the load of the key.
    """

    keys: Ints
    workers: Ints
    amounts: Floats

    @classmethod
    def of(cls, demand: Demand, keys: Ints, workers: Ints, weights: Floats) -> Pairs:
        """Return pairs by their weights within a key, and all other keys at home.

        Examples
        --------
        >>> demand = Demand(np.array([8.0, 3.0]), np.array([0, 1]), np.zeros(2), np.ones(2))
        >>> pairs = Pairs.of(demand, np.array([0, 0]), np.array([0, 1]), np.array([3.0, 1.0]))
        >>> pairs.keys.tolist(), pairs.workers.tolist(), pairs.amounts.tolist()
        ([0, 0, 1], [0, 1, 1], [6.0, 2.0, 3.0])
        """
        n_keys = len(demand.amounts)
        known = np.zeros(n_keys, np.bool_)
        known[keys] = True
        alone = np.flatnonzero(~known)
        keys = np.concatenate([keys, alone])
        workers = np.concatenate([workers, demand.homes[alone]])
        weights = np.concatenate([weights, np.ones(len(alone))])
        sums = np.bincount(keys, weights, minlength=n_keys)
        return cls(*_merged(keys, workers, demand.amounts[keys] * weights / sums[keys]))

    def loads(self, demand: Demand) -> Floats:
        """Return the load of each worker."""
        weights = self.amounts + demand.pair_cost
        return demand.rest + np.bincount(self.workers, weights, minlength=demand.n_workers)

    def height(self, demand: Demand) -> float:
        """Return the largest load for its capacity."""
        return float((self.loads(demand) / demand.capacities).max())

    def extra(self) -> int:
        """Return how many pairs there are beyond one a key."""
        return len(self.keys) - len(np.unique(self.keys))


def plan(
    demand: Demand, current: Pairs, *, tolerance: float = 0.02, keep_pairs: bool = False
) -> Pairs:
    """Return pairs that keep every worker near the level, with few that are not in force already.

    Nothing changes while the largest height is within the tolerance. Otherwise records first move
    between the workers that split keys are on already, which makes no new pair. Then each worker
    that is still too high gives away what it has above the level: of one key that is as large as
    that, if there is one, else of its largest keys. What is given away goes, the largest piece
    first, back home or to the worker where it fits best; what fits nowhere fills up the emptiest
    workers one after another. So a key gets as few workers as its share needs.

    With the measured loads as they are, the largest height is at most ``1 + tolerance`` times
    `Demand.level`, below which no plan can go; and there are at most W - 1 pairs beyond one a key.
    Loads that differ from the measured ones by a factor of up to ``1 + e`` add that factor.

    Parameters
    ----------
    demand
        What was measured.
    current
        The pairs in force; `Pairs.of` without any has every key at home.
    tolerance
        How far above the level a worker may be.
    keep_pairs
        Whether a new pair costs more than one that stays: then a pair stays, also with an amount of
        0, and a key is split rather than moved. There are up to 4 W extra pairs.

    Returns
    -------
    Pairs
        The same object where nothing should change: also if a change would lower the largest
        height by less than half of the tolerance.

    Examples
    --------
    A key with two thirds of the load of three workers gets two of them; no other key moves.

    >>> demand = Demand(np.array([8.0, 2.0, 2.0]), np.array([0, 1, 1]), np.zeros(3), np.ones(3))
    >>> none = np.empty(0, np.int64)
    >>> pairs = plan(demand, Pairs.of(demand, none, none, np.empty(0)))
    >>> list(zip(pairs.keys.tolist(), pairs.workers.tolist(), pairs.amounts.tolist()))
    [(0, 0, 4.0), (0, 2, 4.0), (1, 1, 2.0), (2, 1, 2.0)]
    >>> plan(demand, pairs) is pairs
    True
    """
    level, height = demand.level(), current.height(demand)
    if height <= (1 + tolerance) * level:
        return current
    bound = (1 + tolerance / 2) * level
    most = MOST_KEPT * demand.n_workers if keep_pairs else demand.n_workers - 1
    shared = _share(demand, current, bound, keep_pairs)
    found = _shed(_Shedding(demand, shared, level, bound, keep_pairs))
    if found.extra() > most:
        gathered = _gathered(demand, current)
        found = _shed(_Shedding(demand, gathered, level, bound, keep_pairs=False))
    return found if found.height(demand) <= height - tolerance / 2 * level else current


def water_level(amount: float, rest: Sequence[float], capacities: Sequence[float]) -> float:
    """Return the height that workers come to when an amount is poured over them.

    Examples
    --------
    >>> water_level(4.0, [1.0, 3.0, 9.0], [1.0, 1.0, 1.0])
    4.0
    """
    heights = sorted((r / q, r, q) for r, q in zip(rest, capacities, strict=True))
    level, load, capacity = np.inf, amount, 0.0
    for height, r, q in heights:
        if level <= height:
            break
        load += r
        capacity += q
        level = load / capacity
    return level


def _merged(keys: Ints, workers: Ints, amounts: Floats) -> tuple[Ints, Ints, Floats]:
    """Return pairs in order, each once."""
    order = np.lexsort((workers, keys))
    keys, workers, amounts = keys[order], workers[order], amounts[order]
    first = np.ones(len(keys), np.bool_)
    first[1:] = (keys[1:] != keys[:-1]) | (workers[1:] != workers[:-1])
    sums = np.zeros(int(first.sum()))
    np.add.at(sums, first.cumsum() - 1, amounts)
    return keys[first], workers[first], sums


def _gathered(demand: Demand, pairs: Pairs) -> Pairs:
    """Return every key whole, where most of it is."""
    order = np.lexsort((-pairs.amounts, pairs.keys))
    keys, first = np.unique(pairs.keys[order], return_index=True)
    return Pairs(keys, pairs.workers[order][first], demand.amounts[keys])


def _share(demand: Demand, pairs: Pairs, bound: float, keep_pairs: bool) -> Pairs:
    """Pour split keys anew over the workers that they are on, where one of these is too high."""
    loads, amounts = pairs.loads(demand), pairs.amounts.tolist()
    keys, first, counts = np.unique(pairs.keys, return_index=True, return_counts=True)
    split = np.repeat(counts > 1, counts)
    workers, q = pairs.workers.tolist(), demand.capacities.tolist()
    for _ in range(SWEEPS):
        high = split & (loads > bound * demand.capacities)[pairs.workers]
        now = loads.tolist()
        for at in np.searchsorted(keys, np.unique(pairs.keys[high])).tolist():
            part = range(first[at], first[at] + counts[at])
            others = [now[workers[i]] - amounts[i] for i in part]
            speeds = [q[workers[i]] for i in part]
            level = water_level(float(demand.amounts[keys[at]]), others, speeds)
            for i, other, speed in zip(part, others, speeds, strict=True):
                amounts[i] = max(0.0, level * speed - other)
                now[workers[i]] = other + amounts[i]
        loads = np.array(now)
    shared = np.array(amounts, np.float64)
    used = (shared > 0) | keep_pairs
    used[first] |= counts == 1
    return Pairs(pairs.keys[used], pairs.workers[used], shared[used])


@dataclass
class _Shedding:
    """Pieces of keys on their way from workers that are too high to those that have room.

    ``keys``, ``workers`` and ``amounts`` are new pairs; ``left`` is what old ones keep, less than 0
    for those that are gone.
    """

    demand: Demand
    pairs: Pairs
    level: float
    bound: float
    keep_pairs: bool
    keys: list[int] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    amounts: list[float] = field(default_factory=list)
    left: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.left = self.pairs.amounts.copy()

    def pieces(self, loads: Floats) -> list[tuple[float, int]]:
        """Take from each worker that is too high what it has above the level."""
        q, b, taken = self.demand.capacities, self.demand.pair_cost, []
        order = np.lexsort((self.pairs.keys, self.pairs.amounts, self.pairs.workers))
        ends = np.searchsorted(self.pairs.workers[order], np.arange(len(loads) + 1))
        for worker in np.flatnonzero(loads > self.bound * q).tolist():
            excess = float(loads[worker] - self.level * q[worker])
            slack = (self.bound - self.level) * float(q[worker])
            mine = order[ends[worker] : ends[worker + 1]].tolist()
            sizes = self.pairs.amounts[mine].tolist()
            while mine and excess > slack:
                fit = bisect_left(sizes, excess - b) if sizes[-1] > excess else len(sizes)
                near = fit > 0 and sizes[fit - 1] + b >= excess - slack and not self.keep_pairs
                whole = fit == len(sizes) or near
                at = fit - 1 if whole else len(sizes) - 1
                size = sizes.pop(at)
                pair = mine.pop(at)
                amount = size if whole else min(size, excess)
                self.left[pair] = -1.0 if whole else size - amount
                taken.append((amount, int(self.pairs.keys[pair])))
                excess -= amount + b
                loads[worker] -= amount + b if whole else amount
                if not whole:
                    break
        return sorted(taken, key=lambda piece: (-piece[0], piece[1]))

    def place(self, pieces: list[tuple[float, int]], loads: Floats) -> None:
        """Give each piece to the worker where it fits best, or split it over the emptiest ones."""
        q, b = self.demand.capacities, self.demand.pair_cost
        slack = (self.bound - self.level) * float(q.min())
        room = (self.level * q - loads).tolist()
        rooms = sorted((free, w) for w, free in enumerate(room) if free > 0)
        for amount, key in pieces:
            home = int(self.demand.homes[key])
            while amount > 0:
                if room[home] > 0 and amount + b <= room[home] + slack:
                    at = bisect_left(rooms, (room[home], home))
                else:
                    at = bisect_left(rooms, (amount + b - slack, -1))
                fits = at < len(rooms)
                # The last worker takes what is left: rounding may have taken the room for it.
                free, worker = rooms.pop(at if fits else -1)
                part = amount if fits or not rooms else max(0.0, min(amount, free - b))
                room[worker] = free - part - b
                if room[worker] > 0 or not rooms:
                    insort(rooms, (room[worker], worker))
                if part > 0:
                    self.keys.append(key)
                    self.workers.append(worker)
                    self.amounts.append(part)
                amount -= part


def _shed(shedding: _Shedding) -> Pairs:
    """Move what workers have above the level, if they are above the bound, to those below it."""
    demand, pairs = shedding.demand, shedding.pairs
    loads = pairs.loads(demand)
    pieces = shedding.pieces(loads)
    if not pieces or not (shedding.level * demand.capacities > loads).any():
        return pairs
    shedding.place(pieces, loads)
    stay = shedding.left >= 0
    return Pairs(
        *_merged(
            np.concatenate([pairs.keys[stay], np.array(shedding.keys, np.int64)]),
            np.concatenate([pairs.workers[stay], np.array(shedding.workers, np.int64)]),
            np.concatenate([shedding.left[stay], np.array(shedding.amounts, np.float64)]),
        )
    )
