"""Keys become ``uint64`` once, at the edge: xxHash64 with seed 42, as Spark's ``xxhash64`` does.

The numbers equal Spark's for a column of the same type, so a scheme decides alike in the
simulator and on Spark. Null hashes to the seed, as there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.kernels import hashing as kernels

Keys = NDArray[np.uint64]

SPARK_SEED = 42
NULL_HASH = np.uint64(SPARK_SEED)


def hash_keys(values: Any) -> Keys:
    """Return the 64-bit keys of the values: anything that ``pyarrow.array`` takes.

    Examples
    --------
    >>> hash_keys(["spark", None, "spark"]).tolist()
    [16485812939041303506, 42, 16485812939041303506]
    """
    if isinstance(values, str | bytes):
        raise TypeError(f"hash_keys takes an array of keys, got the single key {values!r}")
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    if isinstance(array, pa.ChunkedArray):
        parts = [hash_keys(chunk) for chunk in array.chunks]
        return np.concatenate(parts) if parts else np.empty(0, np.uint64)
    if pa.types.is_dictionary(array.type):
        hashed = hash_keys(array.dictionary)
        codes = array.indices.fill_null(0).to_numpy(zero_copy_only=False)
        out = hashed[codes] if len(hashed) else np.full(len(array), NULL_HASH)
    else:
        out = _hash_array(array)
    if array.null_count:
        out[array.is_null().to_numpy(zero_copy_only=False)] = NULL_HASH
    return out


def as_keys(values: Any) -> Keys:
    """Return an array of 64-bit integers as keys, unhashed; refuse anything else."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, np.uint64)
    if isinstance(values, list | tuple) and all(type(value) is int for value in values):
        # NumPy would make floats of a list with numbers on both sides of 2^63.
        array = np.array([value % 2**64 for value in values], np.uint64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(
            f"keys must be a 1-d array of integers, got {array.ndim}-d {array.dtype}; "
            "unskew.hash_keys makes keys of other values"
        )
    return np.ascontiguousarray(array).astype(np.uint64, copy=False)


def hash_longs(values: NDArray[Any]) -> Keys:
    """Return the keys of 64-bit integers, as of Spark's BIGINT."""
    out = np.empty(len(values), np.uint64)
    kernels.xxhash_longs(values.view(np.uint64), np.uint64(SPARK_SEED), out)
    return out


def _hash_array(array: pa.Array) -> Keys:
    kind = array.type
    if pa.types.is_null(kind):
        return np.full(len(array), NULL_HASH)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_spans(array, np.int32)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _hash_spans(array, np.int64)
    if pa.types.is_timestamp(kind):
        return _hash_array(array.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64()))
    if pa.types.is_date64(kind):
        return _hash_array(array.cast(pa.date32()))
    if pa.types.is_date32(kind):
        return _hash_array(array.view(pa.int32()))
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and kind.bit_width < 32):
        return _hash_array(array.cast(pa.int32()))
    if pa.types.is_floating(kind):
        return _hash_floats(array)
    if not pa.types.is_integer(kind):
        raise TypeError(
            f"cannot hash keys of type {kind}: use strings, binaries, integers, floats, booleans, "
            "dates or timestamps, or concatenate the columns of a composite key"
        )
    numbers = array.fill_null(0).to_numpy(zero_copy_only=False)
    if kind.bit_width == 64 or pa.types.is_unsigned_integer(kind):
        return hash_longs(np.ascontiguousarray(numbers).astype(np.uint64, copy=False))
    out = np.empty(len(numbers), np.uint64)
    kernels.xxhash_ints(numbers.view(np.uint32), np.uint64(SPARK_SEED), out)
    return out


def _hash_spans(array: pa.Array, offset_type: type[np.signedinteger[Any]]) -> Keys:
    _, offsets, data = array.buffers()
    out = np.empty(len(array), np.uint64)
    spans = np.frombuffer(offsets, offset_type)[array.offset : array.offset + len(array) + 1]
    if len(spans) == 0:
        return out
    text = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    kernels.xxhash_spans(text, spans.astype(np.int64), np.uint64(SPARK_SEED), out)
    return out


def _hash_floats(array: pa.Array) -> Keys:
    # Spark folds -0.0 into 0.0 and every NaN into one before it hashes or groups.
    single = array.type.bit_width < 64
    array = pc.fill_null(array, 0.0).cast(pa.float32() if single else pa.float64())
    numbers = array.to_numpy(zero_copy_only=False).copy()
    numbers[numbers == 0.0] = 0.0
    numbers[np.isnan(numbers)] = np.nan
    return _hash_array(pa.array(numbers.view(np.int32 if single else np.int64)))
