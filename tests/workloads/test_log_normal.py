import math

import numpy as np
import pytest

from unskew.workloads import LN1, LN2, LogNormal


def share(key: int, mu: float, sigma: float) -> float:
    """Return the probability that round(x) is the key, from the normal law."""

    def below(x: float) -> float:
        return 0.5 * math.erfc((mu - math.log(x)) / sigma / math.sqrt(2)) if x > 0 else 0.0

    return below(key + 0.5) - below(key - 0.5)


@pytest.mark.parametrize(
    ("stream", "hottest", "p1", "keys"), [(LN1(), 0, 0.1471, 16_000), (LN2(), 3, 0.0701, 1_100)]
)
def test_papers_table_1(stream: LogNormal, hottest: int, p1: float, keys: int) -> None:
    assert stream.records == 10_000_000
    seen: dict[int, int] = {}
    for ids in stream.ids(1_000_000):
        for key, count in zip(*np.unique(ids, return_counts=True), strict=True):
            seen[int(key)] = seen.get(int(key), 0) + int(count)
    assert max(seen, key=lambda key: seen[key]) == hottest
    assert share(hottest, stream.mu, stream.sigma) == pytest.approx(p1, abs=3e-4)
    assert seen[hottest] / stream.records == pytest.approx(p1, abs=5e-4)
    assert len(seen) == pytest.approx(keys, rel=0.05)


def test_equals_numpy() -> None:
    stream = LogNormal(mu=1.0, sigma=2.0, records=1_000, seed=9)
    x = np.random.Generator(np.random.PCG64(9)).lognormal(1.0, 2.0, 1_000)
    np.testing.assert_array_equal(np.concatenate(list(stream.ids(10))), np.rint(x))


def test_huge_keys_stay_within_64_bits() -> None:
    stream = LogNormal(mu=100, sigma=100, records=1_000)
    assert next(stream.ids()).max() == 2**62
    assert next(stream.ids()).min() >= 0


def test_refuses() -> None:
    with pytest.raises(ValueError, match="sigma must be between 0 and 100, got -1"):
        LogNormal(sigma=-1)
    with pytest.raises(ValueError, match="mu must be between -100 and 100, got inf"):
        LogNormal(mu=float("inf"))
