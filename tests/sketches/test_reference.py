from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketches.cases import ASKED, PARAMETERS, SMALL, streams
from sketches.reference import REFERENCES, CoinFlipReference, Reference
from unskew.sketches import SKETCHES, CoinFlip, Sketch


def hot_keys(sketch: Sketch) -> list[int] | None:
    if not hasattr(sketch, "hot"):
        return None
    hot = sketch.hot()
    return [int(key) for key in (hot[0] if isinstance(hot, tuple) else hot)]


def assert_same(sketch: Sketch, reference: Reference, asked: list[int]) -> None:
    bounds = [reference.bounds(key) for key in asked]
    lower, upper = sketch.bounds(np.array(asked, np.uint64))
    assert lower.tolist() == [low for low, _ in bounds]
    assert upper.tolist() == [high for _, high in bounds]
    assert sketch.estimate(np.array(asked, np.uint64)).tolist() == upper.tolist()
    assert sketch.total == reference.total()
    assert hot_keys(sketch) == reference.hot()


def test_every_sketch_has_a_reference() -> None:
    assert REFERENCES.keys() == SKETCHES.keys() == PARAMETERS.keys() == SMALL.keys()


@pytest.mark.parametrize("name", SKETCHES)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_equals_the_reference(name: str, data: st.DataObject) -> None:
    parameters = data.draw(PARAMETERS[name])
    sketch, reference = SKETCHES[name](**parameters), REFERENCES[name](**parameters)
    assert_same(sketch, reference, ASKED)
    for stream in data.draw(st.lists(streams, max_size=2)):
        sketch.update(np.array(stream, np.uint64))
        for key in stream:
            reference.update(key)
        assert_same(sketch, reference, ASKED)


@pytest.mark.parametrize("name", SKETCHES)
def test_equals_the_reference_on_a_longer_stream(name: str) -> None:
    rng = np.random.default_rng(7)
    sketch, reference = SKETCHES[name](**SMALL[name]), REFERENCES[name](**SMALL[name])
    # A head that moves on, over a tail that never ends.
    head = rng.geometric(0.2, 1500) + np.arange(1500) // 300
    stream = np.where(rng.random(1500) < 0.7, head, rng.integers(10**6, 10**9, 1500))
    for part in np.split(stream, 10):
        sketch.update(part)
        for key in part.tolist():
            reference.update(key)
        assert_same(sketch, reference, [*range(40), *part[:40].tolist()])


@pytest.mark.parametrize("decline", [0.3, 0.5])
def test_coin_flip_drops_what_the_reference_drops(decline: float) -> None:
    parameters: dict[str, Any] = {
        "threshold": 0,
        "length": 8,
        "ones": 2,
        "decline": decline,
        "seed": 11,
    }
    sketch, reference = CoinFlip(**parameters), CoinFlipReference(**parameters)
    for key in range(2500):
        reference.update(key)
    sketch.update(range(2500))
    assert sketch.dropped == reference.dropped
    assert len(sketch) == len(reference.vectors)
    assert sketch.synopsis.keys[: len(sketch)].tolist() == [key for key, _ in reference.vectors]
