"""The routing speed of schemes: records a second on one thread, after a warm-up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unskew.hashing import Keys, hash_keys
from unskew.routers import ROUTERS, Router, Scheme, read_schemes
from unskew.sketches import Exact
from unskew.state import at_least
from unskew.workloads import Zipf

REPEATS = 3


def routing_speed(
    schemes: str,
    workers: Sequence[int],
    exponents: Sequence[float],
    *,
    keys: int = 10_000,
    records: int = 4_000_000,
    seed: int = 1,
    progress: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Return the records a second for each scheme, number of workers and exponent.

    The keys are strings, hashed beforehand. Each figure is the best of three runs of a new router
    over the whole stream, after a run that compiles the kernels.
    """
    at_least("records", records, 1)
    chosen = [Scheme(name) for name in ROUTERS] if schemes == "all" else read_schemes(schemes)
    results = []
    for z in exponents:
        stream = _string_keys(Zipf(z, keys, records, seed))
        for n in workers:
            for scheme in chosen:
                seconds = min(_seconds(scheme, n, stream) for _ in range(REPEATS + 1))
                results.append(
                    {
                        "scheme": str(scheme),
                        "workers": n,
                        "z": z,
                        "records_per_s": records / max(seconds, 1e-9),
                    }
                )
                if progress is not None:
                    progress(1)
    return results


def _string_keys(stream: Zipf) -> Keys:
    """Return the keys of a stream, each the hash of a string with the id in it."""
    names = hash_keys([f"key-{i}" for i in range(stream.keys + 1)])
    return np.concatenate([names[ids] for ids in stream.ids(1 << 20)])


def _seconds(scheme: Scheme, n_workers: int, keys: Keys) -> float:
    router: Router = scheme.router(n_workers, **scheme.given)
    if router.offline:
        frequencies = Exact()
        frequencies.update(keys)
        router.learn(*frequencies.hot())
    started = time.perf_counter()
    for part in np.array_split(keys, max(1, len(keys) // 1_000_000)):
        router.route(part)
    return time.perf_counter() - started
