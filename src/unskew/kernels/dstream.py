"""DStream: hot keys by shuffle, the others by key grouping."""

from __future__ import annotations

from unskew.kernels.bloom import add_key, contains, remove_key
from unskew.kernels.choices import first_choice
from unskew.kernels.coin_flip import APPEND, SIGNALS, observe
from unskew.kernels.hashing import mix
from unskew.kernels.jit import inlined, kernel


@inlined
def apply_signals(synopsis, counts, probes):
    for i in range(synopsis.numbers[SIGNALS]):
        if synopsis.signals[i] == APPEND:
            add_key(counts, probes, synopsis.signal_keys[i])
        else:
            remove_key(counts, probes, synopsis.signal_keys[i])


@kernel
def route_dstream(keys, seed, synopsis, rule, bloom, probes, turn, out):
    """Route each record; ``turn`` holds the number of workers and the next one in turn."""
    n = turn[0]
    for i in range(len(keys)):
        if observe(synopsis, rule, keys[i]):
            apply_signals(synopsis, bloom, probes)
        if contains(bloom, probes, keys[i]):
            worker = turn[1]
            turn[1] = worker + 1 if worker + 1 < n else 0
        else:
            worker = first_choice(mix(keys[i], seed), n)
        out[i] = worker
