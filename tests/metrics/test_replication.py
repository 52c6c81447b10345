from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from metrics.streams import Stream, feed, streams, zipf
from unskew.metrics import Replication


def naive(stream: Stream) -> dict[str, object]:
    """Recompute from sets."""
    pairs = set(zip(stream.keys.tolist(), stream.workers.tolist(), strict=True))
    keys = {key for key, _ in pairs}
    held = [worker for _, worker in pairs]
    return {
        "keys": len(keys),
        "replicas": len(pairs),
        "replication": len(pairs) / len(keys) if keys else 0.0,
        "worker_keys": [held.count(worker) for worker in range(stream.n_workers)],
    }


@settings(deadline=None)
@given(streams())
def test_against_naive(stream: Stream) -> None:
    assert feed(Replication(stream.n_workers), stream).result() == naive(stream)


@pytest.mark.parametrize("cuts", [[], list(range(0, 30_000, 999))])
@pytest.mark.parametrize("n_workers", [1, 3, 200])
def test_table_grows(n_workers: int, cuts: list[int]) -> None:
    stream = zipf(30_000, 20_000, n_workers)
    spread_out = stream._replace(keys=stream.keys * np.uint64(0x9E3779B97F4A7C15))
    expected = naive(stream)
    assert feed(Replication(n_workers), stream, cuts).result() == expected
    assert feed(Replication(n_workers), spread_out, cuts).result() == expected
    many = Stream(n_workers, np.arange(5000, dtype=np.uint64), np.zeros(5000, np.int32))
    result = feed(Replication(n_workers), many, cuts).result()
    assert (result["keys"], result["replicas"]) == (5000, 5000)


def test_extremes() -> None:
    stay, roam = Replication(70), Replication(70)
    keys = np.repeat(np.arange(10), 70)
    stay.update(keys, keys)
    roam.update(keys, np.tile(np.arange(70), 10))
    assert stay.result()["replication"] == 1.0
    assert roam.result()["replication"] == 70.0
    assert roam.result()["worker_keys"] == [10] * 70


@pytest.mark.jit
def test_a_million_keys() -> None:
    measure = Replication(100)
    keys = np.arange(1_000_000, dtype=np.uint64)
    for _ in range(2):
        measure.update(keys, np.arange(1_000_000) % 100)
    measure.update(keys[:10], np.full(10, 99))
    result = measure.result()
    assert (result["keys"], result["replicas"]) == (1_000_000, 1_000_010)
