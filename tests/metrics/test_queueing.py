from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metrics.streams import Stream, feed, streams, zipf
from unskew.metrics import Queueing

QUANTILES = {"latency_p50_s": 0.50, "latency_p95_s": 0.95, "latency_p99_s": 0.99}


def naive(stream: Stream, rate: float, services_s: list[float]) -> tuple[list[float], float]:
    """Return the latencies and the last finish, queue by queue."""
    latencies, finished = [0.0] * stream.keys.size, 0.0
    for worker in range(stream.n_workers):
        free = 0.0
        for i in np.flatnonzero(stream.workers == worker):
            arrival = float(i) / rate
            free = max(free, arrival) + services_s[worker]
            latencies[i] = free - arrival
        finished = max(finished, free)
    return latencies, finished


rates = st.sampled_from([0.01, 1.0, 7.5, 300.0, math.inf])


@settings(deadline=None)
@given(stream=streams(), rate=rates, service_s=st.floats(1e-4, 10), even=st.booleans())
def test_against_naive(stream: Stream, rate: float, service_s: float, even: bool) -> None:
    capacities = [1.0 if even else 1.0 + worker % 3 for worker in range(stream.n_workers)]
    measure = Queueing(stream.n_workers, rate, service_s, None if even else capacities)
    result = feed(measure, stream).result()

    services_s = [service_s / capacity for capacity in capacities]
    latencies, finished = naive(stream, rate, services_s)
    loads = np.bincount(stream.workers, minlength=stream.n_workers)
    assert result["records"] == stream.keys.size
    assert result["makespan_s"] == pytest.approx(finished)
    if not latencies:
        return
    assert result["throughput_per_s"] == pytest.approx(len(latencies) / finished)
    assert result["latency_mean_s"] == pytest.approx(np.mean(latencies), rel=1e-6)
    assert result["latency_max_s"] == pytest.approx(max(latencies), rel=1e-6)
    assert result["utilisation"] == pytest.approx((loads * services_s / finished).tolist())
    for name, share in QUANTILES.items():
        exact = np.quantile(latencies, share, method="inverted_cdf")
        assert result[name] == pytest.approx(exact, rel=0.01)


@pytest.mark.jit
@pytest.mark.parametrize("rate", [500.0, 2_000.0, 50_000.0, math.inf])
def test_percentiles_within_one_percent(rate: float) -> None:
    stream = zipf(300_000, 1000, 20)
    result = feed(Queueing(20, rate, 1e-3), stream).result()
    latencies, _ = naive(stream, rate, [1e-3] * 20)
    for name, share in QUANTILES.items():
        assert result[name] == pytest.approx(np.percentile(latencies, 100 * share), rel=0.01)


def test_below_capacity_nobody_waits() -> None:
    measure = Queueing(1, arrival_rate=9.0, service_s=0.1)
    measure.update(np.arange(1000), np.zeros(1000, np.int64))
    result = measure.result()
    for name in ("latency_p50_s", "latency_p95_s", "latency_p99_s", "latency_max_s"):
        assert result[name] == 0.1
    assert result["latency_mean_s"] == pytest.approx(0.1)
    assert result["throughput_per_s"] == pytest.approx(9.0, rel=0.001)
    assert result["utilisation"] == pytest.approx([0.9], rel=0.001)


def test_above_capacity_the_queue_grows_steadily() -> None:
    measure = Queueing(1, arrival_rate=20.0, service_s=0.1)
    measure.update(np.arange(1000), np.zeros(1000, np.int64))
    result = measure.result()
    # Record i waits for i services and arrived after i/2 of them.
    assert result["latency_max_s"] == pytest.approx(0.1 + 999 * 0.05)
    assert result["throughput_per_s"] == pytest.approx(10.0)
    assert result["utilisation"] == pytest.approx([1.0])


def test_all_at_once_lasts_as_long_as_the_busiest_worker() -> None:
    stream = zipf(5000, 50, 6)
    result = feed(Queueing(6, math.inf, 0.002), stream).result()
    busiest = np.bincount(stream.workers, minlength=6).max()
    assert result["makespan_s"] == pytest.approx(busiest * 0.002)
    assert result["latency_max_s"] == result["makespan_s"]


def test_a_faster_worker_is_less_busy() -> None:
    measure = Queueing(3, math.inf, 1.0, capacities=[1, 4, 2])
    measure.update([0] * 8, [0, 1] * 4)
    result = measure.result()
    assert result["makespan_s"] == 4.0
    assert result["utilisation"] == [1.0, 0.25, 0.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arrival_rate": 0.0}, "arrival_rate must be positive, got 0.0"),
        ({"arrival_rate": math.nan}, "arrival_rate must be positive"),
        ({"service_s": 0.0}, "service_s must be positive and finite, got 0.0"),
        ({"service_s": math.inf}, "service_s must be positive and finite"),
        ({"capacities": [1.0]}, "capacities must have 2 entries"),
        ({"capacities": [1.0, 0.0]}, "capacities must be positive and finite"),
        ({"capacities": [1.0, math.inf]}, "capacities must be positive and finite"),
    ],
)
def test_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Queueing(**{"n_workers": 2, "arrival_rate": 1.0, "service_s": 1.0, **options})
