from __future__ import annotations

import numpy as np
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew.kernels.hashing import mix, xxhash_ints, xxhash_longs, xxhash_spans

words = st.integers(0, 2**64 - 1)


def xx(data: bytes, seed: int) -> int:
    return int(xxhash.xxh64_intdigest(data, seed=seed))


def fmix64(key: int) -> int:
    """Murmur3's finaliser (Appleby's fmix64), with Python's integers."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        key = (key ^ (key >> 33)) * factor % 2**64
    return key ^ (key >> 33)


@given(words, words)
@settings(deadline=None)
def test_mix(key: int, seed: int) -> None:
    assert int(mix(np.uint64(key), np.uint64(seed))) == fmix64(key ^ seed)


def test_mix_of_known_words() -> None:
    # fmix64 keeps 0; that of 1 as every implementation has it.
    zero = np.uint64(0)
    assert int(mix(zero, zero)) == 0
    assert int(mix(np.uint64(1), zero)) == 0xB456BCFC34C2CB2C


def test_every_bit_of_a_key_changes_half_of_the_hash() -> None:
    rng = np.random.default_rng(1)
    for bit in range(64):
        flips = 0
        for key in rng.integers(0, 2**63, 20, np.uint64):
            other = key ^ (np.uint64(1) << np.uint64(bit))
            flips += int(mix(key, np.uint64(9)) ^ mix(other, np.uint64(9))).bit_count()
        assert flips / 20 == pytest.approx(32, abs=5)


@given(st.lists(words, max_size=20), words)
@settings(deadline=None)
def test_xxhash_of_longs(values: list[int], seed: int) -> None:
    out = np.empty(len(values), np.uint64)
    xxhash_longs(np.array(values, np.uint64), np.uint64(seed), out)
    assert out.tolist() == [xx(value.to_bytes(8, "little"), seed) for value in values]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=20), words)
@settings(deadline=None)
def test_xxhash_of_ints(values: list[int], seed: int) -> None:
    out = np.empty(len(values), np.uint64)
    xxhash_ints(np.array(values, np.uint32), np.uint64(seed), out)
    assert out.tolist() == [xx(value.to_bytes(4, "little"), seed) for value in values]


@given(st.lists(st.binary(max_size=100), min_size=1, max_size=10), words)
@settings(deadline=None)
def test_xxhash_of_spans(values: list[bytes], seed: int) -> None:
    data = np.frombuffer(b"?" + b"".join(values) + b"?", np.uint8)
    offsets = 1 + np.cumsum([0, *map(len, values)])
    out = np.empty(len(values), np.uint64)
    xxhash_spans(data, offsets, np.uint64(seed), out)
    assert out.tolist() == [xx(value, seed) for value in values]
