"""What every scheme and sketch is: parameters, and arrays of state that can be saved.

A ``Stateful`` class is a dataclass. Its init fields are parameters; its other fields are state:
NumPy arrays, named tuples of state, or nested ``Stateful`` objects. So repr, snapshot, restore
and equality are written once, here.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Snapshot = dict[str, NDArray[Any]]

WHOSE = "parameters"
"""The entry of a snapshot that says whose it is."""


class SnapshotError(ValueError):
    """A snapshot does not belong to the object that should be restored from it."""


def _parts(value: Any) -> dict[str, Any]:
    """Return the named parts of a piece of state that is not an array."""
    if isinstance(value, Stateful):
        return {f.name: getattr(value, f.name) for f in fields(value) if not f.init}
    return dict(value._asdict())


def _save(value: Any, name: str, into: Snapshot) -> None:
    if isinstance(value, np.ndarray):
        into[name] = value.copy()
    else:
        for part, inner in _parts(value).items():
            _save(inner, f"{name}.{part}" if name else part, into)


def _load(value: Any, name: str, snapshot: Snapshot) -> Any:
    if isinstance(value, np.ndarray):
        return np.array(snapshot[name])
    parts = {
        part: _load(inner, f"{name}.{part}" if name else part, snapshot)
        for part, inner in _parts(value).items()
    }
    if not isinstance(value, Stateful):
        return type(value)(**parts)
    for part, inner in parts.items():
        setattr(value, part, inner)
    return value


@dataclass(repr=False, eq=False)
class Stateful:
    """Parameters in init fields, state in the others."""

    def parameters(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init}

    def snapshot(self) -> Snapshot:
        """Return a copy of the state, as arrays by name; nested state as ``outer.inner``."""
        arrays: Snapshot = {}
        _save(self, "", arrays)
        arrays[WHOSE] = np.array(repr(self))
        return arrays

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of an object with the same parameters; all or nothing."""
        own = self.snapshot()
        if WHOSE in snapshot and str(snapshot[WHOSE]) != repr(self):
            raise SnapshotError(f"snapshot of another kind: of {snapshot[WHOSE]}, not of {self!r}")
        if own.keys() != snapshot.keys():
            odd = sorted(own.keys() ^ snapshot.keys())
            raise SnapshotError(f"snapshot of another kind: {', '.join(odd)} do not match")
        for name, array in snapshot.items():
            if name != WHOSE and (array.dtype, array.ndim) != (own[name].dtype, own[name].ndim):
                raise SnapshotError(
                    f"{name} must be {own[name].ndim}-d {own[name].dtype}, "
                    f"got {array.ndim}-d {array.dtype}"
                )
        _load(self, "", snapshot)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self.parameters().items())
        return f"{type(self).__name__}({inner})"

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Stateful):
            return NotImplemented
        mine, theirs = self.snapshot(), other.snapshot()
        return self.parameters() == other.parameters() and all(
            np.array_equal(mine[name], theirs[name]) for name in mine
        )

    __hash__ = None  # type: ignore[assignment]


def whole(name: str, value: float, least: int) -> None:
    """Refuse a parameter that is no whole number or below its least value, by name."""
    if not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number, got {value}")
    if value >= 2**63:
        raise ValueError(f"{name} must be below 2^63, got {value}")
    at_least(name, value, least)


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a parameter below its least value, by name."""
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def within(name: str, value: float, low: float, high: float) -> None:
    """Refuse a parameter outside ``[low, high]``, by name."""
    if not low <= value <= high:
        raise ValueError(f"{name} must be between {low} and {high}, got {value}")
