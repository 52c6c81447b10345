import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.hashing import hash_keys
from unskew.workloads import EdgeFile, Stream, WordFile, files, open_stream


def keys(stream: Stream, size: int = 1_000) -> NDArray[np.uint64]:
    return np.concatenate([np.empty(0, np.uint64), *(chunk.keys for chunk in stream.chunks(size))])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 7)


def test_words_as_they_stand(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(" The the,\n\tTHE  \r\n größe\u00a0x the\f")
    wanted = ["The", "the,", "THE", "größe\u00a0x", "the"]
    stream = open_stream(str(tmp_path / "x.txt"))
    np.testing.assert_array_equal(keys(stream), hash_keys(wanted))
    assert stream.n_records is None
    assert open_stream(stream.describe()["spec"]) == stream


@pytest.mark.usefixtures("small_blocks")
@settings(deadline=None, max_examples=60)
@given(text=st.text("aé \n\t\r\x0b\x0c日", max_size=60), size=st.integers(1, 9))
def test_words_do_not_depend_on_blocks_or_sizes(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int
) -> None:
    path = tmp_path_factory.mktemp("words") / "x.txt"
    path.write_bytes(text.encode())
    words = [word.decode() for word in text.encode().split()]
    np.testing.assert_array_equal(keys(WordFile(path), size), hash_keys(words))


@pytest.mark.jit
def test_text_longer_than_a_block(tmp_path: Path) -> None:
    words = [f"w{i * i % 1_009}" for i in range(300_000)]
    (tmp_path / "x.text").write_text(" ".join(words))
    (tmp_path / "x.txt.gz").write_bytes(gzip.compress(" ".join(words).encode()))
    for name in ("x.text", "x.txt.gz"):
        np.testing.assert_array_equal(keys(open_stream(str(tmp_path / name))), hash_keys(words))


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"gr\xf6sse")
    with pytest.raises(ValueError, match=r"cannot read .*x\.txt as words: Invalid UTF8"):
        keys(WordFile(tmp_path / "x.txt"))


SNAP = "# Directed graph\n# FromNodeId\tToNodeId\n0\t5\n0\t7\n\n  # more\n12 5\r\n7   0 \n"


def test_edges(tmp_path: Path) -> None:
    (tmp_path / "x.edges").write_text(SNAP)
    (chunk,) = open_stream(str(tmp_path / "x.edges")).chunks()
    np.testing.assert_array_equal(chunk.keys, hash_keys([5, 7, 5, 0]))
    assert chunk.source_keys is not None
    np.testing.assert_array_equal(chunk.source_keys, hash_keys([0, 0, 12, 7]))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_edges_do_not_depend_on_blocks_or_sizes(tmp_path: Path, size: int) -> None:
    (tmp_path / "x.txt").write_text(SNAP)
    stream = open_stream(f"{tmp_path / 'x.txt'}:format=edges")
    np.testing.assert_array_equal(keys(stream, size), hash_keys([5, 7, 5, 0]))
    lengths = [len(c.source_keys) for c in stream.chunks(size) if c.source_keys is not None]
    assert sum(lengths) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2\n1 2 3\n", "a line must hold two vertices, got 1 2 3"),
        ("1\n", "a line must hold two vertices, got 1"),
        ("1 x\n", "Failed to parse string: 'x'"),
        ("1 1.5\n", "Failed to parse string: '1.5'"),
    ],
)
def test_bad_edges(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.edges").write_text(text)
    with pytest.raises(ValueError, match=r"cannot read .*x\.edges as edges: ") as error:
        keys(EdgeFile(tmp_path / "x.edges"))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["x.txt", "x.edges"])
@pytest.mark.parametrize("content", ["", " \n\n", "#"])
def test_empty(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content if name == "x.edges" else content.strip("#"))
    assert list(open_stream(str(tmp_path / name)).chunks()) == []
