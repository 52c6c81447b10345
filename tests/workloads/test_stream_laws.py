"""The laws of `unskew.workloads.base`, over every generator of the table."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.hashing import hash_longs
from unskew.workloads import STREAMS, Generated, open_stream

SMALL: dict[str, dict[str, Any]] = {name: {"records": 997, "seed": 5} for name in STREAMS}
for name in ("wp", "tw", "ct", "lj"):
    SMALL[name] |= {"keys": 1_000}
SMALL["fluctuating-zipf"] |= {"keys": 200, "interval": 100, "workers": 4}
every_stream = pytest.mark.parametrize("name", STREAMS)


def small(name: str) -> Generated:
    parameters = SMALL[name]
    return STREAMS[name](**parameters)


def all_ids(stream: Generated, size: int = 65_536) -> list[int]:
    return [int(i) for ids in stream.ids(size) for i in ids]


@every_stream
@settings(deadline=None, max_examples=15)
@given(size=st.integers(1, 1_200))
def test_size_free(name: str, size: int) -> None:
    stream = small(name)
    assert all_ids(stream, size) == all_ids(stream)
    lengths = [len(chunk.keys) for chunk in stream.chunks(size)]
    assert sum(lengths) == 997
    assert all(a == size for a, _ in pairwise(lengths))


@every_stream
def test_replayable(name: str) -> None:
    stream = small(name)
    first = np.concatenate([chunk.keys for chunk in stream.chunks(100)])
    again = np.concatenate([chunk.keys for chunk in stream.chunks(100)])
    np.testing.assert_array_equal(first, again)
    assert all_ids(stream) == all_ids(small(name))


@every_stream
def test_seeded(name: str) -> None:
    other = STREAMS[name](**(SMALL[name] | {"seed": 6}))
    assert all_ids(small(name)) != all_ids(other)


@every_stream
def test_keys_are_hashed_as_bigint(name: str) -> None:
    stream = small(name)
    (chunk,) = stream.chunks()
    assert chunk.keys.dtype == np.uint64
    assert chunk.source_keys is None
    np.testing.assert_array_equal(chunk.keys, hash_longs(np.array(all_ids(stream))))


@every_stream
def test_describes_itself(name: str) -> None:
    stream = small(name)
    described = json.loads(json.dumps(stream.describe()))
    assert described["kind"] == name
    assert open_stream(described["spec"]) == stream
    assert stream.n_records == 997


@every_stream
def test_refuses_sizes_and_lengths_below_one(name: str) -> None:
    for call in (small(name).chunks, small(name).ids):
        with pytest.raises(ValueError, match="size must be at least 1, got 0"):
            call(0)
    with pytest.raises(ValueError, match="records must be at least 1, got 0"):
        STREAMS[name](**(SMALL[name] | {"records": 0}))
    with pytest.raises(ValueError, match="seed must be at least 0, got -1"):
        STREAMS[name](**(SMALL[name] | {"seed": -1}))
