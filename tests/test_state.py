from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.state import SnapshotError, Stateful, at_least, within


class Pair(NamedTuple):
    left: NDArray[np.int64]
    right: NDArray[np.float64]


@dataclass(repr=False, eq=False)
class Inner(Stateful):
    size: int = 2
    data: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.data = np.zeros(self.size, np.int64)


@dataclass(repr=False, eq=False)
class Outer(Stateful):
    name: str
    rate: float = 0.5
    inner: Inner = field(init=False)
    pair: Pair = field(init=False)
    flags: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.inner = Inner(3)
        self.pair = Pair(np.zeros(2, np.int64), np.zeros((2, 2)))
        self.flags = np.zeros(1, np.bool_)


@dataclass(repr=False, eq=False)
class Like(Outer):
    """The same fields, another class."""


def used() -> Outer:
    outer = Outer("a")
    outer.inner.data[:] = [1, 2, 3]
    outer.pair.left[:] = 7
    outer.pair.right[1, 0] = 0.25
    outer.flags[0] = True
    return outer


def test_parameters_are_the_init_fields() -> None:
    assert Outer("a", rate=0.1).parameters() == {"name": "a", "rate": 0.1}


def test_repr() -> None:
    assert repr(used()) == "Outer(name='a', rate=0.5)"
    assert repr(Inner()) == "Inner(size=2)"


def test_snapshot_names_nested_state() -> None:
    snapshot = used().snapshot()
    assert list(snapshot) == ["inner.data", "pair.left", "pair.right", "flags", "parameters"]
    assert snapshot["inner.data"].tolist() == [1, 2, 3]
    assert snapshot["pair.right"].tolist() == [[0.0, 0.0], [0.25, 0.0]]


def test_snapshot_and_restore_copy() -> None:
    outer, other = used(), Outer("a")
    snapshot = outer.snapshot()
    outer.pair.left[:] = 0
    outer.inner.data[:] = 0
    assert snapshot["pair.left"].tolist() == [7, 7]
    other.restore(snapshot)
    assert other == used()
    other.inner.data[:] = 9
    other.flags[:] = False
    assert snapshot["inner.data"].tolist() == [1, 2, 3]
    assert snapshot["flags"].tolist() == [True]


def test_restore_keeps_types_and_takes_other_lengths() -> None:
    outer = Outer("a")
    snapshot = outer.snapshot()
    snapshot["inner.data"] = np.arange(9)
    outer.restore(snapshot)
    assert isinstance(outer.inner, Inner)
    assert isinstance(outer.pair, Pair)
    assert outer.inner.data.tolist() == list(range(9))


def test_equal_by_class_parameters_and_state() -> None:
    assert used() == used()
    assert used() != Outer("a")
    assert Outer("a") != Outer("b")
    assert Outer("a") != Like("a")
    assert Outer("a") != "a"
    changed = used()
    changed.inner.data[0] = 8
    assert changed != used()


def test_unhashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(used())


class TestSnapshotError:
    @staticmethod
    def refused(changes: dict[str, Any], without: str | None = None) -> str:
        outer = used()
        snapshot = {**Outer("a").snapshot(), **changes}
        if without:
            del snapshot[without]
        with pytest.raises(SnapshotError) as refusal:
            outer.restore(snapshot)
        # All or nothing.
        assert outer == used()
        return str(refusal.value)

    def test_is_a_value_error(self) -> None:
        assert issubclass(SnapshotError, ValueError)

    def test_missing(self) -> None:
        message = self.refused({}, without="pair.left")
        assert message == "snapshot of another kind: pair.left do not match"

    def test_unknown(self) -> None:
        message = self.refused({"b": np.zeros(1), "a": np.zeros(1)})
        assert message == "snapshot of another kind: a, b do not match"

    def test_type(self) -> None:
        message = self.refused({"flags": np.zeros(1)})
        assert message == "flags must be 1-d bool, got 1-d float64"

    def test_dimensions(self) -> None:
        message = self.refused({"pair.right": np.zeros(4)})
        assert message == "pair.right must be 2-d float64, got 1-d float64"

    def test_of_another_sketch(self) -> None:
        from unskew.sketches import CountMin, SpaceSaving

        sketch = SpaceSaving(3)
        with pytest.raises(SnapshotError, match="snapshot of another kind: of CountMin"):
            sketch.restore(CountMin().snapshot())
        assert sketch == SpaceSaving(3)

    def test_of_other_parameters(self) -> None:
        from unskew.sketches import SpaceSaving

        small, large = SpaceSaving(3), SpaceSaving(5)
        small.update([1, 2, 3, 4])
        with pytest.raises(SnapshotError):
            large.restore(small.snapshot())


def test_at_least() -> None:
    at_least("n_workers", 1, 1)
    with pytest.raises(ValueError, match=r"^n_workers must be at least 1, got 0$"):
        at_least("n_workers", 0, 1)
    with pytest.raises(ValueError, match=r"^share must be at least 0, got nan$"):
        at_least("share", float("nan"), 0)


def test_within() -> None:
    within("share", 0, 0, 1)
    within("share", 1, 0, 1)
    for value in (-0.5, 1.5, float("nan")):
        with pytest.raises(ValueError, match=rf"^share must be between 0 and 1, got {value}$"):
            within("share", value, 0, 1)
