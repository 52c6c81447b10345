from __future__ import annotations

import datetime as dt
import math
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from unskew import hash_keys
from unskew.hashing import as_keys, hash_longs

NULL = 42
MOMENT = dt.datetime(2026, 11, 15, 8)
MICROSECONDS = int(MOMENT.replace(tzinfo=dt.timezone.utc).timestamp()) * 1_000_000


def xx(data: bytes) -> int:
    return int(xxhash.xxh64_intdigest(data, seed=42))


def xx_int(value: int) -> int:
    return xx(value.to_bytes(4, "little", signed=True))


def xx_long(value: int) -> int:
    return xx((value % 2**64).to_bytes(8, "little"))


def hashed(values: Any) -> list[int]:
    keys = hash_keys(values)
    assert keys.dtype == np.uint64
    assert keys.ndim == 1
    return [int(key) for key in keys]


# What xxhash64 of Spark 4.3 returns, as unsigned numbers.
GOLDEN: list[tuple[Any, Any, int]] = [
    ("", pa.string(), 11002672306508523268),
    ("spark", pa.string(), 16485812939041303506),
    ("The quick brown fox jumps over the lazy dog, twice", pa.string(), 14587120223250945550),
    (1, pa.int64(), 11445071438006506034),
    (-7, pa.int32(), 4987848727247274714),
    (-7, pa.int16(), 4987848727247274714),
    (5, pa.int8(), 504019808641096632),
    (True, pa.bool_(), 11748118483920312617),
    (1.5, pa.float64(), 7738255526519901366),
    (-0.0, pa.float64(), 13194218611613725804),
    (math.nan, pa.float64(), 15318800012184600370),
    (1.5, pa.float32(), 6163473420726370430),
    (-0.0, pa.float32(), 3614696996920510707),
    (dt.date(2026, 11, 15), pa.date32(), 12155904843673632341),
    (MOMENT, pa.timestamp("us", "UTC"), 15341981588584293958),
    (None, pa.null(), NULL),
    (b"\x00\xff\x10", pa.binary(), 5415089035989094387),
]


@pytest.mark.parametrize(("value", "kind", "expected"), GOLDEN, ids=str)
class TestSpark:
    def test_equals_spark(self, value: Any, kind: Any, expected: int) -> None:
        assert hashed(pa.array([value], kind)) == [expected]

    def test_with_nulls(self, value: Any, kind: Any, expected: int) -> None:
        assert hashed(pa.array([None, value, None], kind)) == [NULL, expected, NULL]

    def test_sliced(self, value: Any, kind: Any, expected: int) -> None:
        array = pa.array([None, value, value, None, value, value, None, None, value], kind)
        whole = [NULL if v is None else expected for v in array.to_pylist()]
        for start in range(10):
            for stop in range(start, 10):
                assert hashed(array[start:stop]) == whole[start:stop]

    def test_chunked(self, value: Any, kind: Any, expected: int) -> None:
        chunks = [pa.array(part, kind) for part in ([value], [], [None, value], [None])]
        assert hashed(pa.chunked_array(chunks)) == [expected, NULL, expected, NULL]

    def test_empty(self, value: Any, kind: Any, expected: int) -> None:
        assert hashed(pa.array([], kind)) == []
        assert hashed(pa.array([value], kind)[1:]) == []
        assert hashed(pa.chunked_array([], kind)) == []

    def test_only_nulls(self, value: Any, kind: Any, expected: int) -> None:
        assert hashed(pa.nulls(3, kind)) == [NULL] * 3

    def test_dictionary(self, value: Any, kind: Any, expected: int) -> None:
        kind = pa.string() if kind == pa.null() else kind  # there is no dictionary of nothing
        array = pa.array([value, None, value], kind).dictionary_encode()
        assert hashed(array) == [expected, NULL, expected]
        assert hashed(array[1:]) == [NULL, expected]
        assert hashed(pa.chunked_array([array[2:], array[:2]])) == [expected, expected, NULL]


