"""The laws of `unskew.sketches.base`, over every sketch of the table."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unskew.sketches
from sketches.cases import ASKED, OTHER, PARAMETERS, SMALL, Truth, streams, truth_of
from unskew.sketches import SKETCHES, AdaptiveCountMin, CoinFlip, Sketch
from unskew.state import Snapshot

every_sketch = pytest.mark.parametrize("name", SKETCHES)
law = settings(deadline=None, max_examples=40)


def fed(name: str, parameters: dict[str, Any], stream: list[int]) -> Sketch:
    sketch = SKETCHES[name](**parameters)
    sketch.update(np.array(stream, np.uint64))
    return sketch


def told(name: str, parameters: dict[str, Any], stream: list[int]) -> Truth:
    truth = truth_of(name, parameters)
    for key in stream:
        truth.update(key)
    return truth


def bounds(sketch: Sketch) -> list[list[float]]:
    return [bound.tolist() for bound in sketch.bounds(np.array(ASKED, np.uint64))]


def assert_brackets(sketch: Sketch, truth: Truth) -> None:
    lower, upper = bounds(sketch)
    true = [truth.of(key) for key in ASKED]
    # Decayed weights are sums of fractions, in another order here.
    assert all(low <= count + 1e-9 for low, count in zip(lower, true, strict=True))
    assert all(count <= high + 1e-9 for count, high in zip(true, upper, strict=True))


def assert_same_state(a: Sketch, b: Sketch) -> None:
    one, other = a.snapshot(), b.snapshot()
    assert one.keys() == other.keys()
    for name, array in one.items():
        assert array.dtype == other[name].dtype
        np.testing.assert_array_equal(array, other[name], err_msg=name)
    assert a == b


@every_sketch
@law
@given(data=st.data())
def test_bracketing(name: str, data: st.DataObject) -> None:
    parameters = data.draw(PARAMETERS[name])
    sketch, truth = fed(name, parameters, []), truth_of(name, parameters)
    for stream in data.draw(st.lists(streams, min_size=1, max_size=3)):
        sketch.update(np.array(stream, np.uint64))
        for key in stream:
            truth.update(key)
        assert_brackets(sketch, truth)


@every_sketch
@law
@given(data=st.data())
def test_weight_kept(name: str, data: st.DataObject) -> None:
    parameters, stream = data.draw(PARAMETERS[name]), data.draw(streams)
    total = fed(name, parameters, stream).total
    assert isinstance(total, float)
    assert total == pytest.approx(told(name, parameters, stream).total(), rel=1e-12, abs=1e-12)


@every_sketch
@law
@given(data=st.data())
def test_mergeable(name: str, data: st.DataObject) -> None:
    parameters = data.draw(PARAMETERS[name])
    mine, theirs, later = (data.draw(streams) for _ in range(3))
    sketch, other = fed(name, parameters, mine), fed(name, parameters, theirs)
    truth, before = told(name, parameters, mine), bounds(other)
    sketch.merge(other)
    truth.merge(told(name, parameters, theirs))
    assert bounds(other) == before
    assert_brackets(sketch, truth)
    assert sketch.total == pytest.approx(truth.total(), rel=1e-12, abs=1e-12)
    sketch.update(np.array(later, np.uint64))
    for key in later:
        truth.update(key)
    assert_brackets(sketch, truth)
    assert sketch.total == pytest.approx(truth.total(), rel=1e-12, abs=1e-12)
    assert bounds(other) == before


@every_sketch
@law
@given(data=st.data())
def test_mergeable_with_an_empty_one(name: str, data: st.DataObject) -> None:
    parameters, stream = data.draw(PARAMETERS[name]), data.draw(streams)
    sketch, empty = fed(name, parameters, stream), fed(name, parameters, [])
    before, total = bounds(sketch), sketch.total
    sketch.merge(empty)
    assert bounds(sketch) == before
    assert sketch.total == total
    empty.merge(sketch)
    assert bounds(empty) == before
    assert empty.total == total


@every_sketch
@law
@given(data=st.data())
def test_mergeable_with_itself(name: str, data: st.DataObject) -> None:
    parameters, stream = data.draw(PARAMETERS[name]), data.draw(streams)
    sketch, truth = fed(name, parameters, stream), told(name, parameters, stream)
    sketch.merge(sketch)
    truth.merge(told(name, parameters, stream))
    assert_brackets(sketch, truth)
    assert sketch.total == pytest.approx(truth.total(), rel=1e-12, abs=1e-12)


@every_sketch
def test_mergeable_only_with_equal_parameters(name: str) -> None:
    sketch = fed(name, SMALL[name], [1, 2, 2])
    before = fed(name, SMALL[name], [1, 2, 2])
    others = [SKETCHES[name](**{**SMALL[name], p: OTHER[p]}) for p in SMALL[name]]
    others += [SKETCHES[kind](**SMALL[kind]) for kind in SKETCHES if kind != name]
    for other in others:
        with pytest.raises(ValueError, match="only a sketch with equal parameters") as refusal:
            sketch.merge(other)
        assert repr(other) in str(refusal.value)
        assert_same_state(sketch, before)
    with pytest.raises(ValueError, match="equal parameters can be merged, got 3"):
        sketch.merge(3)


def n_bytes(sketch: Sketch) -> int:
    return sum(array.nbytes for array in sketch.snapshot().values())


@every_sketch
def test_bounded_memory(name: str) -> None:
    sketch = fed(name, SMALL[name], [])
    at_first = n_bytes(sketch)
    sketch.update(range(2500))
    if name == "exact":
        assert n_bytes(sketch) > at_first
    else:
        assert n_bytes(sketch) == at_first
        sketch.merge(fed(name, SMALL[name], list(range(3000, 3300))))
        assert n_bytes(sketch) == at_first


def restored(sketch: Sketch) -> Sketch:
    fresh = type(sketch)(**sketch.parameters())
    fresh.restore(sketch.snapshot())
    return fresh


def pickled(sketch: Sketch) -> Sketch:
    copy = pickle.loads(pickle.dumps(sketch))
    assert isinstance(copy, Sketch)
    return copy


def through_a_file(sketch: Sketch) -> Sketch:
    file = io.BytesIO()
    arrays: Any = sketch.snapshot()
    np.savez(file, **arrays)
    file.seek(0)
    fresh = type(sketch)(**sketch.parameters())
    with np.load(file) as saved:
        fresh.restore(saved)
    return fresh


@every_sketch
@pytest.mark.parametrize("way", [restored, pickled, through_a_file])
@settings(deadline=None, max_examples=25)
@given(data=st.data())
def test_restorable(name: str, way: Callable[[Sketch], Sketch], data: st.DataObject) -> None:
    parameters, stream = data.draw(PARAMETERS[name]), data.draw(streams)
    at = data.draw(st.integers(0, len(stream)))
    whole, first = fed(name, parameters, stream), fed(name, parameters, stream[:at])
    second = way(first)
    assert_same_state(second, first)
    kept = first.snapshot()
    second.update(np.array(stream[at:], np.uint64))
    assert_same_state(second, whole)
    # The copy shares nothing with the first.
    for array, old in zip(first.snapshot().values(), kept.values(), strict=True):
        np.testing.assert_array_equal(array, old)


@every_sketch
def test_restorable_over_a_used_object(name: str) -> None:
    sketch, used = fed(name, SMALL[name], [1, 2, 2]), fed(name, SMALL[name], list(range(1500)))
    used.restore(sketch.snapshot())
    assert_same_state(used, sketch)
    sketch.update(range(300))
    used.update(range(300))
    assert_same_state(used, sketch)


@every_sketch
def test_a_snapshot_is_a_copy(name: str) -> None:
    sketch = fed(name, SMALL[name], [1, 2, 2])
    snapshot: Snapshot = sketch.snapshot()
    kept = {part: array.copy() for part, array in snapshot.items()}
    sketch.update(range(100))
    for part, array in snapshot.items():
        np.testing.assert_array_equal(array, kept[part])
    fresh = fed(name, SMALL[name], [])
    fresh.restore(snapshot)
    fresh.update(range(100))
    for part, array in snapshot.items():
        np.testing.assert_array_equal(array, kept[part])
    assert_same_state(fresh, sketch)


@every_sketch
@law
@given(data=st.data())
def test_replayable(name: str, data: st.DataObject) -> None:
    parameters, stream = data.draw(PARAMETERS[name]), data.draw(streams)
    assert_same_state(fed(name, parameters, stream), fed(name, parameters, stream))


@every_sketch
@law
@given(data=st.data())
def test_asking_changes_nothing(name: str, data: st.DataObject) -> None:
    parameters, stream = data.draw(PARAMETERS[name]), data.draw(streams)
    sketch = fed(name, parameters, stream)
    bounds(sketch)
    sketch.estimate(np.array(ASKED, np.uint64))
    assert_same_state(sketch, fed(name, parameters, stream))


@every_sketch
@law
@given(data=st.data())
def test_batch_free(name: str, data: st.DataObject) -> None:
    parameters, stream = data.draw(PARAMETERS[name]), data.draw(streams)
    one_by_one = SKETCHES[name](**parameters)
    for key in stream:
        one_by_one.update(np.array([key], np.uint64))
        one_by_one.update([])
    assert_same_state(one_by_one, fed(name, parameters, stream))


@every_sketch
def test_total(name: str) -> None:
    sketch = fed(name, SMALL[name], [])
    sketch.update([])
    assert sketch.total == 0.0
    assert_same_state(sketch, fed(name, SMALL[name], []))
    lower, upper = sketch.bounds([1, 2])
    assert lower.tolist() == upper.tolist() == [0.0, 0.0]
    for array in (*sketch.bounds([]), sketch.estimate([])):
        assert array.shape == (0,)
        assert array.dtype == np.float64


@every_sketch
@pytest.mark.parametrize(
    "keys",
    [np.array([5, 7, 5], kind) for kind in ("u1", "i2", "u4", "i8", "u8", ">i8")]
    + [[5, 7, 5], (5, 7, 5), np.array([5, 0, 7, 0, 5], np.uint64)[::2]],
    ids=str,
)
def test_any_integers_are_keys(name: str, keys: Any) -> None:
    sketch = SKETCHES[name](**SMALL[name])
    sketch.update(keys)
    assert_same_state(sketch, fed(name, SMALL[name], [5, 7, 5]))


@every_sketch
def test_negative_keys_are_those_of_the_same_bits(name: str) -> None:
    sketch = SKETCHES[name](**SMALL[name])
    sketch.update([-1, -(2**63)])
    assert_same_state(sketch, fed(name, SMALL[name], [2**64 - 1, 2**63]))


@every_sketch
@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        (["a", "b"], "1-d <U1"),
        ([1.0, 2.0], "1-d float64"),
        (np.zeros((2, 2), np.uint64), "2-d uint64"),
        (5, "0-d int64"),
        ("a", "0-d <U1"),
        ([True], "1-d bool"),
        ([None], "1-d object"),
    ],
    ids=str,
)
def test_refused_input(name: str, keys: Any, kind: str) -> None:
    sketch = fed(name, SMALL[name], [1, 2, 2])
    for act in (sketch.update, sketch.bounds, sketch.estimate):
        with pytest.raises(TypeError) as refusal:
            act(keys)
        assert str(refusal.value) == (
            f"keys must be a 1-d array of integers, got {kind}; "
            "unskew.hash_keys makes keys of other values"
        )
    assert_same_state(sketch, fed(name, SMALL[name], [1, 2, 2]))


@every_sketch
def test_repr_makes_it_again(name: str) -> None:
    sketch = fed(name, SMALL[name], [1, 2, 2])
    again = eval(repr(sketch), vars(unskew.sketches))
    assert_same_state(again, fed(name, SMALL[name], []))
    assert again.parameters() == SMALL[name]


@every_sketch
def test_unlike_others_in_state_and_parameters(name: str) -> None:
    sketch = fed(name, SMALL[name], [1] * 20)
    assert sketch != fed(name, SMALL[name], [])
    assert sketch != 3
    assert all(sketch != fed(kind, SMALL[kind], [1] * 20) for kind in SKETCHES if kind != name)
    with pytest.raises(TypeError, match="unhashable"):
        hash(sketch)


def test_seeds_differ() -> None:
    for name in ("coin-flip", "count-min", "adaptive-count-min"):
        one, other = (fed(name, {**SMALL[name], "seed": seed}, list(range(60))) for seed in (1, 2))
        assert one.snapshot().keys() == other.snapshot().keys()
        assert any(
            not np.array_equal(a, b)
            for a, b in zip(one.snapshot().values(), other.snapshot().values(), strict=True)
        )


def test_merging_resumes_epochs_and_coins() -> None:
    ahead, behind = (AdaptiveCountMin(width=64, epoch=4, window=2) for _ in range(2))
    ahead.update([1] * 9)
    behind.update([2] * 3)
    behind.merge(ahead)
    assert behind.total == 5.0
    behind.update([3] * 3)
    assert behind.total == 8.0
    behind.update([3])
    assert behind.total == 5.0
    coins = CoinFlip(threshold=0, seed=1)
    coins.update([1] * 5)
    coins.merge(coins)
    assert coins.total == 10.0
