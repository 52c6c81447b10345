"""Waterline: keys by hash, and as few of them moved or split as balance needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels.choices import route_first
from unskew.kernels.counters import look_up
from unskew.kernels.waterline import (
    ALARMED,
    EPOCH,
    PLANS,
    SEEN,
    WaterlineState,
    new_waterline_state,
    route_waterline,
)
from unskew.routers.base import SHARES, Router, Workers
from unskew.state import at_least, whole, within
from unskew.waterline import MOST_KEPT, Demand, Pairs, plan

FIRST_EPOCH, FIRST_PER_WORKER = 500, 10
PER_WORKER = 100
"""Counters for each worker, up to `MOST_COUNTERS`; they find keys of a tenth of a fair load."""
MOST_COUNTERS = 50_000
OFTEN = 10.0
"""A key enters the plan when it was seen this often and has `SMALL` of a fair load."""
SMALL = 1 / 500
ARREARS = 150
"""The most records that a worker catches up with; more would overload it later."""
GAIN = 3.0
"""The weight in the next plan of a record above the mean, up to `PAYBACK` of a fair load."""
PAYBACK = 0.1


@dataclass(repr=False, eq=False)
class Waterline(Router):
    """The house scheme: fills workers up to one level and splits keys only at its edges.

    Records are counted by key (SpaceSaving) and by the worker of their hash. At the end of an epoch
    `unskew.waterline.plan` checks whether all workers are near the level. If one is not, its
    largest key gets another worker, the one with the most room. Between plans a record goes to the
    least loaded of the workers of its key. Workers that share a key are thus kept even without a
    new plan for each change. A pair stays once it is made.

    A key without a plan is on one worker, and plans have at most 4 W pairs beyond one a key. On
    Zipf streams (z = 0.6 to 2.0, 10,000 keys, 10^7 records, 5 to 500 workers) the largest load ends
    within 1 % of the mean, and is within 2 % of it in every interval of 10,000 W records after the
    first; with 1.00 to 1.04 pairs a key up to W = 100, and 1.06 to 1.18 at W = 500
    (`benchmarks/waterline.py`). It needs some thousands of records a worker to get there: with a
    few hundred, what workers got before the first plans can leave one at twice the mean.

    Parameters
    ----------
    n_workers, seed, source
        As of every router.
    capacity
        SpaceSaving's counters; 100 a worker, at least 1,000 and at most 50,000, if not given.
    epoch
        Records between two plans; the first comes after 10 a worker and at least 500, and then
        twice as many each time up to this. 1,000 a worker and at least 20,000 if not given.
    alpha
        What is left of counts after a full epoch.
    tolerance
        How far above the level a worker may be, besides one standard deviation of its load.
    alarm
        Records that a worker may get above its share in an epoch. With more, counts of before are
        forgotten, and epochs begin again with the shortest.

    Examples
    --------
    >>> router = Waterline(n_workers=4)
    >>> workers = router.route([7] * 1200)
    >>> np.bincount(workers).tolist(), router.candidates(7).tolist()
    ([334, 289, 289, 288], [0, 1, 2, 3])
    >>> router.route([8] * 100).tolist() == router.candidates(8).tolist() * 100
    True

    Notes
    -----
    A record costs O(1) amortised, and a plan one to ten milliseconds an epoch: 10 to 30 million
    records a second where shares last, a few million where they change every few thousand records.
    Each source plans alone, by the records that it sees and gives; S sources make up to S times as
    many extra pairs.
    """

    capacity: int | None = None
    epoch: int | None = None
    alpha: float = 0.8
    tolerance: float = 0.01
    alarm: int = 250
    state: WaterlineState = field(init=False)
    planned: ClassVar[str | None] = SHARES

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.capacity is None:
            self.capacity = max(1000, min(PER_WORKER * self.n_workers, MOST_COUNTERS))
        if self.epoch is None:
            self.epoch = max(20_000, 1000 * self.n_workers)
        for name in ("capacity", "epoch", "alarm"):
            whole(name, getattr(self, name), 1)
        within("alpha", self.alpha, 0.0, 1.0)
        at_least("tolerance", self.tolerance, 0.0)
        pairs = self.capacity + MOST_KEPT * self.n_workers
        self.state = new_waterline_state(self.n_workers, self.capacity, pairs)
        self.state.numbers[EPOCH] = min(self._first_epoch, self.epoch)

    @property
    def plans(self) -> int:
        """How often the plan has changed."""
        return int(self.state.numbers[PLANS])

    @property
    def _first_epoch(self) -> int:
        return max(FIRST_EPOCH, FIRST_PER_WORKER * self.n_workers)

    def _candidates(self, key: np.uint64) -> Workers:
        slot = np.empty(1, np.int64)
        look_up(self.state.counters, np.array([key], np.uint64), slot)
        places = self.state.places
        if slot[0] < 0 or places.widths[slot[0]] == 0:
            return self._choices(key, 1)
        first, width = places.firsts[slot[0]], places.widths[slot[0]]
        return places.workers[first : first + width].astype(np.int32)

    def _route(self, keys: Keys, out: Workers) -> None:
        at, numbers = 0, self.state.numbers
        while at < len(keys):
            if numbers[SEEN] == numbers[EPOCH]:
                self._end_epoch()
            at = route_waterline(keys, at, self._hash_seed, self.state, self.alarm, out)

    def _end_epoch(self) -> None:
        """Plan, and begin the next epoch."""
        s, alarmed = self.state, bool(self.state.numbers[ALARMED])
        if alarmed:
            s.counts[1], s.homes[1] = 0.0, 0.0
        s.counts[1] += s.counts[0]
        s.homes[1] += s.homes[0]
        self._plan()
        assert self.epoch is not None
        if s.numbers[EPOCH] >= self.epoch:
            for decaying in (s.counts[1], s.homes[1], s.places.sent):
                decaying *= self.alpha
        s.counts[0], s.homes[0] = 0.0, 0.0
        s.loads[:] = np.maximum(s.loads, int(s.loads.sum()) // self.n_workers - ARREARS)
        s.starts[:] = s.loads
        s.numbers[EPOCH] = min(self._first_epoch if alarmed else 2 * s.numbers[EPOCH], self.epoch)
        s.numbers[SEEN] = s.numbers[ALARMED] = 0

    def _plan(self) -> None:
        """Change the plan if some worker is too far above the level."""
        s, n = self.state, self.n_workers
        counts, widths = s.counts[1], s.places.widths
        fair = float(s.homes[1].cumsum()[-1]) / n
        often = counts >= max(OFTEN, SMALL * fair)
        slots = np.flatnonzero(often | ((widths > 0) & (counts >= 1.0)))
        at_home = np.empty(len(slots), np.int64)
        route_first(s.counters.keys[slots], self._hash_seed, n, at_home)
        rest = s.homes[1] - np.bincount(at_home, counts[slots], minlength=n)
        above = GAIN * (s.loads - int(s.loads.sum()) / n)
        rest += np.clip(above, -PAYBACK * fair, PAYBACK * fair)
        demand = Demand(counts[slots], at_home, rest, np.ones(n))
        current = self._pairs(slots, demand)
        tolerance = self.tolerance + 1.0 / float(np.sqrt(fair))
        pairs = plan(demand, current, tolerance=tolerance, keep_pairs=True)
        if pairs is not current:
            self._follow(slots, demand, pairs)

    def _pairs(self, slots: NDArray[np.int64], demand: Demand) -> Pairs:
        """Return the pairs in force, by the records that they got."""
        places = self.state.places
        widths = places.widths[slots]
        ends = widths.cumsum()
        keys = np.repeat(np.arange(len(slots)), widths)
        at = np.arange(len(keys)) + np.repeat(places.firsts[slots] - ends + widths, widths)
        # One more for each, as weights of 0 would say nothing.
        return Pairs.of(demand, keys, places.workers[at], places.sent[at] + 1.0)

    def _follow(self, slots: NDArray[np.int64], demand: Demand, pairs: Pairs) -> None:
        """Put a plan in force."""
        places = self.state.places
        keys, first, counts = np.unique(pairs.keys, return_index=True, return_counts=True)
        away = (counts > 1) | (pairs.workers[first] != demand.homes[keys])
        rows, mine = np.repeat(away, counts), slots[keys[away]]
        size = int(rows.sum())
        places.widths[:] = 0
        places.widths[mine] = counts[away]
        places.firsts[mine] = counts[away].cumsum() - counts[away]
        places.workers[:size] = pairs.workers[rows]
        places.sent[:size] = pairs.amounts[rows]
        places.levels[mine] = -1
        places.ranks[mine] = 0
        self.state.numbers[PLANS] += 1
