"""Small routed streams for the tests of the measures."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.metrics import Measure


class Stream(NamedTuple):
    n_workers: int
    keys: NDArray[np.uint64]
    workers: NDArray[np.int32]


@st.composite
def streams(draw: st.DrawFn, max_size: int = 200) -> Stream:
    """Return streams over few or many workers, some of which may never get a record."""
    n_workers = draw(st.sampled_from([1, 2, 3, 63, 64, 65, 130]))
    records = draw(
        st.lists(
            st.tuples(
                st.integers(0, 12) | st.integers(0, 2**64 - 1), st.integers(0, n_workers - 1)
            ),
            max_size=max_size,
        )
    )
    keys = np.array([key for key, _ in records], np.uint64)
    return Stream(n_workers, keys, np.array([worker for _, worker in records], np.int32))


def zipf(size: int, n_keys: int, n_workers: int) -> Stream:
    """Return a seeded, skewed stream, each record at one of its key's two workers."""
    generator = np.random.default_rng(11)
    keys = (generator.pareto(1.0, size) % n_keys).astype(np.uint64)
    workers = (keys * 7 + keys * generator.integers(0, 2, size, np.uint64)) % n_workers
    return Stream(n_workers, keys, workers.astype(np.int32))


def feed(measure: Measure, stream: Stream, cuts: list[int] | None = None) -> Measure:
    """Update a measure with a stream, cut at some places."""
    edges = sorted({min(cut, stream.keys.size) for cut in cuts or []})
    for start, stop in zip([0, *edges], [*edges, stream.keys.size], strict=True):
        measure.update(stream.keys[start:stop], stream.workers[start:stop])
    return measure
