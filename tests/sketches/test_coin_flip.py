from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.sketches import CoinFlip
from unskew.workloads import open_stream


class TestRefused:
    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"threshold": -1}, "threshold must be between 0 and 62, got -1"),
            ({"length": 0}, "length must be between 1 and 57, got 0"),
            ({"threshold": 10, "length": 54}, "length must be between 1 and 53, got 54"),
            ({"ones": 0}, "ones must be between 1 and 16, got 0"),
            ({"length": 3, "ones": 4}, "ones must be between 1 and 3, got 4"),
            ({"decline": -0.1}, "decline must be between 1e-05 and 0.5, got -0.1"),
            ({"decline": 0.6}, "decline must be between 1e-05 and 0.5, got 0.6"),
        ],
    )
    def test_parameters(self, parameters: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            CoinFlip(**parameters)

    @pytest.mark.parametrize("seed", [-1, 2**64])
    def test_seed(self, seed: int) -> None:
        with pytest.raises(ValueError, match="seed must be"):
            CoinFlip(seed=seed)


def test_empty() -> None:
    synopsis = CoinFlip()
    assert synopsis.hot().tolist() == []
    assert len(synopsis) == synopsis.dropped == 0
    assert [bound.tolist() for bound in synopsis.bounds([1])] == [[0.0], [0.0]]


def test_one_key() -> None:
    synopsis = CoinFlip(threshold=1)
    synopsis.update([7] * 200)
    assert synopsis.hot().tolist() == [7]
    assert len(synopsis) == 1
    lower, upper = synopsis.bounds([7, 8])
    assert 2 <= lower[0] <= 16
    assert lower[1] == 0
    assert upper.tolist() == [200.0, 200.0]


def test_hot_keys_come_smallest_first() -> None:
    synopsis = CoinFlip(threshold=0, decline=0.0)
    synopsis.update([9, 3, 5] * 50)
    assert synopsis.hot().tolist() == [3, 5, 9]


def test_the_longest_vectors() -> None:
    for threshold, length in [(0, 63), (20, 43), (62, 1)]:
        synopsis = CoinFlip(threshold=threshold, length=length, ones=1)
        synopsis.update([1] * 500)
        assert synopsis.total == 500.0
    assert len(synopsis) == 0


def test_a_vector_of_one_bit_takes_every_count_above_the_threshold() -> None:
    synopsis = CoinFlip(threshold=0, length=1, ones=1, decline=0.0)
    synopsis.update(range(1000))
    # Half of the keys flip a head first, and no vector has another bit than the first.
    assert len(synopsis) == len(synopsis.hot()) == pytest.approx(500, abs=80)
    assert set(synopsis.synopsis.vectors[: len(synopsis)].tolist()) == {1}


def vectors(synopsis: CoinFlip) -> NDArray[np.uint64]:
    return synopsis.synopsis.vectors[: len(synopsis)]


@pytest.mark.jit
@pytest.mark.parametrize("seed", [0, 1, 12345])
@pytest.mark.parametrize("threshold", [0, 1, 4])
def test_draws_are_geometric(threshold: int, seed: int) -> None:
    n = 100_000 if threshold == 0 else 120_000
    synopsis = CoinFlip(threshold=threshold, length=6, ones=1, decline=0.0, seed=seed)
    synopsis.update(range(n))
    assert synopsis.dropped == 0
    bits = vectors(synopsis)
    for place in range(6):
        # P(t > r + place) = 2^-(r + place + 1); the last bit takes all that is above.
        share = np.count_nonzero(bits >= 2**place) / n
        true = 0.5 ** (threshold + place + 1)
        assert share == pytest.approx(true, abs=5 * np.sqrt(true / n))
    assert set(bits.tolist()) == {1, 2, 4, 8, 16, 32}


@pytest.mark.jit
def test_precision_of_table_1() -> None:
    """A key that becomes hot at r = 10 has come 2^c times with at least the stated chance."""
    n_keys = 20_000
    keys = np.arange(n_keys, dtype=np.uint64)
    synopsis = CoinFlip(threshold=10, decline=0.0, seed=42)
    came, q = 0, 0.5**11
    for times, stated in [(128, 0.9928), (256, 0.9735), (512, 0.9098), (1024, 0.7353)]:
        synopsis.update(np.tile(keys, times - 1 - came))
        came = times - 1
        hot = len(synopsis.hot()) / n_keys
        assert 1 - hot >= stated
        # At most one place of the vector was hit by `came` records; place b with 2^-(b + 1) q.
        none = (1 - q) ** came
        one = sum((1 - q + q * 0.5 ** (b + 1)) ** came - none for b in range(16))
        assert hot == pytest.approx(1 - none - one, abs=4 * np.sqrt(hot / n_keys) + 1e-3)
    assert synopsis.dropped == 0


@pytest.mark.jit
@pytest.mark.parametrize("decline", [0.01, 0.05])
def test_synopsis_size_of_theorem_3(decline: float) -> None:
    """Skewed streams stay below 1 / p, with the keys above 2p in; no stream is much above 2 / p."""
    stream = open_stream("zipf:z=2.0,keys=10000,records=400000,seed=1")
    synopsis = CoinFlip(threshold=2, decline=decline, seed=3)
    sizes = []
    for chunk in stream.chunks(1000):
        synopsis.update(chunk.keys)
        sizes.append(len(synopsis))
    assert max(sizes) < 1 / decline
    every_key_once = CoinFlip(threshold=2, decline=decline, seed=3)
    sizes = []
    for start in range(0, 400_000, 1000):
        every_key_once.update(np.arange(start, start + 1000))
        sizes.append(len(every_key_once))
    # A new vector needs two shifts on average, 1 / p updates each.
    assert np.mean(sizes[100:]) == pytest.approx(2 / decline, rel=0.1)
    assert max(sizes) < 3 / decline
    assert synopsis.dropped == every_key_once.dropped == 0
    assert every_key_once.hot().tolist() == []


@pytest.mark.jit
def test_skewed() -> None:
    chunks = list(open_stream("zipf:z=1.5,keys=10000,records=300000,seed=4").chunks(5000))
    counts = np.unique(np.concatenate([chunk.keys for chunk in chunks]), return_counts=True)
    shares = dict(zip(counts[0].tolist(), (counts[1] / 300_000).tolist(), strict=True))
    frequent = counts[0][counts[1] > 0.05 * 300_000]
    synopsis = CoinFlip(threshold=4, decline=0.01, seed=1)
    kept, hot_shares = [], []
    for chunk in chunks:
        synopsis.update(chunk.keys)
        kept.append(np.mean(synopsis.bounds(frequent)[0] > 0))
        hot_shares += [shares[key] for key in synopsis.hot().tolist()]
    # Theorem 2: shares well above 2p stay in; and what is hot is not rare.
    assert np.mean(kept[10:]) > 0.95
    assert np.mean(np.array(hot_shares) > 0.002) > 0.9


def test_declined_vectors_are_evicted() -> None:
    synopsis = CoinFlip(threshold=0, length=4, decline=0.5, seed=2)
    synopsis.update([1] * 50)
    assert synopsis.hot().tolist() in ([], [1])
    was_hot = False
    for _ in range(50):
        synopsis.update([1])
        was_hot |= synopsis.hot().tolist() == [1]
    assert was_hot
    for key in range(100, 400):
        synopsis.update([key])
        held = synopsis.synopsis.keys[: len(synopsis)]
        assert len(set(held.tolist())) == len(synopsis) <= 8
        assert (vectors(synopsis) > 0).all()
    assert synopsis.bounds([1])[0].tolist() == [0.0]
    assert 1 not in held


def test_without_decline_nothing_is_forgotten() -> None:
    synopsis = CoinFlip(threshold=0, length=8, ones=2, decline=0.0, seed=1)
    sizes, lower = [0], np.zeros(20)
    for _ in range(40):
        synopsis.update(range(20))
        sizes.append(len(synopsis))
        assert (synopsis.bounds(range(20))[0] >= lower).all()
        lower = synopsis.bounds(range(20))[0]
    assert sizes == sorted(sizes)
    assert synopsis.hot().tolist() == list(range(20))


def test_keys_without_room_are_dropped_and_counted() -> None:
    synopsis = CoinFlip(threshold=0, length=16, decline=0.5, seed=0)
    room = len(synopsis.synopsis.keys)
    assert room == 8
    dropped = []
    for key in range(2500):
        before = set(synopsis.synopsis.keys[: len(synopsis)].tolist())
        count = synopsis.dropped
        synopsis.update([key])
        assert len(synopsis) <= room
        if synopsis.dropped > count:
            assert synopsis.dropped == count + 1
            assert len(before) == room
            dropped.append(key)
            assert synopsis.bounds([key])[0].tolist() == [0.0]
    assert len(dropped) == synopsis.dropped > 0


def test_merged_vectors_have_the_bits_of_both() -> None:
    one, other = (CoinFlip(threshold=0, ones=3, decline=0.01, seed=1) for _ in range(2))
    one.update([1] * 6 + [2] * 2)
    other.update([3] * 6 + [1] * 9)
    asked = np.array([1, 2, 3], np.uint64)
    mine, theirs = (dict(zip(held(s), vectors(s), strict=True)) for s in (one, other))
    one.merge(other)
    for key, vector in zip(held(one), vectors(one), strict=True):
        assert vector == mine.get(key, np.uint64(0)) | theirs.get(key, np.uint64(0))
    assert set(held(one)) == set(mine) | set(theirs)
    counts = one.bounds(asked)[0]
    assert one.hot().tolist() == asked[counts >= 3].tolist()
    assert one.total == 23.0


def held(synopsis: CoinFlip) -> list[int]:
    return [int(key) for key in synopsis.synopsis.keys[: len(synopsis)]]


def test_merging_beyond_the_room_keeps_the_fullest_vectors() -> None:
    one, other = (CoinFlip(threshold=0, ones=1, decline=0.5, seed=5) for _ in range(2))
    n_merged = 0
    for start in range(0, 2000, 10):
        one.update(range(start, start + 10))
        other.update(range(start + 10_000, start + 10_010))
        both = dict(zip(held(one) + held(other), [*vectors(one), *vectors(other)], strict=True))
        if len(both) == len(one) + len(other) > 8:
            n_merged += 1
            dropped = one.dropped + other.dropped
            one.merge(other)
            assert len(one) == 8
            assert one.dropped == dropped + len(both) - 8
            fullest = sorted(both, key=lambda key: (-int(both[key]).bit_count(), key))
            assert sorted(held(one)) == sorted(fullest[:8])
    assert n_merged > 0
