"""Plans on their way through bytes and files."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plan_cases import SMALL, parts, plans
from unskew.plan import Plan, PlanError

often = settings(max_examples=100, deadline=None)


def refused(data: bytes) -> bool:
    try:
        Plan.from_bytes(data)
    except PlanError:
        return True
    return False


@often
@given(plan=plans())
def test_round_trip_by_bytes(plan: Plan) -> None:
    again = Plan.from_bytes(plan.to_bytes(), scheme=plan.scheme)
    assert parts(again) == parts(plan)
    assert again == plan
    assert hash(again) == hash(plan)


@settings(max_examples=25, deadline=None)
@given(plan=plans(), as_text=st.booleans())
def test_round_trip_by_file(plan: Plan, as_text: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.plan"
        plan.save(str(path) if as_text else path)
        again = Plan.load(str(path) if as_text else path, scheme=plan.scheme)
        assert [file.name for file in Path(folder).iterdir()] == ["a.plan"]
    assert parts(again) == parts(plan)


def test_every_changed_byte_is_refused() -> None:
    data = SMALL.to_bytes()
    for at in range(len(data)):
        for flip in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            changed = bytes([data[at] ^ flip])
            assert refused(data[:at] + changed + data[at + 1 :]), (at, flip)


def test_every_lost_or_added_byte_is_refused() -> None:
    data = SMALL.to_bytes()
    for at in range(len(data)):
        assert refused(data[:at])
        assert refused(data[at + 1 :])
        assert refused(data[:at] + data[at + 1 :])
    assert all(refused(data + bytes([byte])) for byte in range(256))
    assert refused(data + data)


@often
@given(data=st.binary(max_size=300))
def test_any_other_bytes_are_refused(data: bytes) -> None:
    assert refused(data)
    assert refused(SMALL.to_bytes()[:14] + data)


def test_another_scheme_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    SMALL.save(path)
    assert Plan.load(path) == Plan.load(path, scheme="mixed") == SMALL
    with pytest.raises(PlanError, match=r"a\.plan: a plan of the scheme 'mixed', not of 'readj'$"):
        Plan.load(path, scheme="readj")
    with pytest.raises(PlanError, match=r"^a plan of the scheme 'mixed', not of ''$"):
        Plan.from_bytes(SMALL.to_bytes(), scheme="")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.plan"
    path.write_bytes(SMALL.to_bytes()[:-1])
    message = f"^{re.escape(str(path))}: corrupt plan: the checksum does not match$"
    with pytest.raises(PlanError, match=message):
        Plan.load(path)
    path.write_bytes(b"")
    with pytest.raises(PlanError, match=r"a\.plan: not a plan of this version of unskew$"):
        Plan.load(path)


def test_a_missing_file_stays_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Plan.load(tmp_path / "no.plan")
    with pytest.raises(FileNotFoundError):
        SMALL.save(tmp_path / "no" / "a.plan")


@pytest.mark.parametrize(("owner", "step"), [(os, "fsync"), (Path, "replace")])
def test_save_is_all_or_nothing(
    owner: Any, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.plan"
    old = Plan.empty(2)
    old.save(path)

    def fail(*_: object) -> None:
        # Up to here a reader still finds the old plan, whole.
        assert Plan.load(path) == old
        raise OSError("no space left")

    monkeypatch.setattr(owner, step, fail)
    with pytest.raises(OSError, match="no space left"):
        SMALL.save(path)
    monkeypatch.undo()
    assert Plan.load(path) == old
    assert [file.name for file in tmp_path.iterdir()] == ["a.plan"]
    SMALL.save(path)
    assert Plan.load(path) == SMALL
