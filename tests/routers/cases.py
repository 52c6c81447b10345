"""Streams and parameters that the tests over all routers draw from."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.routers import Router, make_router

Keys = NDArray[np.uint64]
Parameters = dict[str, Any]

ODD_KEYS = np.array([0, 2**64 - 1, 2**63, 1], np.uint64)

capacities = st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0])
thetas = st.sampled_from([None, 0.02, 0.1, 0.3])


def zipf_stream(seed: int, z: float, n_keys: int, records: int) -> Keys:
    """Return a Zipf stream over a few odd 64-bit keys, whose ranks turn over in the middle."""
    rng = np.random.default_rng(seed)
    names = np.concatenate([ODD_KEYS, rng.integers(2**64, size=n_keys, dtype=np.uint64)])[:n_keys]
    shares = np.arange(1, n_keys + 1) ** -z
    ranks = rng.choice(n_keys, size=records, p=shares / shares.sum())
    ranks[records // 2 :] = n_keys - 1 - ranks[records // 2 :]
    return names[ranks]


streams = st.builds(
    zipf_stream,
    seed=st.integers(0, 2**32),
    z=st.sampled_from([0.0, 0.8, 1.5, 3.0]),
    n_keys=st.integers(1, 40),
    records=st.integers(0, 400),
)

_HEAD = {
    "theta": thetas,
    "capacity": st.sampled_from([None, 1, 3, 10]),
    "warm_up": st.sampled_from([None, 0, 20]),
}
_OWN: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "greedy-d": {
        "d": st.integers(1, 15),
        "load": st.sampled_from(["local", "global", "probing"]),
    },
    "pkg": {"load": st.sampled_from(["local", "global", "probing"])},
    "d-choices": {**_HEAD, "epsilon": st.sampled_from([0.0, 1e-4, 0.05])},
    "w-choices": _HEAD,
    "round-robin-head": _HEAD,
    "dkg": {
        "learning": st.integers(1, 300),
        "theta": thetas,
        "buckets": st.sampled_from([None, 1, 7]),
    },
    "dstream": {
        "threshold": st.integers(0, 3),
        "length": st.sampled_from([3, 16, 60]),
        "ones": st.integers(1, 3),
        "decline": st.sampled_from([0.0, 0.01, 0.3, 0.5]),
        "false_positives": st.sampled_from([0.001, 0.3]),
        "predictor": st.sampled_from(["central", "local"]),
    },
    "fish": {
        "counters": st.sampled_from([1, 3, 10, 1000]),
        "epoch": st.sampled_from([1, 7, 50, 1000]),
        "alpha": st.sampled_from([0.0, 0.2, 0.9, 1.0]),
        "theta": thetas,
        "rate": st.sampled_from([1.0, 10.0]),
        "interval_s": st.sampled_from([0.7, 5.0, 1000.0]),
        "service_s": st.sampled_from([None, 0.3, 40.0]),
        "nodes": st.integers(1, 20),
    },
    "consistent": {"nodes": st.integers(1, 20)},
    "waterline": {
        "capacity": st.sampled_from([None, 1, 3, 20]),
        "epoch": st.sampled_from([None, 1, 7, 50]),
        "alpha": st.sampled_from([0.0, 0.5, 0.8, 1.0]),
        "tolerance": st.sampled_from([0.0, 0.01, 0.3]),
        "alarm": st.sampled_from([1, 20, 250]),
    },
}


@st.composite
def parameters(draw: st.DrawFn, name: str) -> Parameters:
    """Draw the parameters of a scheme: small enough that a short stream gets everywhere."""
    drawn: Parameters = {
        "n_workers": draw(st.integers(1, 12)),
        "seed": draw(st.sampled_from([0, 1, 42, 2**64 - 1])),
        "source": draw(st.integers(0, 2)),
    }
    if name in ("fish", "consistent") and draw(st.booleans()):
        n = drawn["n_workers"]
        drawn["capacities"] = draw(st.lists(capacities, min_size=n, max_size=n))
    return drawn | {key: draw(strategy) for key, strategy in _OWN.get(name, {}).items()}


def new_router(name: str, given: Parameters) -> Router:
    return make_router(name, **given)
