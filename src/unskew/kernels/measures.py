"""The loops behind the metrics: one pass over the workers (and keys) of a chunk."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.kernels.jit import inlined, kernel
from unskew.kernels.table import find, insert

POINTS = 1000
DUE, STEP, COUNT = 0, 1, 2

# Latencies fall into 2^6 buckets an octave, over 64 octaves: the first bits of the float.
OCTAVE_BITS = 6
DROPPED_BITS = 52 - OCTAVE_BITS
BUCKETS = 64 << OCTAVE_BITS

U6, U63, U1 = np.uint64(6), np.uint64(63), np.uint64(1)


class Series(NamedTuple):
    """At most ``POINTS`` samples (at, value); when full, every second goes and the step doubles."""

    at: NDArray[np.int64]
    value: NDArray[np.float64]
    clock: NDArray[np.int64]


def new_series(step: int) -> Series:
    """Return an empty series whose first sample is due at ``step``."""
    clock = np.array([step, step, 0], np.int64)
    return Series(np.zeros(POINTS, np.int64), np.zeros(POINTS), clock)


@inlined
def sample(series, now, at, value):
    """Add a sample at the moment ``now`` (the one that was due); return the next one due."""
    count = series.clock[COUNT]
    series.at[count] = at
    series.value[count] = value
    count += 1
    if count == POINTS:
        count //= 2
        for i in range(count):
            series.at[i] = series.at[2 * i + 1]
            series.value[i] = series.value[2 * i + 1]
        series.clock[STEP] *= 2
    series.clock[COUNT] = count
    series.clock[DUE] = now + series.clock[STEP]
    return series.clock[DUE]


@kernel
def count_loads(workers, active, loads, counters, series):
    """Count the loads of a phase; return the sums over t of the largest load and of the records.

    ``counters`` holds the records so far, those of this phase sent to active workers, and the
    largest load among the active workers.
    """
    now, sent, top = counters[0], counters[1], counters[2]
    n_active = active.sum()
    due = series.clock[DUE]
    sum_top = sum_sent = 0
    for i in range(len(workers)):
        worker = workers[i]
        load = loads[worker] + 1
        loads[worker] = load
        if active[worker]:
            sent += 1
            top = max(top, load)
        now += 1
        sum_top += top
        sum_sent += sent
        if now == due:
            due = sample(series, now, now, (top - sent / n_active) / max(sent, 1))
    counters[0], counters[1], counters[2] = now, sent, top
    return sum_top, sum_sent


@inlined
def deviation(loads, active):
    """Return the population standard deviation of the active workers' loads."""
    n_active = active.sum()
    mean = 0.0
    for worker in range(len(loads)):
        if active[worker]:
            mean += loads[worker] / n_active
    variance = 0.0
    for worker in range(len(loads)):
        if active[worker]:
            variance += (loads[worker] - mean) ** 2 / n_active
    return np.sqrt(variance)


@kernel
def interval_deviations(workers, interval, active, loads, counters, totals, series):
    """Measure the spread of the loads of every interval that ends within the chunk.

    ``counters`` holds the records so far, those of the interval under way, and the intervals;
    ``totals`` the sum and the maximum of the deviations.
    """
    now, filled, intervals = counters[0], counters[1], counters[2]
    for i in range(len(workers)):
        loads[workers[i]] += 1
        filled += 1
        if filled == interval:
            value = deviation(loads, active)
            totals[0] += value
            totals[1] = max(totals[1], value)
            intervals += 1
            if intervals == series.clock[DUE]:
                sample(series, intervals, now + i + 1, value)
            loads[:] = 0
            filled = 0
    counters[0], counters[1], counters[2] = now + len(workers), filled, intervals


@kernel
def count_pairs(keys, workers, start, table, rows, counters, worker_keys):
    """Mark (key, worker) pairs from record ``start`` on; return where the table got full.

    ``rows`` has a row of bits for each key id; ``counters`` holds the number of keys.
    """
    n_keys = counters[0]
    stop = len(keys)
    for i in range(start, len(keys)):
        position, key_id = find(table, keys[i])
        if key_id < 0:
            if n_keys == len(rows):
                stop = i
                break
            key_id = np.int32(n_keys)
            insert(table, position, keys[i], key_id)
            n_keys += 1
        worker = np.uint64(workers[i])
        word = rows[key_id, worker >> U6]
        bit = U1 << (worker & U63)
        if word & bit == 0:
            rows[key_id, worker >> U6] = word | bit
            worker_keys[worker] += 1
    counters[0] = n_keys
    return stop


@kernel
def bucket_of(value):
    """Return the number of a latency's bucket, counted from the smallest positive float."""
    return np.float64(value).view(np.int64) >> DROPPED_BITS


@kernel
def queue(workers, arrivals_s, release_s, service_s, free_s, loads, buckets, totals):
    """Send records through their workers' queues, first in first out, none before its release.

    ``service_s`` and ``free_s`` (when a worker will be idle) are per worker; ``totals`` holds the
    records so far, the sum and the maximum of the latencies.
    """
    total, longest = totals[1], totals[2]
    shortest = service_s[0]
    for seconds in service_s:
        shortest = min(shortest, seconds)
    first = bucket_of(shortest)
    for i in range(len(workers)):
        worker = workers[i]
        # Not finish - arrival: a record that does not wait takes exactly its service time.
        start_s = max(free_s[worker], release_s)
        latency = max(start_s - arrivals_s[i], 0.0) + service_s[worker]
        free_s[worker] = arrivals_s[i] + latency
        loads[worker] += 1
        buckets[min(bucket_of(latency) - first, BUCKETS - 1)] += 1
        total += latency
        longest = max(longest, latency)
    totals[0] += len(workers)
    totals[1], totals[2] = total, longest
