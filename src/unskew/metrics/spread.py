"""Spread of the loads within short intervals."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.kernels.measures import COUNT, Series, interval_deviations, new_series
from unskew.metrics.base import Measure, Result, active_mask
from unskew.state import whole


@dataclass(eq=False)
class IntervalSpread(Measure):
    """Population standard deviation of the loads within each interval.

    Where the imbalance of a whole stream hides that workers are hot by turns, this does not. The
    mean and the maximum are over all full intervals; the list holds at most 1,000 of them: when it
    is full every second one is dropped, and from then on half as many are kept. O(1 + n_workers /
    interval) a record, O(n_workers) memory.

    Parameters
    ----------
    n_workers
        Workers, active or not.
    interval
        Records in an interval.

    Examples
    --------
    >>> measure = IntervalSpread(2, interval=4)
    >>> measure.update([0] * 9, [0, 0, 1, 1, 0, 0, 0, 0, 1])
    >>> result = measure.result()
    >>> result["series_records"], result["series_load_std"]
    ([4, 8], [0.0, 2.0])
    >>> result["load_std_mean"]
    1.0

    Notes
    -----
    ``set_active`` leaves out the interval under way, which would have two sets of workers, and
    starts a new one. A record sent to an inactive worker fills the interval but is no load.
    """

    interval: int
    _active: NDArray[np.bool_] = field(init=False, repr=False)
    _loads: NDArray[np.int64] = field(init=False, repr=False)
    _counters: NDArray[np.int64] = field(init=False, repr=False)
    _totals: NDArray[np.float64] = field(init=False, repr=False)
    _series: Series = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("interval", self.interval, 1)
        self._active = np.ones(self.n_workers, np.bool_)
        self._loads = np.zeros(self.n_workers, np.int64)
        self._counters = np.zeros(3, np.int64)
        self._totals = np.zeros(2)
        self._series = new_series(1)

    def update(self, keys: ArrayLike, workers: ArrayLike) -> None:
        """Take in a chunk of records; the keys do not matter."""
        interval_deviations(
            self._accept(keys, workers),
            self.interval,
            self._active,
            self._loads,
            self._counters,
            self._totals,
            self._series,
        )

    def set_active(self, mask: ArrayLike) -> None:
        """Say which workers are active from here on; a change starts a new interval."""
        active = active_mask(mask, self.n_workers)
        if np.array_equal(active, self._active):
            return
        self._active = active
        self._loads[:] = 0
        self._counters[1] = 0

    def result(self) -> Result:
        """Return the mean and the maximum over the intervals, and the (thinned) list."""
        intervals = int(self._counters[2])
        points = slice(int(self._series.clock[COUNT]))
        return {
            "records": int(self._counters[0]),
            "intervals": intervals,
            "load_std_mean": float(self._totals[0]) / max(intervals, 1),
            "load_std_max": float(self._totals[1]),
            "series_records": self._series.at[points].tolist(),
            "series_load_std": self._series.value[points].tolist(),
        }
