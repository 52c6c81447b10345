"""The histogram of streaming parallel decision trees: few bins, of which the closest are merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unskew.state import whole

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Histogram:
    """Counts of values around a bounded number of centers, one for each bin.

    The total count is exact. As long as there are no more distinct values than bins, each value has
    a bin of its own; after that the two bins with the closest centers become one, at their mean,
    until there are few enough. The least and the greatest value keep bins of their own.

    Parameters
    ----------
    centers
        The centers of the bins, in ascending order.
    counts
        The number of records of each bin.

    Examples
    --------
    >>> histogram = Histogram.of([23, 19, 10, 16, 36, 2, 9], bins=5)
    >>> histogram.centers.tolist(), histogram.counts.tolist()
    ([2.0, 9.5, 17.5, 23.0, 36.0], [1, 2, 2, 1, 1])
    >>> merged = histogram.merge(Histogram.of([32, 30, 45], bins=5), bins=5)
    >>> [round(center, 2) for center in merged.centers.tolist()], merged.counts.tolist()
    ([2.0, 9.5, 19.33, 32.67, 45.0], [1, 2, 3, 3, 1])
    >>> merged.sum([15.0]).round(2).tolist(), merged.uniform(3).round(2).tolist()
    ([3.28], [15.22, 28.96])

    Notes
    -----
    The example is from the paper's appendix A. The paper adds records one by one; here a chunk of
    records is merged with the histogram at once, so fewer bins are merged too early. In the paper
    the outermost bins are merged like others, so sums beyond their centers are guesses.

    References
    ----------
    Ben-Haim and Tom-Tov, A Streaming Parallel Decision Tree Algorithm, JMLR 11, 2010, section 2.1.
    """

    centers: Floats
    counts: Ints

    @classmethod
    def of(cls, values: ArrayLike, bins: int) -> Histogram:
        """Return the histogram of values; null and infinite values are ignored."""
        floats = np.asarray(values, np.float64)
        centers, counts = np.unique(floats[np.isfinite(floats)], return_counts=True)
        return cls(*shrunk(centers, counts.astype(np.int64), bins))

    @classmethod
    def of_bins(cls, centers: Sequence[float], counts: Sequence[int]) -> Histogram:
        """Return a histogram with these bins."""
        return cls(np.array(centers, np.float64), np.array(counts, np.int64))

    def merge(self, *others: Histogram, bins: int) -> Histogram:
        """Return the histogram of the records of several histograms."""
        all_centers = np.concatenate([self.centers, *(other.centers for other in others)])
        all_counts = np.concatenate([self.counts, *(other.counts for other in others)])
        centers, index = np.unique(all_centers, return_inverse=True)
        counts = np.zeros(len(centers), np.int64)
        np.add.at(counts, index.ravel(), all_counts)
        return Histogram(*shrunk(centers, counts, bins))

    @property
    def total(self) -> int:
        """The number of records."""
        return int(self.counts.sum())

    def sum(self, points: ArrayLike) -> Floats:
        """Return about how many records are less than or equal to each point.

        Half of a bin is below its center, and the density is linear between centers.
        """
        at = np.asarray(points, np.float64)
        if len(self.centers) < 2:
            return np.where(at >= self.centers[0], self.total, 0.0) if self.total else 0.0 * at
        i = np.clip(np.searchsorted(self.centers, at, "right") - 1, 0, len(self.centers) - 2)
        low, high = self.counts[i], self.counts[i + 1]
        share = (at - self.centers[i]) / (self.centers[i + 1] - self.centers[i])
        between = self._below()[i] + (low + (low + (high - low) * share)) / 2 * share
        inside = np.where(at >= self.centers[-1], float(self.total), between)
        return np.where(at < self.centers[0], 0.0, inside)

    def uniform(self, parts: int) -> Floats:
        """Return points that divide the records into parts of about equal size."""
        if len(self.centers) < 2:
            return np.repeat(self.centers, parts - 1)
        wanted = self.total * np.arange(1, parts) / parts
        below = self._below()
        i = np.clip(np.searchsorted(below, wanted, "right") - 1, 0, len(below) - 2)
        low, high = self.counts[i].astype(np.float64), self.counts[i + 1].astype(np.float64)
        missing = np.clip(wanted, below[0], below[-1]) - below[i]
        # The root of (high - low) share^2 + 2 low share = 2 missing, in the form without 0 / 0.
        root = np.sqrt(np.maximum(low**2 + 2 * (high - low) * missing, 0.0))
        share = np.minimum(2 * missing / (low + root), 1.0)
        return self.centers[i] + share * (self.centers[i + 1] - self.centers[i])

    def _below(self) -> Floats:
        """Return how many records are below each center."""
        return np.cumsum(self.counts) - self.counts / 2


def shrunk(centers: Floats, counts: Ints, bins: int) -> tuple[Floats, Ints]:
    """Return bins of which the closest two were merged until there are few enough.

    Many pairs are merged at a time. Gaps between centers only grow, so a gap that is smaller than
    its neighbours is closed before them; and if it is among the ``len(centers) - bins`` smallest of
    all, it is closed. Of equal gaps, the first counts as the smallest. The gaps at both ends stay.
    """
    while len(centers) > bins:
        gaps = np.diff(centers)[1:-1]
        rank = np.empty(len(gaps), np.int64)
        rank[np.argsort(gaps, kind="stable")] = np.arange(len(gaps))
        beside = np.concatenate([[len(gaps)], rank, [len(gaps)]])
        least = (rank < beside[:-2]) & (rank < beside[2:])
        closed = np.flatnonzero(least & (rank < len(centers) - bins))
        left, right = closed + 1, closed + 2
        both = counts[left] + counts[right]
        mean = centers[left] + gaps[closed] * (counts[right] / both)
        # Rounding must not move the mean beyond the right center.
        mean = np.minimum(mean, centers[right])
        centers, counts = np.delete(centers, right), np.delete(counts, right)
        merged = left - np.arange(len(left))
        centers[merged], counts[merged] = mean, both
    return centers, counts


@dataclass(frozen=True)
class CombineHistograms:
    """A CombineFn that returns the histogram of the values of a column, of the type `RETURNS`.

    Parameters
    ----------
    bins
        The largest number of bins of a histogram, at least 3.
    """

    bins: int

    def __post_init__(self) -> None:
        whole("bins", self.bins, 3)

    def create_accumulator(self) -> Histogram:
        """Return an empty histogram."""
        return Histogram.of([], self.bins)

    def add_input(self, accumulator: Histogram, value: float | None) -> Histogram:
        """Return the histogram with one more value."""
        return self.add_inputs(accumulator, [value])

    def add_inputs(self, accumulator: Histogram, values: Sequence[float | None]) -> Histogram:
        """Return the histogram with more values."""
        floats = np.array(values, np.float64)
        return accumulator.merge(Histogram.of(floats, len(floats)), bins=self.bins)

    def merge_accumulators(self, accumulators: Iterable[Histogram]) -> Histogram:
        """Return the histogram of the values of several histograms."""
        return self.create_accumulator().merge(*accumulators, bins=self.bins)

    def extract_output(self, accumulator: Histogram) -> tuple[list[float], list[int]]:
        """Return the centers and the counts."""
        return accumulator.centers.tolist(), accumulator.counts.tolist()


RETURNS = "centers array<double>, counts array<bigint>"
