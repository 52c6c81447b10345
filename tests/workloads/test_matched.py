import math

import numpy as np
import pytest

from unskew.workloads import CT, LJ, TW, WP, Matched, Zipf
from unskew.workloads.matched import power_sum


@pytest.mark.parametrize(
    ("preset", "records", "keys", "p1"),
    [
        (WP(), 22_000_000, 2_900_000, 0.0932),
        (TW(), 1_200_000_000, 31_000_000, 0.0267),
        (CT(), 690_000, 2_900, 0.0329),
        (LJ(), 69_000_000, 4_900_000, 0.0029),
    ],
)
def test_presets_are_the_papers_table_1(
    preset: Matched, records: int, keys: int, p1: float
) -> None:
    assert (preset.records, preset.keys, preset.p1) == (records, keys, p1)
    assert 1 / power_sum(preset.z, keys) == pytest.approx(p1, rel=1e-12)


@pytest.mark.parametrize("z", [0.0, 0.5, 1 - 1e-9, 1.0, 1 + 1e-9, 1.4, 3.0, 20.0])
@pytest.mark.parametrize("keys", [1, 2, 999, 1_000, 1_001, 200_000])
def test_power_sum_is_the_sum(z: float, keys: int) -> None:
    exact = math.fsum((np.arange(1, keys + 1, dtype=np.float64) ** -z).tolist())
    assert power_sum(z, keys) == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize("p1", [0.0011, 0.05, 0.5, 0.999])
def test_hottest_key_has_its_share(p1: float) -> None:
    stream = Matched(p1=p1, keys=1_000, records=20_000, seed=1)
    hits = sum(int((ids == 1).sum()) for ids in stream.ids(5_000))
    assert hits / 20_000 == pytest.approx(p1, abs=5 * math.sqrt(p1 * (1 - p1) / 20_000))


def test_is_zipf_with_the_solved_exponent() -> None:
    stream = Matched(p1=0.2, keys=100, records=500, seed=7)
    plain = Zipf(z=stream.z, keys=100, records=500, seed=7)
    np.testing.assert_array_equal(next(stream.ids()), next(plain.ids()))
    assert stream.describe()["z"] == stream.z


def test_least_share_is_uniform() -> None:
    assert Matched(p1=1 / 50, keys=50).z == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("p1", [0.009, 1.0, 2.0, -1.0, float("nan")])
def test_refuses_shares_out_of_reach(p1: float) -> None:
    with pytest.raises(ValueError, match=r"p1 must be at least 1/keys = 0\.01 and below 1, got"):
        Matched(p1=p1, keys=100)


def test_refuses_a_single_key() -> None:
    with pytest.raises(ValueError, match="keys must be at least 2, got 1"):
        Matched(p1=0.5, keys=1)
