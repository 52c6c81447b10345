"""Readj: move or swap one key at a time between the most and the least loaded worker."""

from __future__ import annotations

from unskew.kernels.jit import inlined, kernel
from unskew.kernels.rebalance import SLACK, comes_before


@inlined
def extremes(bins):
    """Return the most and the least loaded worker, relative to their capacities."""
    most = least = -1
    for d in range(len(bins.load)):
        if bins.capacity[d] > 0:
            if most < 0 or comes_before(bins, most, d):
                most = d
            if least < 0 or comes_before(bins, d, least):
                least = d
    return most, least


@inlined
def collect(homes, worker, out):
    size = 0
    for i in range(len(homes)):
        if homes[i] == worker:
            out[size] = i
            size += 1
    return size


@kernel
def readjust(costs, homes, bins, there, here):
    """Carry out the best move or swap until no worker is above its limit, or none helps.

    ``there`` and ``here`` are scratch for the tracked keys of two workers. Every pair is looked at,
    as published.
    """
    while True:
        most, least = extremes(bins)
        if most == least or bins.load[most] <= bins.limit[most] * (1.0 + SLACK):
            return
        n_there = collect(homes, most, there)
        n_here = collect(homes, least, here)
        best_there = best_here = -1
        best = bins.load[most] / bins.capacity[most] * (1.0 - SLACK)
        for i in range(n_there):
            for j in range(-1, n_here):
                shift = costs[there[i]] - (costs[here[j]] if j >= 0 else 0.0)
                level = max(
                    (bins.load[most] - shift) / bins.capacity[most],
                    (bins.load[least] + shift) / bins.capacity[least],
                )
                if level < best:
                    best, best_there, best_here = level, i, j
        if best_there < 0:
            return
        moved = there[best_there]
        shift = costs[moved]
        homes[moved] = least
        if best_here >= 0:
            shift -= costs[here[best_here]]
            homes[here[best_here]] = most
        bins.load[most] -= shift
        bins.load[least] += shift
