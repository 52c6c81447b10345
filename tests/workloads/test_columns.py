import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from unskew.hashing import NULL_HASH, hash_keys
from unskew.workloads import CsvFile, ParquetFile, Stream, open_stream

WORDS = ["b", "a", None, "c", "a", "é", "", "a", None, "z"]
NUMBERS = [5, None, 7, 5, 5, -1, 2**62, 0, 5, 1]


def keys(stream: Stream, size: int = 3) -> NDArray[np.uint64]:
    parts = [chunk.keys for chunk in stream.chunks(size)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def sources(stream: Stream, size: int = 3) -> NDArray[np.uint64]:
    return np.concatenate([c.source_keys for c in stream.chunks(size) if c.source_keys is not None])


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"word": WORDS, "number": NUMBERS}), path, row_group_size=4)
    return path


def test_parquet_column(parquet: Path) -> None:
    stream = ParquetFile(parquet, key="number", source="word")
    np.testing.assert_array_equal(keys(stream), hash_keys(pa.array(NUMBERS)))
    np.testing.assert_array_equal(sources(stream), hash_keys(pa.array(WORDS)))
    assert (keys(stream) == NULL_HASH).tolist() == [n is None for n in NUMBERS]
    assert stream.n_records == 10
    assert stream.describe() == {
        "kind": "parquet",
        "spec": f"{parquet}:format=parquet,key=number,source=word",
        "path": str(parquet),
        "key": "number",
        "source": "word",
    }
    assert open_stream(stream.describe()["spec"]) == stream


def test_key_and_source_may_be_one_column(parquet: Path) -> None:
    stream = ParquetFile(parquet, key="word", source="word")
    np.testing.assert_array_equal(keys(stream), sources(stream))


@settings(deadline=None, max_examples=20)
@given(size=st.integers(1, 12), rows=st.integers(0, 30), group=st.integers(1, 7))
def test_size_free(
    tmp_path_factory: pytest.TempPathFactory, size: int, rows: int, group: int
) -> None:
    path = tmp_path_factory.mktemp("size") / "x.parquet"
    pq.write_table(pa.table({"key": pa.array(range(rows), pa.int64())}), path, row_group_size=group)
    stream = ParquetFile(path)
    np.testing.assert_array_equal(keys(stream, size), hash_keys(pa.array(range(rows), pa.int64())))
    lengths = [len(chunk.keys) for chunk in stream.chunks(size)]
    assert lengths[:-1] == [size] * (len(lengths) - 1)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b", "a"]).dictionary_encode(),
        pa.array([1.5, -0.0, None]),
        pa.array([True, False, None]),
        pa.array([1, 2, 3], pa.timestamp("ms")),
        pa.array([b"x", b"", None]),
    ],
    ids=["dictionary", "double", "boolean", "timestamp", "binary"],
)
def test_parquet_types(tmp_path: Path, column: Any) -> None:
    pq.write_table(pa.table({"key": column}), tmp_path / "x.parquet")
    np.testing.assert_array_equal(keys(ParquetFile(tmp_path / "x.parquet")), hash_keys(column))


def test_default_key_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "key": [2]}), tmp_path / "x.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "y.parquet")
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "z.parquet")
    assert ParquetFile(tmp_path / "x.parquet").key == "key"
    assert ParquetFile(tmp_path / "y.parquet").key == "a"
    with pytest.raises(ValueError, match=r"has the keys: a, b\? Name it, as in .*:key=a"):
        ParquetFile(tmp_path / "z.parquet")


@pytest.mark.parametrize("options", ["key=nope", "key=word,source=nope"])
def test_missing_column(parquet: Path, options: str) -> None:
    with pytest.raises(ValueError, match="has no column 'nope': choose from word, number"):
        open_stream(f"{parquet}:{options}")


def test_column_of_a_type_without_hash(tmp_path: Path) -> None:
    pq.write_table(pa.table({"tags": [["a"], ["b"]]}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"column 'tags' of .*: cannot hash keys of type list"):
        ParquetFile(tmp_path / "x.parquet")


@pytest.mark.parametrize("content", [b"not parquet at all", b"PAR1" + b"\0" * 50 + b"PAR1"])
def test_corrupt_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=r"cannot read .*x\.parquet as parquet: \S") as error:
        ParquetFile(tmp_path / "x.parquet")
    assert "\n" not in str(error.value)


def test_parquet_with_a_damaged_page(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"key": [f"{i}" for i in range(5_000)]}), path, compression="gzip")
    data = bytearray(path.read_bytes())
    data[100:2_000] = b"\xff" * 1_900
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=r"cannot read .*x\.parquet as parquet: \S"):
        keys(ParquetFile(path))


def test_csv_column(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('user,n\nann,1\nbob,\nann,3\n"a,b",4\n')
    by_name = CsvFile(path, key="user")
    np.testing.assert_array_equal(keys(by_name), hash_keys(["ann", "bob", "ann", "a,b"]))
    by_number = CsvFile(path, key="n", source="user")
    np.testing.assert_array_equal(keys(by_number), hash_keys(pa.array([1, None, 3, 4])))
    np.testing.assert_array_equal(sources(by_number), hash_keys(["ann", "bob", "ann", "a,b"]))
    assert by_number.n_records is None
    as_text = CsvFile(path, key="n", type="string")
    np.testing.assert_array_equal(keys(as_text), hash_keys(["1", "", "3", "4"]))


def test_compressed_csv(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"key\na\nb\n"))
    np.testing.assert_array_equal(keys(open_stream(str(path))), hash_keys(["a", "b"]))


@pytest.mark.jit
def test_csv_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    numbers = [i % 977 for i in range(400_000)]
    path.write_text("key\n" + "\n".join(map(str, numbers)))
    np.testing.assert_array_equal(keys(CsvFile(path), 100_000), hash_keys(numbers))


@pytest.mark.jit
def test_csv_that_turns_from_numbers_to_words(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    rows = ["1"] * 600_000 + ["word"]
    path.write_text("key\n" + "\n".join(rows))
    with pytest.raises(ValueError, match=r"x\.csv: .*'word'.*; try type=string") as error:
        keys(CsvFile(path), 100_000)
    assert "\n" not in str(error.value)
    np.testing.assert_array_equal(keys(CsvFile(path, type="string"), 100_000), hash_keys(rows))


def test_ragged_csv(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match=r"cannot read .*x\.csv as csv: .*Expected 2 columns"):
        keys(CsvFile(tmp_path / "x.csv"))


def test_damaged_gzip(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(b"\x1f\x8bnot gzip")
    with pytest.raises(ValueError, match=r"cannot read .*x\.csv\.gz as csv: \S"):
        CsvFile(tmp_path / "x.csv.gz")


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.csv.gz"])
def test_file_of_zero_bytes_is_an_empty_stream(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    stream = open_stream(f"{tmp_path / name}:key=a")
    assert list(stream.chunks()) == []
    assert stream.n_records == 0


def test_file_without_rows_is_an_empty_stream(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": pa.array([], pa.string())}), tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("key,b\n")
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b""))
    for name in ("x.parquet", "x.csv", "x.csv.gz"):
        assert list(open_stream(str(tmp_path / name)).chunks()) == []
    with pytest.raises(ValueError, match="has no column 'c': choose from key, b"):
        CsvFile(tmp_path / "x.csv", key="c")