class TestXxhash:
    def test_binaries_of_all_lengths(self) -> None:
        data = np.random.default_rng(1).integers(0, 256, 400, np.uint8).tobytes()
        values = [data[length // 2 : length // 2 + length] for length in range(201)]
        assert hashed(values) == [xx(value) for value in values]
        assert hashed(pa.array(values, pa.large_binary())) == [xx(value) for value in values]

    def test_strings_of_all_lengths(self) -> None:
        values = ["".join(chr(33 + (i * 7 + n) % 90) for i in range(n)) for n in range(201)]
        expected = [xx(value.encode()) for value in values]
        assert hashed(values) == expected
        assert hashed(pa.array(values, pa.large_string())) == expected
        assert hashed(np.array(values)) == expected
        assert hashed(pa.array(values)[77:150]) == expected[77:150]

    @settings(deadline=None)
    @given(st.lists(st.none() | st.text(max_size=60), max_size=20))
    def test_unicode(self, values: list[str | None]) -> None:
        expected = [NULL if value is None else xx(value.encode()) for value in values]
        assert hashed(pa.array(values, pa.string())) == expected
        assert hashed(pa.array(values, pa.large_string())) == expected
        assert hashed(pa.array(values, pa.string()).dictionary_encode()) == expected

    @pytest.mark.parametrize("bits", [8, 16, 32, 64])
    def test_ints_of_each_width(self, bits: int) -> None:
        low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        values = [low, low + 1, -1, 0, 1, 77, high - 1, high]
        expected = [(xx_long if bits == 64 else xx_int)(value) for value in values]
        assert hashed(pa.array(values, f"int{bits}")) == expected
        assert hashed(np.array(values, f"int{bits}")) == expected
        assert hashed(np.array(values, f"int{bits}")[::-1]) == expected[::-1]

    @pytest.mark.parametrize("bits", [8, 16, 32, 64])
    def test_unsigned_ints_are_the_next_larger_ones_of_spark(self, bits: int) -> None:
        values = [0, 1, 2 ** (bits - 1), 2**bits - 1]
        expected = [(xx_int if bits < 32 else xx_long)(value) for value in values]
        assert hashed(pa.array(values, f"uint{bits}")) == expected
        assert hashed(np.array(values, f"uint{bits}")) == expected

    @settings(deadline=None)
    @given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=30))
    def test_longs(self, values: list[int | None]) -> None:
        expected = [NULL if value is None else xx_long(value) for value in values]
        assert hashed(pa.array(values, pa.int64())) == expected
        if None not in values:
            assert hash_longs(np.array(values, np.int64)).tolist() == expected

    @settings(deadline=None)
    @given(st.lists(st.floats(), max_size=30))
    def test_doubles(self, values: list[float]) -> None:
        # Spark folds -0.0 into 0.0, and every NaN into one.
        bits = [np.float64(math.nan if v != v else v + 0.0).tobytes() for v in values]
        assert hashed(pa.array(values, pa.float64())) == [xx(b) for b in bits]
        assert hashed(np.array(values, np.float64)) == [xx(b) for b in bits]

    @settings(deadline=None)
    @given(st.lists(st.floats(width=32), max_size=30))
    def test_floats(self, values: list[float]) -> None:
        bits = [np.float32(math.nan if v != v else v + 0.0).tobytes() for v in values]
        assert hashed(pa.array(values, pa.float32())) == [xx(b) for b in bits]

    def test_half_floats_are_floats(self) -> None:
        halves = pa.array(np.array([1.5, -0.0, np.nan], np.float16))
        assert hashed(halves) == hashed(pa.array([1.5, 0.0, math.nan], pa.float32()))

    def test_booleans_are_ints(self) -> None:
        assert hashed([True, False, None]) == [xx_int(1), xx_int(0), NULL]


QUIET_NAN, SIGNALLING_NAN = 0x7FF8000000000000, 0x7FF0000000000001


@pytest.mark.parametrize(
    "other",
    [
        0xFFF8000000000000,
        0x7FF8000000000001,
        SIGNALLING_NAN,
    ],
)
def test_every_nan_is_one(other: int) -> None:
    numbers = np.array([QUIET_NAN, other], np.uint64).view(np.float64)
    assert hashed(numbers) == [15318800012184600370] * 2


