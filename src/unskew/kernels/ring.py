"""A consistent-hash ring: sorted points, each with its worker, and a guide to find one in O(1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.hashing import GOLDEN, mix
from unskew.kernels.jit import inlined, kernel

RING_SALT = np.uint64(0x2545F4914F6CDD1D)


class Ring(NamedTuple):
    """Points in order; ``following[i]`` is the next point of another worker than point i's.

    ``guide[b]`` is the first point whose top bits are at least b.
    """

    points: NDArray[np.uint64]
    workers: NDArray[np.int32]
    following: NDArray[np.int32]
    guide: NDArray[np.int32]


@kernel
def hash_points(workers, replicas, seed, out):
    """Write the point of the i-th virtual node of each worker."""
    for i in range(len(workers)):
        node = (np.uint64(workers[i]) << np.uint64(32)) + np.uint64(replicas[i]) + np.uint64(1)
        out[i] = mix(node * GOLDEN, seed ^ RING_SALT)


def new_ring(nodes: NDArray[np.int64], seed: int) -> Ring:
    """Return the ring on which worker w has ``nodes[w]`` points; 0 for a worker that is away."""
    workers = np.repeat(np.arange(len(nodes), dtype=np.int32), nodes)
    replicas = np.arange(len(workers)) - np.repeat(np.cumsum(nodes) - nodes, nodes)
    points = np.empty(len(workers), np.uint64)
    hash_points(workers, replicas, np.uint64(seed), points)
    order = np.argsort(points, kind="stable")
    points, workers = points[order], workers[order]
    bits = max(1, (2 * len(points) - 1).bit_length())
    starts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
    guide = np.searchsorted(points, starts).astype(np.int32)
    return Ring(points, workers, _following(workers), guide)


def _following(workers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return for each point the next one, clockwise, of another worker; itself if there is none."""
    n = len(workers)
    twice = np.concatenate([workers, workers])
    changes = np.flatnonzero(twice[1:] != twice[:-1]) + 1
    if len(changes) == 0:
        return np.arange(n, dtype=np.int32)
    at = changes[np.searchsorted(changes, np.arange(n), side="right")]
    return (at % n).astype(np.int32)


@inlined
def point_of(ring, h):
    """Return the first point at or after a hash, clockwise."""
    at = ring.guide[((h >> np.uint64(32)) * np.uint64(len(ring.guide))) >> np.uint64(32)]
    while at < len(ring.points) and ring.points[at] < h:
        at += 1
    return at if at < len(ring.points) else 0


@kernel
def route_ring(keys, seed, ring, out):
    for i in range(len(keys)):
        out[i] = ring.workers[point_of(ring, mix(keys[i], seed))]


@inlined
def collect_workers(ring, h, out, made, wanted, marks):
    """Extend the distinct workers met clockwise from a hash, from ``made`` to ``wanted``.

    ``marks`` is one longer than the workers: its last entry counts the collections, and a worker
    is taken in this one when its mark equals the count.
    """
    marks[-1] += 1
    stamp = marks[-1]
    for i in range(made):
        marks[out[i]] = stamp
    at = point_of(ring, h)
    while made < wanted:
        worker = ring.workers[at]
        if marks[worker] != stamp:
            marks[worker] = stamp
            out[made] = worker
            made += 1
        at = ring.following[at]


@kernel
def ring_candidates(key, seed, ring, marks, out):
    """Write the first ``len(out)`` distinct workers clockwise from a key."""
    collect_workers(ring, mix(key, seed), out, 0, len(out), marks)
