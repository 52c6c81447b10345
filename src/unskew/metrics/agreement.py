"""Agreement of two schemes that route the same stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from unskew.metrics.base import Result


@dataclass(eq=False)
class Agreement:
    """Share of the records that two schemes send to the same worker, and the Jaccard overlap.

    The overlap is that of the two sets of (record, worker) decisions: alike / (2 m - alike) for m
    records. Both are 1 for an empty stream.

    Examples
    --------
    >>> measure = Agreement()
    >>> measure.update([0, 1, 2, 0], [0, 1, 0, 1])
    >>> result = measure.result()
    >>> result["alike_share"], round(result["jaccard"], 3)
    (0.5, 0.333)

    References
    ----------
    Nasir et al., The Power of Both Choices, ICDE 2015, section V (global against local estimates).
    """

    _records: int = field(init=False, repr=False, default=0)
    _alike: int = field(init=False, repr=False, default=0)

    def update(self, workers: ArrayLike, others: ArrayLike) -> None:
        """Take in what both schemes decided for the same chunk of records."""
        first, second = np.asarray(workers), np.asarray(others)
        if first.shape != second.shape or first.ndim != 1:
            raise ValueError(
                "workers and others must be 1-d and of one length, "
                f"got shapes {first.shape} and {second.shape}"
            )
        self._records += first.size
        self._alike += int(np.count_nonzero(first == second))

    def result(self) -> Result:
        """Return the share of records sent alike, and the overlap of the decisions."""
        records, alike = self._records, self._alike
        return {
            "records": records,
            "alike": alike,
            "alike_share": alike / records if records else 1.0,
            "jaccard": alike / (2 * records - alike) if records else 1.0,
        }
