"""Files of moving states that are lost, broken or foreign: the errors, and the way back."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.state import GroupStateTimeout

from spark.moves_model import WORKERS, World, histories
from unskew.spark.runtime.places import Place
from unskew.spark.state.log_identity import LostStateError
from unskew.spark.state.move_log import MoveLog

DAMAGE = ("lost", "empty", "cut", "changed", "swapped", "all of them")


def damage(root: Path, how: str, which: int) -> None:
    """Damage a file of the move log."""
    files = sorted(path for path in (root / "states").rglob("*") if path.is_file())
    files = [path for path in files if "plans" not in path.parts]
    path = files[which % len(files)]
    data = path.read_bytes()
    if how == "lost":
        path.unlink()
    elif how == "all of them":
        shutil.rmtree(root / "states" if path.parent.name == "states" else path.parent)
    elif how == "swapped":
        other = files[(which + 1) % len(files)]
        path.write_bytes(other.read_bytes())
        other.write_bytes(data)
    else:
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else b"x"
        path.write_bytes({"empty": b"", "cut": data[:-3], "changed": flipped}[how])


@contextmanager
def suppress_told() -> Iterator[None]:
    """Accept errors that name a way out."""
    try:
        yield
    except LostStateError as error:
        if not re.search(r"restore|activate|leave it out|give it again", str(error)):
            raise


@pytest.mark.parametrize("elastic", [False, True])
@given(
    history=histories(),
    timeouts=st.booleans(),
    how=st.sampled_from(DAMAGE),
    which=st.integers(0, 1000),
)
@settings(max_examples=75, deadline=None)
def test_whatever_happens_to_files_is_told_or_harmless(
    tmp_path_factory: pytest.TempPathFactory,
    history: Any,
    timeouts: bool,
    how: str,
    which: int,
    elastic: bool,
) -> None:
    root = tmp_path_factory.mktemp("moves")
    kind = GroupStateTimeout.ProcessingTimeTimeout if timeouts else GroupStateTimeout.NoTimeout
    world, bad = World(root, kind, elastic), which % len(history)
    for batch, step in enumerate(history):
        if step["plan"] is not None:
            world.want(step["plan"])
        if step["active"] is not None and elastic:
            world.log.activate(step["active"])
        wanted = world.run_plain(batch, step["rows"])
        if batch == bad and batch:
            shutil.copytree(root, root.with_name(f"{root.name}-kept"))
            damage(root, how, which)
            before = deepcopy(world.stores)
            world.__post_init__()  # a new driver, which has nothing in memory
            with suppress_told():
                world.log.check()
                assert sorted(world.run(batch, step["rows"])) == sorted(wanted)
            # With the file restored, the query continues.
            shutil.rmtree(root)
            shutil.move(root.with_name(f"{root.name}-kept"), root)
            world.stores = before
            world.__post_init__()
        assert sorted(world.run(batch, step["rows"])) == sorted(wanted)
        (root / "commits").mkdir(exist_ok=True)
        (root / "commits" / str(batch)).touch()
    shutil.rmtree(root)


@pytest.mark.parametrize("began", [False, True])
def test_active_is_neither_added_nor_left_out(tmp_path: Path, began: bool) -> None:
    world = World(tmp_path, GroupStateTimeout.NoTimeout, began)
    world.run(0, {0: ["a"]})
    other = World(tmp_path, GroupStateTimeout.NoTimeout, not began)
    with pytest.raises(LostStateError, match="give it again" if began else "leave it out"):
        other.log.check()
    with pytest.raises(LostStateError, match="active="):
        other.run(1, {0: ["a"]})


def test_other_workers_are_refused(tmp_path: Path) -> None:
    World(tmp_path, GroupStateTimeout.NoTimeout, False).run(0, {0: ["a"]})
    log = MoveLog(Place(str(tmp_path / "states"), str(tmp_path), "owner"), WORKERS + 1)
    with pytest.raises(LostStateError, match="3 workers, and now there are 4"):
        log.check()


def test_a_query_that_ran_without_a_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits/0").touch()
    world = World(tmp_path, GroupStateTimeout.NoTimeout, False)
    with pytest.raises(LostStateError, match=r"has run before, and there is no record"):
        world.run(1, {0: ["a"]})
