"""Fixed streams, and what the papers measure on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]


def zipf(z: float, n_keys: int, records: int, seed: int = 1) -> Keys:
    """Return keys 1..n_keys by Zipf's law."""
    cdf = np.cumsum(np.arange(1, n_keys + 1) ** -z)
    drawn = np.random.default_rng(seed).random(records)
    return (np.searchsorted(cdf / cdf[-1], drawn, side="right") + 1).astype(np.uint64)


def uniform(n_keys: int, records: int, seed: int = 1) -> Keys:
    return np.random.default_rng(seed).integers(n_keys, size=records).astype(np.uint64)


def loads_of(workers: NDArray[Any], n_workers: int) -> NDArray[np.int64]:
    return np.bincount(workers, minlength=n_workers)


def imbalance(workers: NDArray[Any], n_workers: int) -> float:
    """Return I(m): the largest load less the average."""
    return float(loads_of(workers, n_workers).max() - len(workers) / n_workers)


def spread(keys: Keys, workers: NDArray[Any]) -> dict[int, int]:
    """Return on how many workers each key is; keys below 2**54, workers below 1,024."""
    pairs = np.unique(keys * np.uint64(1024) + workers.astype(np.uint64))
    names, counts = np.unique(pairs // np.uint64(1024), return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))
