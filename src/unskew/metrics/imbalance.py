"""Imbalance of the loads: how far the busiest worker is above the average."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.kernels.measures import COUNT, Series, count_loads, new_series
from unskew.metrics.base import Measure, Result, active_mask
from unskew.state import at_least


@dataclass(eq=False)
class Imbalance(Measure):
    """I(t) = max load - mean load after t records: its last value, its average, its course.

    Loads only grow, so the running maximum costs O(1) a record and the average over every t is
    exact. I(t) / t is sampled every ``sample_every`` records; at 1,000 points every second one is
    dropped and the step doubles, so the memory is O(n_workers) for any length.

    ``set_active`` starts a new phase: from then on I(t) is taken over the active workers, and over
    the records that they got since. The last value, its fraction (of the phase's records) and its
    ratio (to the phase's mean load) are those of the current phase; ``mean_imbalance`` averages
    I(t) over all t of all phases; ``loads`` are the totals of all workers. A record sent to an
    inactive worker counts in ``loads`` only.

    Parameters
    ----------
    n_workers
        Workers, active or not.
    sample_every
        Records between the first samples of the series.

    Examples
    --------
    >>> measure = Imbalance(2)
    >>> measure.update([7, 7, 8, 7], [0, 0, 1, 0])
    >>> result = measure.result()
    >>> result["loads"], result["imbalance"], result["mean_imbalance"]
    ([3, 1], 1.0, 0.75)
    >>> result["series_records"], result["series_imbalance_fraction"][-1]
    ([1, 2, 3, 4], 0.25)

    References
    ----------
    Nasir et al., The Power of Both Choices: Practical Load Balancing for Distributed Stream
    Processing Engines, ICDE 2015, section II (the definition of imbalance).
    """

    sample_every: int = 1
    _active: NDArray[np.bool_] = field(init=False, repr=False)
    _earlier_loads: NDArray[np.int64] = field(init=False, repr=False)
    _loads: NDArray[np.int64] = field(init=False, repr=False)
    _counters: NDArray[np.int64] = field(init=False, repr=False)
    _series: Series = field(init=False, repr=False)
    _earlier_sum: float = field(init=False, repr=False, default=0.0)
    _sum_top: int = field(init=False, repr=False, default=0)
    _sum_sent: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least("sample_every", self.sample_every, 1)
        self._active = np.ones(self.n_workers, np.bool_)
        self._earlier_loads = np.zeros(self.n_workers, np.int64)
        self._loads = np.zeros(self.n_workers, np.int64)
        self._counters = np.zeros(3, np.int64)
        self._series = new_series(self.sample_every)

    def update(self, keys: ArrayLike, workers: ArrayLike) -> None:
        """Take in a chunk of records; the keys do not matter."""
        sum_top, sum_sent = count_loads(
            self._accept(keys, workers), self._active, self._loads, self._counters, self._series
        )
        # Python's integers, because a sum over t outgrows 64 bits before the stream does.
        self._sum_top += int(sum_top)
        self._sum_sent += int(sum_sent)

    def set_active(self, mask: ArrayLike) -> None:
        """Say which workers are active from here on; a change starts a new phase."""
        active = active_mask(mask, self.n_workers)
        if np.array_equal(active, self._active):
            return
        self._earlier_sum += self._phase_sum()
        self._earlier_loads += self._loads
        self._loads[:] = 0
        self._counters[1:] = 0
        self._sum_top = self._sum_sent = 0
        self._active = active

    @property
    def loads(self) -> NDArray[np.int64]:
        """Records that each worker got in all."""
        return self._earlier_loads + self._loads

    def result(self) -> Result:
        """Return the loads, the last and the mean imbalance, and the series."""
        records, sent, top = (int(count) for count in self._counters)
        n_active = int(self._active.sum())
        imbalance = (n_active * top - sent) / n_active
        mean_imbalance = (self._earlier_sum + self._phase_sum()) / max(records, 1)
        points = slice(int(self._series.clock[COUNT]))
        return {
            "records": records,
            "loads": self.loads.tolist(),
            "imbalance": imbalance,
            "imbalance_fraction": imbalance / max(sent, 1),
            "imbalance_to_mean_load": imbalance * n_active / max(sent, 1),
            "mean_imbalance": mean_imbalance,
            "mean_imbalance_fraction": mean_imbalance / max(records, 1),
            "series_records": self._series.at[points].tolist(),
            "series_imbalance_fraction": self._series.value[points].tolist(),
        }

    def _phase_sum(self) -> float:
        """Return the sum of I(t) over the t of this phase."""
        n_active = int(self._active.sum())
        return (n_active * self._sum_top - self._sum_sent) / n_active
