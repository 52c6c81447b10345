"""Half-linear-half-exponential discretisation, and keys grouped by their discretised values.

Values are in units of the smallest. The representatives for a resolution R = 2^r, by level:

    level    0    1  2  3 ... r      r+1  r+2 ... r+s
    value    0    1  2  4 ... R/2     R   2R  ... sR
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unskew.kernels.jit import inlined, kernel


class Scale(NamedTuple):
    """The unit of values, r of the resolution 2^r, and the highest level."""

    unit: float
    r: int
    top: int


@kernel
def extent(values):
    """Return the smallest value above zero and the largest value; infinity and 0 without any."""
    least, most = np.inf, 0.0
    for x in values:
        if 0.0 < x < least:
            least = x
        most = max(most, x)
    return least, most


@inlined
def level_of(x, r):
    """Return the level of the largest representative that is not above a value."""
    whole = np.int64(x)
    if whole >> r:
        return r + (whole >> r)
    level = np.int64(0)
    for bit in range(r):
        level += whole >= (1 << bit)
    return level


@inlined
def value_of(level, r):
    """Return the representative of a level."""
    return np.float64((level - r) << r if level > r else (1 << level) >> 1)


@kernel
def discretise(values, scale, workers, deviations, first, order, levels):
    """Write for each value the level that represents it.

    Larger values first, each takes of its two representatives the one that brings the sum of the
    deviations on its worker so far nearest to zero; of equals the smaller. In the linear part all
    steps are alike, so that the order within it does not matter. ``first`` (r + 3 long) and
    ``order`` are scratch.
    """
    unit, r, top = scale
    first[:] = 0
    deviations[:] = 0.0
    for i in range(len(values)):
        level = min(level_of(values[i] / unit, r), top)
        levels[i] = level
        first[max(0, r + 1 - level) + 1] += 1
    for b in range(1, len(first)):
        first[b] += first[b - 1]
    for i in range(len(values)):
        b = max(0, r + 1 - levels[i])
        order[first[b]] = i
        first[b] += 1
    for i in order:
        x, level = values[i] / unit, levels[i]
        low = deviations[workers[i]] + x - value_of(level, r)
        high = deviations[workers[i]] + x - value_of(level + 1, r)
        up = (x > 0.0) & (level < top) & (abs(high) < abs(low))
        levels[i] = level + up
        deviations[workers[i]] = high if up else low


@kernel
def represent(levels, scale, out):
    """Write the values that levels stand for."""
    unit, r, _ = scale
    for i in range(len(levels)):
        out[i] = value_of(levels[i], r) * unit


@kernel
def vector_codes(homes, hashed, cost_levels, state_levels, n_workers, n_levels, out):
    """Write one number for each key that says its vector (d, d^h, v_c, v_S)."""
    for i in range(len(homes)):
        place = np.uint64(homes[i]) * np.uint64(n_workers) + np.uint64(hashed[i])
        code = place * np.uint64(n_levels[0]) + np.uint64(cost_levels[i])
        out[i] = code * np.uint64(n_levels[1]) + np.uint64(state_levels[i])


@kernel
def spread(vectors, next_row, end_row, workers, counts, starts, out):
    """Give the keys of each vector, in turn, to the workers that its placements name.

    Vector v has the placements from ``next_row[v]`` to ``end_row[v]``; they are used up.
    """
    for i in range(len(vectors)):
        vector = vectors[i]
        row = next_row[vector]
        if row < end_row[vector]:
            out[i] = workers[row]
            counts[row] -= 1
            next_row[vector] += counts[row] == 0
        else:
            out[i] = starts[vector]