def test_every_single_nan_is_one() -> None:
    numbers = np.array([0x7FC00000, 0xFFC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert hashed(numbers) == [xx(bytes.fromhex("0000c07f"))] * 3


class TestTimes:
    @pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
    @pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo", "-05:00"])
    def test_timestamps_are_microseconds_of_utc(self, unit: str, zone: str | None) -> None:
        ticks = MICROSECONDS * 1000 // {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
        array = pa.array([ticks, None], pa.int64()).cast(pa.timestamp(unit, zone))
        assert hashed(array) == [xx_long(MICROSECONDS), NULL]
        assert hashed(array[:1]) == [15341981588584293958]

    def test_python_datetimes_in_other_zones(self) -> None:
        tokyo = MOMENT.replace(tzinfo=dt.timezone.utc).astimezone(ZoneInfo("Asia/Tokyo"))
        assert hashed([tokyo]) == hashed([MOMENT]) == [xx_long(MICROSECONDS)]

    def test_before_1970(self) -> None:
        assert hashed([dt.datetime(1969, 12, 31, 23, 59, 59)]) == [xx_long(-1_000_000)]
        assert hashed([dt.date(1969, 12, 31), dt.date(1, 1, 1)]) == [xx_int(-1), xx_int(-719162)]

    def test_numpy_datetimes(self) -> None:
        assert hashed(np.array([MOMENT], "M8[us]")) == [xx_long(MICROSECONDS)]
        assert hashed(np.array(["2026-11-15"], "M8[D]")) == [12155904843673632341]

    def test_nanoseconds_are_cut_as_spark_does(self) -> None:
        array = pa.array([MICROSECONDS * 1000 + 789], pa.timestamp("ns"))
        assert hashed(array) == [xx_long(MICROSECONDS)]


class TestDictionaries:
    def test_nulls_among_the_values(self) -> None:
        indices = pa.array([0, 1, None, 0], pa.int8())
        array = pa.DictionaryArray.from_arrays(indices, pa.array(["a", None]))
        assert hashed(array) == [xx(b"a"), NULL, NULL, xx(b"a")]

    def test_no_values_at_all(self) -> None:
        array = pa.DictionaryArray.from_arrays(
            pa.array([None, None], pa.int8()), pa.array([""])[1:]
        )
        assert hashed(array) == [NULL, NULL]

    @pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint32", "int64"])
    def test_indices_of_each_width(self, kind: str) -> None:
        array = pa.DictionaryArray.from_arrays(pa.array([1, 0, 1], kind), pa.array(["a", "b"]))
        assert hashed(array) == [xx(b"b"), xx(b"a"), xx(b"b")]

    def test_chunks_with_dictionaries_of_their_own(self) -> None:
        chunks = [pa.array(part).dictionary_encode() for part in (["a", "b"], ["b", None, "c"])]
        expected = [xx(b"a"), xx(b"b"), xx(b"b"), NULL, xx(b"c")]
        assert hashed(pa.chunked_array(chunks)) == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[1]], "list<item: int64>"),
        ([{"a": 1}], "struct<a: int64>"),
        (pa.array([1], pa.decimal128(5, 2)), "decimal128(5, 2)"),
        ([dt.timedelta(1)], "duration[us]"),
        ([dt.time(1)], "time64[us]"),
        (pa.array([b"ab"], pa.binary(2)), "fixed_size_binary[2]"),
        (pa.array([[1], None]), "list<item: int64>"),
    ],
    ids=str,
)
def test_refused_types(values: Any, kind: str) -> None:
    with pytest.raises(TypeError) as refusal:
        hash_keys(values)
    assert str(refusal.value) == (
        f"cannot hash keys of type {kind}: use strings, binaries, integers, floats, booleans, "
        "dates or timestamps, or concatenate the columns of a composite key"
    )


def test_hashing_leaves_its_input_alone() -> None:
    values = np.array([1.5, -0.0, np.nan])
    before = values.tobytes()
    hash_keys(values)
    assert values.tobytes() == before
    array = pa.array([3, None, 4])
    hash_keys(array)
    assert array.to_pylist() == [3, None, 4]


class TestAsKeys:
    def test_uint64_is_taken_as_it_is(self) -> None:
        keys = np.array([1, 2**64 - 1], np.uint64)
        assert as_keys(keys) is keys or np.shares_memory(as_keys(keys), keys)

    def test_strided_keys_become_contiguous(self) -> None:
        keys = as_keys(np.arange(6, dtype=np.uint64)[::2])
        assert keys.tolist() == [0, 2, 4]
        assert keys.flags.c_contiguous

    def test_strided_and_swapped(self) -> None:
        keys = as_keys(np.array([1, 2, 3, 4], ">i4")[::2])
        assert keys.tolist() == [1, 3]
        assert keys.dtype == np.dtype("=u8")
        assert keys.flags.c_contiguous

    @pytest.mark.parametrize("nothing", [[], (), np.empty(0), np.empty((0, 3)), pa.array([])])
    def test_nothing_is_no_key(self, nothing: Any) -> None:
        keys = as_keys(nothing)
        assert keys.shape == (0,)
        assert keys.dtype == np.uint64

    def test_arrow_integers(self) -> None:
        assert as_keys(pa.array([1, 2], pa.int32())).tolist() == [1, 2]

    def test_a_list_of_hashes(self) -> None:
        keys = [1, 2**64 - 1]
        assert as_keys(keys).tolist() == keys
