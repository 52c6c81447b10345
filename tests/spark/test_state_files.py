"""Router state in files: a saved state is read back, and nothing else is mistaken for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unskew.plan import Plan
from unskew.routers import ROUTERS, make_router
from unskew.spark.routing.state_files import KEPT_STATES, RouterStateError, StateFiles
from unskew.state import Snapshot


def state(number: float) -> Snapshot:
    return {"loads": np.array([number, 0.5]), "turn": np.array([int(number)])}


def number(snapshot: Snapshot | None) -> float | None:
    return None if snapshot is None else float(snapshot["loads"][0])


def saved(root: Path, *batches: int, source: int = 0) -> StateFiles:
    """Return files with the states of a source, each the number 1000 * source + batch."""
    files = StateFiles(str(root))
    for batch in batches:
        files.save(source, batch, state(1000 * source + batch))
    return files


def names(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ROUTERS)
def test_router_goes_on_from_what_was_saved(tmp_path: Path, name: str) -> None:
    keys = np.random.default_rng(5).zipf(1.3, 4000).astype(np.uint64)
    router, again = (make_router(name, 5, source=2) for _ in range(2))
    router.route(keys[:2500])
    files = StateFiles(str(tmp_path))
    files.save(2, 0, router.snapshot())
    loaded = files.load(2, 1)
    assert loaded is not None
    again.restore(loaded)
    assert again == router
    assert again.route(keys[2500:]).tolist() == router.route(keys[2500:]).tolist()


def test_arrays_keep_their_types_and_shapes(tmp_path: Path) -> None:
    arrays: Snapshot = {
        "empty": np.empty(0, np.int32),
        "flags": np.array([True, False]),
        "keys": np.array([0, 2**64 - 1], np.uint64),
        "outer.inner": np.arange(6, dtype=np.float32).reshape(2, 3),
        "parameters": np.array("Router(n_workers=2, ключ='é')"),
    }
    files = StateFiles(str(tmp_path))
    files.save(0, 0, arrays)
    loaded = files.load(0, 1)
    assert loaded is not None
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (loaded[name].dtype, loaded[name].shape) == (array.dtype, array.shape)
        assert np.array_equal(loaded[name], array)


def test_nothing_saved_is_nothing_loaded(tmp_path: Path) -> None:
    assert StateFiles(str(tmp_path)).load(0, 7) is None
    assert StateFiles(str(tmp_path / "no" / "such" / "folder")).load(0, 7) is None


def test_load_gives_the_last_state_before_the_batch(tmp_path: Path) -> None:
    """Numbers are compared, not names: 9 comes before 10."""
    files = saved(tmp_path, 2, 9, 10, 11)
    found = {batch: number(files.load(0, batch)) for batch in (0, 2, 3, 9, 10, 11, 12, 99)}
    assert found == {0: None, 2: None, 3: 2, 9: 2, 10: 9, 11: 10, 12: 11, 99: 11}


def test_batch_tried_again_starts_as_the_first_time(tmp_path: Path) -> None:
    """A state that a failed batch wrote is not read by its next attempt, and is replaced."""
    files = saved(tmp_path, 4, 5)
    files.save(0, 5, state(5.25))
    assert number(files.load(0, 5)) == 4
    assert number(files.load(0, 6)) == 5.25
    assert names(tmp_path) == ["0/4", "0/5"]


def test_last_eight_are_kept_of_each_source(tmp_path: Path) -> None:
    saved(tmp_path, *range(95, 107))
    saved(tmp_path, 3, source=1)
    kept = sorted((tmp_path / "0").iterdir(), key=lambda path: int(path.name))
    assert KEPT_STATES == 8
    assert [int(path.name) for path in kept] == list(range(99, 107))
    assert [path.name for path in (tmp_path / "1").iterdir()] == ["3"]


def test_idle_source_keeps_its_state(tmp_path: Path) -> None:
    files = saved(tmp_path, 0, source=3)
    saved(tmp_path, *range(1, 30))
    assert number(files.load(3, 30)) == 3000


def test_source_without_state_goes_on_from_another(tmp_path: Path) -> None:
    """New sources continue from old ones by number; only states before the batch count."""
    files = StateFiles(str(tmp_path))
    for source in (0, 2, 10):
        saved(tmp_path, 1, 2, source=source)
    saved(tmp_path, 2, source=3)
    assert [number(files.load(new, 2)) for new in (4, 5, 6, 7)] == [2001, 10001, 1, 2001]
    assert [number(files.load(new, 3)) for new in (4, 5, 6, 7)] == [2, 2002, 3002, 10002]
    assert [number(files.load(old, 2)) for old in (0, 2, 10)] == [1, 2001, 10001]
    # It has only a state of batch 2, and so none before it.
    assert number(files.load(3, 2)) == 1
    assert number(files.load(0, 1)) is None


def test_unfinished_and_foreign_files_are_left_alone(tmp_path: Path) -> None:
    files = saved(tmp_path, 0)
    (tmp_path / "0" / ".1.part").write_bytes(b"half a st")
    (tmp_path / "0" / "_SUCCESS").touch()
    (tmp_path / "notes").mkdir()
    assert number(files.load(0, 5)) == number(files.load(1, 5)) == 0
    saved(tmp_path, 1)
    assert names(tmp_path) == ["0/.1.part", "0/0", "0/1", "0/_SUCCESS"]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: data[:5],
        lambda data: data[: data.index(b"\n")],
        lambda data: data[: data.index(b"\n") + 1],
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: flipped(data, 0),
        lambda data: flipped(data, 40),
        lambda data: flipped(data, data.index(b"\n")),
        lambda data: flipped(data, len(data) // 2),
        lambda data: flipped(data, len(data) - 1),
        lambda data: data[data.index(b"PK") :],
        lambda data: Plan.empty(2).to_bytes(),
    ],
)
def test_corrupt_file_is_named(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    files = saved(tmp_path, 6, 7)
    path = tmp_path / "0" / "7"
    path.write_bytes(spoil(path.read_bytes()))
    for source in (0, 1):
        with pytest.raises(RouterStateError, match=re.escape(str(path))) as error:
            files.load(source, 8)
        # The way out.
        assert f"without the folder {tmp_path} " in str(error.value)
    assert number(files.load(0, 7)) == 6


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
@pytest.mark.parametrize("folder", ["plain", "with space", "ключ", "a%20b", "12:00"])
def test_paths_and_uris_name_the_same_files(tmp_path: Path, prefix: str, folder: str) -> None:
    root = tmp_path / folder
    files = StateFiles(f"{prefix}{root}/unskew/router")
    files.save(0, 3, state(3))
    assert names(tmp_path) == [f"{folder}/unskew/router/0/3"]
    assert number(StateFiles(f"{root}/unskew/router").load(0, 4)) == 3
