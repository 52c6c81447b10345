"""Key grouping, shuffle grouping, and what all schemes refuse alike."""

from __future__ import annotations

import re

import numpy as np
import pytest

from routers.streams import imbalance, loads_of, spread, uniform, zipf
from unskew.routers import ROUTERS, KeyGrouping, Shuffle, make_router

over_all = pytest.mark.parametrize("name", ROUTERS)


@over_all
def test_refuses_bad_workers_seeds_and_sources(name: str) -> None:
    scheme = ROUTERS[name]
    refused = {
        "n_workers must be at least 1, got 0": {"n_workers": 0},
        "n_workers must be at least 1, got -3": {"n_workers": -3},
        "seed must be between 0 and 18446744073709551615, got -1": {"n_workers": 2, "seed": -1},
        "source must be at least 0, got -1": {"n_workers": 2, "source": -1},
    }
    for message, given in refused.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            scheme(**given)


def test_refuses_an_unknown_scheme() -> None:
    message = r"^unknown scheme 'pgk' \(did you mean 'pkg'\?\): use key, shuffle, potc, "
    with pytest.raises(ValueError, match=message):
        make_router("pgk", 4)
    with pytest.raises(ValueError, match=r"^unknown scheme 'xyzzy': use key, .*, waterline$"):
        make_router("xyzzy", 4)


def test_refuses_an_unknown_parameter() -> None:
    message = "key has no parameter 'speed' (did you mean 'seed'?): use seed, source"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make_router("key", 4, speed=1)
    with pytest.raises(ValueError, match=r"^pkg has no parameter 'd'"):
        make_router("pkg", 4, d=3)


@over_all
def test_one_worker_gets_all(name: str) -> None:
    assert ROUTERS[name](1).route(zipf(1.0, 50, 300)).tolist() == [0] * 300


def test_key_grouping_has_one_place_for_a_key() -> None:
    keys = zipf(1.0, 500, 2000)
    workers = KeyGrouping(10).route(keys)
    assert set(spread(keys, workers).values()) == {1}
    assert np.array_equal(workers, KeyGrouping(10, source=3).route(keys))


def test_key_grouping_is_even_over_many_keys() -> None:
    loads = loads_of(KeyGrouping(10).route(np.arange(3000)), 10)
    assert abs(loads - 300).max() < 5 * 300**0.5


def test_key_grouping_depends_on_the_seed() -> None:
    keys = np.arange(1000)
    same = (KeyGrouping(10, seed=1).route(keys) == KeyGrouping(10, seed=2).route(keys)).mean()
    assert 0.05 < same < 0.16


def test_key_grouping_suffers_from_the_hottest_key() -> None:
    keys = zipf(1.5, 100, 3000)
    p1 = (keys == 1).mean()
    assert imbalance(KeyGrouping(10).route(keys), 10) >= (p1 - 1 / 10) * 3000


@pytest.mark.parametrize("records", [1, 9, 10, 11, 995])
def test_shuffle_is_even_to_one_record(records: int) -> None:
    assert imbalance(Shuffle(10).route(uniform(3, records)), 10) < 1


def test_shuffle_takes_turns_whatever_the_key() -> None:
    workers = Shuffle(7).route(zipf(1.0, 50, 100))
    assert set((np.diff(workers) % 7).tolist()) == {1}


def test_shuffle_starts_differently_at_different_sources() -> None:
    starts = [int(Shuffle(100, source=source).route([1])[0]) for source in range(20)]
    assert len(set(starts)) > 10
    assert starts[0] == Shuffle(100).route([2])[0]
    assert len({int(Shuffle(100, seed=seed).route([1])[0]) for seed in range(20)}) > 10
