"""Each source string gives rows with the application's columns; bad strings are refused."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from unskew.apps import APPS
from unskew.apps.run import Job, run
from unskew.apps.sources import open_source

IN_DEGREE = APPS["in-degree"]
IDS = np.array([1, 2, 1, 1, 3] * 40)


class InterruptAfter:
    """Interrupts like Ctrl-C after some records."""

    def __init__(self, records: int) -> None:
        self.missing = records

    def __call__(self, done: int) -> None:
        before, self.missing = self.missing, self.missing - done
        if self.missing <= 0 < before:
            raise KeyboardInterrupt


def degrees(spark: SparkSession, tmp_path: Path, job: Job) -> dict[int, int]:
    """Return the result of the application over a stream."""
    run(spark, job, "key", sink=f"parquet:{tmp_path / 'out'}", once=True)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("batch").collect()
    return {row["dst"]: row["degree"] for row in rows}


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_file_is_replayed_by_other_names(
    spark: SparkSession, tmp_path: Path, ending: str
) -> None:
    table = IN_DEGREE.table(IDS).rename_columns(["src", "key", "at"]).drop_columns(["at"])
    if ending == "csv":
        pyarrow.csv.write_csv(table, tmp_path / "edges.csv")
    else:
        pq.write_table(table, tmp_path / "edges.parquet")
    columns = {"dst": "key", "ts": "null"}
    job = Job(IN_DEGREE, str(tmp_path / f"edges.{ending}"), batch=150, columns=columns)
    assert degrees(spark, tmp_path, job) == {1: 120, 2: 40, 3: 40}


def test_a_folder_is_read(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(2):
        pq.write_table(IN_DEGREE.table(IDS), tmp_path / f"in/{i}.parquet")
    job = Job(IN_DEGREE, str(tmp_path / "in"))
    assert degrees(spark, tmp_path, job) == {1: 240, 2: 80, 3: 80}


def test_a_socket_is_read(spark: SparkSession, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            connection, _ = server.accept()
            with connection:
                good = [json.dumps({"src": 1, "to": dst}) for dst in (4, 4, 5)]
                for text in (*good, "no JSON", "7", '{"src": "x", "to": 4}', '{"src": 1'):
                    connection.sendall(f"{text}\n".encode())
                done.wait(60)

        done = threading.Event()
        sender = threading.Thread(target=send)
        sender.start()
        columns = {"dst": "to", "ts": "null"}
        job = Job(IN_DEGREE, f"socket://127.0.0.1:{server.getsockname()[1]}", columns=columns)
        sink = f"parquet:{tmp_path / 'out'}"
        report = run(spark, job, "key", sink=sink, progress=InterruptAfter(7))
        done.set()
        sender.join()
    assert (report["records"], report["bad_records"]) == (7, 4)
    rows = spark.read.parquet(str(tmp_path / "out")).orderBy("batch").collect()
    assert {row["dst"]: row["degree"] for row in rows} == {4: 2, 5: 1}


def test_a_clock_makes_rows(spark: SparkSession, tmp_path: Path) -> None:
    source = open_source(spark, APPS["vwap"], "rate://5000", tmp_path)
    assert source.rows.columns == ["symbol", "ts", "price", "size"]
    assert not source.ends
    job = Job(APPS["vwap"], "rate://5000")
    report = run(spark, job, "w-choices", progress=InterruptAfter(1))
    assert report["stopped"] == "interrupted"
    assert report["records"] > 0


def test_what_is_wrong_is_told(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "none.parquet")
    (tmp_path / "text.parquet").write_text("no parquet")
    (tmp_path / "empty").mkdir()
    (tmp_path / "x.xyz").write_text("?")

    def opened(stream: str, **columns: str) -> None:
        open_source(spark, IN_DEGREE, stream, tmp_path / f"new-{len(stream)}", columns=columns)

    for stream, message in {
        str(tmp_path / "missing.parquet"): "no such file or folder",
        "zpif:z=1": "no such file or folder",
        "ftp://x": "unknown source ftp://",
        "kafka://host:9092": "must look like kafka://host:port/topic",
        "socket://host": "must look like socket://host:port",
        "rate://often": "rate must be a number",
        str(tmp_path / "x.parquet"): "has no column 'src': name the column to use",
        str(tmp_path / "text.parquet"): "cannot read",
        str(tmp_path / "none.parquet"): "the stream is empty",
        str(tmp_path / "empty"): "has no files yet",
        str(tmp_path / "x.xyz"): "must end in .parquet, .csv or .json",
    }.items():
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            opened(stream)
    with pytest.raises(ValueError, match="the application has no column 'word'"):
        opened(str(tmp_path / "x.parquet"), word="a")
