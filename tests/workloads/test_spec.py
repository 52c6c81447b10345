import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from unskew.workloads import (
    LN1,
    STREAMS,
    WP,
    CsvFile,
    EdgeFile,
    EvolvingZipf,
    FluctuatingZipf,
    ParquetFile,
    Stream,
    WordFile,
    Zipf,
    open_stream,
    summaries,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("spec", "stream"),
    [
        ("zipf", Zipf()),
        ("zipf:z=1.4,keys=10000,records=1e6,seed=1", Zipf(1.4, 10_000, 1_000_000, 1)),
        ("zipf: z = 2 , keys = 1_000", Zipf(z=2, keys=1_000)),
        ("ln1", LN1()),
        ("wp:records=1e6", WP(records=1_000_000)),
        ("evolving-zipf:shift=0.5", EvolvingZipf(shift=0.5)),
        ("fluctuating-zipf:f=2,interval=1e3", FluctuatingZipf(f=2, interval=1_000)),
        ("zipf:seed=9007199254740993", Zipf(seed=9007199254740993)),
    ],
)
def test_generators(spec: str, stream: Stream) -> None:
    assert open_stream(spec) == stream


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "zpif:z=1",
            "unknown stream 'zpif' (did you mean 'zipf'?): give a file or one of zipf, uniform",
        ),
        ("", "unknown stream '': give a file or one of zipf"),
        ("qqq", "unknown stream 'qqq': give a file or one of zipf"),
        ("zipf:k=3", "zipf has no option 'k': choose from z, keys, records, seed"),
        ("zipf:key=3", "zipf has no option 'key' (did you mean 'keys'?): choose from z, keys"),
        ("zipf:z", "options must look like name=value,name=value, got 'z'"),
        ("zipf:z=", "options must look like name=value,name=value, got 'z='"),
        ("zipf:z=1,,seed=1", "options must look like name=value,name=value, got ''"),
        ("zipf:z=1,z=2", "z must be given once, got 1 and 2"),
        ("zipf:z=abc", "z must be a number, got 'abc'"),
        ("zipf:z=nan", "z must be a number, got 'nan'"),
        ("zipf:records=inf", "records must be a number, got 'inf'"),
        ("zipf:records=1.5", "records must be a whole number, got '1.5'"),
        ("zipf:records=0", "records must be at least 1, got 0"),
        ("zipf:records=-1e3", "records must be at least 1, got -1000"),
        ("uniform:keys=0", "keys must be at least 1, got 0"),
        ("wp:p1=2", "p1 must be at least 1/keys"),
    ],
)
def test_errors_are_one_line_that_names_the_way_out(here: Path, spec: str, message: str) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(message)) as error:
        open_stream(spec)
    assert "\n" not in str(error.value)


def test_files_by_their_ending(here: Path) -> None:
    pq.write_table(pa.table({"user_id": [1], "key": [2], "src": [3]}), here / "x.parquet")
    for name, text in {"x.csv": "a\n1\n", "x.txt": "a b", "x.text": "a", "x.edges": ""}.items():
        (here / name).write_text(text)
    assert open_stream("x.parquet") == ParquetFile(Path("x.parquet"), key="key")
    assert open_stream("x.parquet:key=user_id,source=src") == ParquetFile(
        Path("x.parquet"), key="user_id", source="src"
    )
    assert open_stream(f"{here}/x.csv:type=string") == CsvFile(here / "x.csv", "a", type="string")
    assert open_stream("x.txt") == WordFile(Path("x.txt"))
    assert open_stream("x.text") == WordFile(Path("x.text"))
    assert open_stream("x.edges") == EdgeFile(Path("x.edges"))
    assert open_stream("x.txt:format=edges") == EdgeFile(Path("x.txt"))


def test_colons_and_commas_in_names(here: Path) -> None:
    (here / "a:key=b.csv").write_text("x\n1\n")
    (here / "c.csv").write_text('"p,q",r:s\n1,2\n')
    assert open_stream("a:key=b.csv") == CsvFile(Path("a:key=b.csv"), "x")
    assert open_stream("c.csv:key=p,q,source=r:s") == CsvFile(Path("c.csv"), "p,q", "r:s")


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ("no.parquet", FileNotFoundError, "no such file: no.parquet"),
        ("data/no.xyz", FileNotFoundError, "no such file: data/no.xyz"),
        ("no.xyz:format=csv", FileNotFoundError, "no such file: no.xyz"),
        ("folder", IsADirectoryError, "folder is a directory: give one file of it"),
        ("x.xyz", ValueError, "cannot tell the format of x.xyz: add :format= with one of parquet"),
        ("x.xyz:format=cvs", ValueError, "unknown format 'cvs' (did you mean 'csv'?): use parquet"),
        ("x.xyz:format=q", ValueError, "unknown format 'q': use parquet, csv, words, edges"),
        ("x.txt:key=a", ValueError, "words file x.txt has no option 'key': choose from format"),
        (
            "x.csv:kye=a",
            ValueError,
            "csv file x.csv has no option 'kye' (did you mean 'key'?): cho",
        ),
        ("x.csv:key=", ValueError, "options must look like name=value,name=value, got 'key='"),
        ("x.csv:type=int", ValueError, "type must be string or left out, got 'int'"),
    ],
)
def test_file_errors(here: Path, spec: str, kind: type[Exception], message: str) -> None:
    (here / "folder").mkdir()
    for name in ("x.xyz", "x.txt", "x.csv"):
        (here / name).write_text("a\n1\n")
    with pytest.raises(kind) as error:
        open_stream(spec)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_every_generator_has_a_summary_and_its_own_name() -> None:
    for name, line in summaries().items():
        assert STREAMS[name].kind == name
        assert line.endswith(".")
        assert len(line) <= 100
