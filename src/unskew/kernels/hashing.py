"""64-bit hashes: the finaliser that routers use, and xxHash64 as Spark computes it."""

from __future__ import annotations

import numpy as np

from unskew.kernels.jit import inlined, kernel

MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)

P1 = np.uint64(0x9E3779B185EBCA87)
P2 = np.uint64(0xC2B2AE3D27D4EB4F)
P3 = np.uint64(0x165667B19E3779F9)
P4 = np.uint64(0x85EBCA77C2B2AE63)
P5 = np.uint64(0x27D4EB2F165667C5)

U8, U16, U24, U32, U64 = (np.uint64(bits) for bits in (8, 16, 24, 32, 64))
U29, U33 = np.uint64(29), np.uint64(33)
LOW_32 = np.uint64(0xFFFFFFFF)


TYPICAL = 45


def hash_seed(seed: int) -> np.uint64:
    """Return the seed of `mix` that belongs to a router's seed.

    It is spread over 64 bits, for a small one would only permute small keys among themselves; and
    seed 0 is a hash function of ordinary luck: on Zipf streams of 10,000 keys the key-worker pairs
    of PKG are within 6 % of their mean over hash functions, where others are 20 % off.
    """
    return np.uint64((seed + TYPICAL) * int(GOLDEN) % 2**64)


@inlined
def mix(key, seed):
    """Murmur3's 64-bit finaliser over ``key ^ seed``: each output bit hangs on all input bits."""
    h = key ^ seed
    h = (h ^ (h >> U33)) * MIX_1
    h = (h ^ (h >> U33)) * MIX_2
    return h ^ (h >> U33)


@inlined
def rotate(value, bits):
    return (value << bits) | (value >> (U64 - bits))


@inlined
def avalanche(h):
    h = (h ^ (h >> U33)) * P2
    h = (h ^ (h >> U29)) * P3
    return h ^ (h >> U32)


@inlined
def round_8(h, word):
    return rotate(h ^ (rotate(word * P2, np.uint64(31)) * P1), np.uint64(27)) * P1 + P4


@inlined
def round_4(h, word):
    return rotate(h ^ (word * P1), np.uint64(23)) * P2 + P3


@kernel
def xxhash_longs(values, seed, out):
    """XxHash64 of each 8-byte value."""
    start = seed + P5 + U8
    for i in range(len(values)):
        out[i] = avalanche(round_8(start, values[i]))


@kernel
def xxhash_ints(values, seed, out):
    """XxHash64 of each 4-byte value, given as uint32."""
    start = seed + P5 + np.uint64(4)
    for i in range(len(values)):
        out[i] = avalanche(round_4(start, np.uint64(values[i])))


@inlined
def word(data, at, n_bytes):
    value = np.uint64(0)
    for i in range(n_bytes):
        value |= np.uint64(data[at + i]) << (np.uint64(i) * U8)
    return value


@inlined
def stripe(lane, value):
    return rotate(lane + value * P2, np.uint64(31)) * P1


@inlined
def fold(h, lane):
    return (h ^ stripe(np.uint64(0), lane)) * P1 + P4


@inlined
def xxhash_span(data, start, stop, seed):
    length = stop - start
    at = start
    if length >= 32:
        a, b, c, d = seed + P1 + P2, seed + P2, seed, seed - P1
        while at + 32 <= stop:
            a = stripe(a, word(data, at, 8))
            b = stripe(b, word(data, at + 8, 8))
            c = stripe(c, word(data, at + 16, 8))
            d = stripe(d, word(data, at + 24, 8))
            at += 32
        h = (
            rotate(a, np.uint64(1))
            + rotate(b, np.uint64(7))
            + rotate(c, np.uint64(12))
            + rotate(d, np.uint64(18))
        )
        h = fold(fold(fold(fold(h, a), b), c), d)
    else:
        h = seed + P5
    h = h + np.uint64(length)
    while at + 8 <= stop:
        h = round_8(h, word(data, at, 8))
        at += 8
    if at + 4 <= stop:
        h = round_4(h, word(data, at, 4))
        at += 4
    while at < stop:
        h = rotate(h ^ (np.uint64(data[at]) * P5), np.uint64(11)) * P1
        at += 1
    return avalanche(h)


@kernel
def xxhash_spans(data, offsets, seed, out):
    """XxHash64 of ``data[offsets[i]:offsets[i + 1]]`` for each i: strings and binaries."""
    for i in range(len(out)):
        out[i] = xxhash_span(data, offsets[i], offsets[i + 1], seed)
