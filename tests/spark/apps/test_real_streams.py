"""On real streams, where they are available, the applications equal pandas too."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.apps.streamed import streamed
from unskew.apps import APPS

DATA = Path(os.environ.get("UNSKEW_DATA", "data"))
ROWS, BATCHES = 30_000, 3


def head(name: str, **columns: str) -> pd.DataFrame:
    """Return the first rows of a stream, with its columns renamed."""
    path = DATA / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"no {path}: point UNSKEW_DATA at the folder of real streams")
    (first, *_) = pq.ParquetFile(path).iter_batches(ROWS)
    return first.to_pandas().rename(columns=columns)


def result(
    spark: SparkSession, app: str, rows: pd.DataFrame, folder: Path, scheme: str, **options: str
) -> pd.DataFrame:
    """Return the result of an application over rows."""
    kinds = StructType.fromDDL(APPS[app].schema)
    assert isinstance(kinds, StructType)
    schema = to_arrow_schema(kinds, timezone="UTC")
    table = pa.Table.from_pandas(rows[schema.names], preserve_index=False).cast(schema)
    size = -(-len(table) // BATCHES)
    tables = [table.slice(start, size) for start in range(0, len(table), size)]
    return streamed(spark, APPS[app], tables, folder, scheme, **options)


@pytest.mark.parametrize(
    ("stream", "scheme"),
    [
        ("equity_ticks_2013", "dstream"),  # four keys, one of which has two thirds of the records
        ("option_trades_aapl_2014", "fish"),  # all keys change half-way
    ],
)
def test_prices(spark: SparkSession, tmp_path: Path, stream: str, scheme: str) -> None:
    trades = head(stream, key="symbol")
    found = result(spark, "vwap", trades, tmp_path, scheme).set_index("symbol")
    paid = trades.price.astype(float) * trades["size"]
    exact = paid.groupby(trades.symbol).sum() / trades.groupby("symbol")["size"].sum()
    np.testing.assert_allclose(found.vwap[exact.index], exact)
    assert len(found) == len(exact)


def test_hashtags(spark: SparkSession, tmp_path: Path) -> None:
    uses = head("congress_hashtags", key="tag").assign(person=0)
    found = result(spark, "hashtags", uses, tmp_path, "w-choices").set_index("tag")
    by_tag = uses.groupby("tag")
    assert found.uses.to_dict() == by_tag.size().to_dict()
    assert (found["first"].dt.tz_localize("UTC")[by_tag.ts.min().index] == by_tag.ts.min()).all()


def test_words(spark: SparkSession, tmp_path: Path) -> None:
    words = head("abc_headline_words", key="word")
    found = result(spark, "word-count", words, tmp_path, "w-choices", period="1 day")
    days = words.groupby([words.ts.dt.floor("D"), "word"]).size()
    assert len(found) > 10
    for window, top in zip(found.window, found.top, strict=True):
        counts = days[pd.Timestamp(window["start"], tz="UTC")]
        ranked = sorted(((n, word) for word, n in counts.items()), reverse=True)
        assert [(row["n"], row["word"]) for row in top] == ranked[:10]


def test_degrees(spark: SparkSession, tmp_path: Path) -> None:
    edges = head("slashdot0902_edges", key="dst").assign(ts=pd.Timestamp("2026-01-01", tz="UTC"))
    found = result(spark, "in-degree", edges, tmp_path, "d-choices").set_index("dst")
    assert found.degree.to_dict() == edges.groupby("dst").size().to_dict()
