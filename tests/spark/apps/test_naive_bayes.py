"""Counts and predictions equal a naive Bayes in NumPy; the number of probes is bounded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.apps.streamed import SCHEMES, streamed, tables
from spark.conftest import WORKERS
from unskew.apps.naive_bayes import (
    NAIVE_BAYES,
    class_totals,
    naive_bayes,
    partial_counts,
    predict,
    probes,
)
from unskew.spark import Balancer
from unskew.workloads import Zipf

CLASSES = ("arts", "law", "sports")
VOCABULARY = 60


def texts(seed: int, documents: int = 90) -> pd.DataFrame:
    """Return documents whose classes prefer different words and have different frequencies."""
    rng = np.random.default_rng(seed)
    rows = []
    for document in range(documents):
        kind = rng.choice(3, p=[0.5, 0.3, 0.2])
        ranks = np.minimum(rng.zipf(1.4, rng.integers(5, 40)), VOCABULARY) - 1
        shift = 7 * kind * (rng.random(len(ranks)) < 0.4)
        for i, word in enumerate((ranks + shift) % VOCABULARY):
            rows.append((f"w{word}", CLASSES[kind], document, i == 0))
    return pd.DataFrame(rows, columns=["word", "label", "document", "opens"])


def matrix(rows: pd.DataFrame, words: list[str]) -> np.ndarray:
    """Return the count of each word in each document."""
    at = {word: i for i, word in enumerate(words)}
    found = np.zeros((rows.document.max() + 1, len(words)))
    for document, word in zip(rows.document, rows.word, strict=True):
        if word in at:
            found[document, at[word]] += 1
    return found


def scores(train: pd.DataFrame, asked: pd.DataFrame, smoothing: float) -> np.ndarray:
    """Return log probabilities by document and class, up to a constant."""
    words = sorted(set(train.word))
    x, y = matrix(train, words), train.groupby("document").label.first().to_numpy()
    out = []
    for name in CLASSES:
        mine = x[y == name].sum(axis=0) + smoothing
        out.append(np.log(np.mean(y == name)) + matrix(asked, words) @ np.log(mine / mine.sum()))
    return np.stack(out, axis=1)


def frame(spark: SparkSession, rows: pd.DataFrame) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pandas(rows, preserve_index=False)).repartition(3)


@pytest.mark.parametrize(("scheme", "mode"), SCHEMES)
def test_counts_are_exact(spark: SparkSession, tmp_path: Path, scheme: str, mode: str) -> None:
    ids = np.concatenate([*Zipf(1.4, 150, 4000, seed=2).ids(4000)])
    batches = tables(NAIVE_BAYES, ids, 2)
    found = streamed(spark, NAIVE_BAYES, batches, tmp_path, scheme, mode).set_index("word")
    rows = pa.concat_tables(batches).to_pandas()
    assert rows.groupby("document").opens.sum().eq(1).all()
    assert len(found) == rows.word.nunique()
    uses = rows.groupby(["word", "label"]).size().unstack(fill_value=0)
    first = rows.drop_duplicates("document").groupby(["word", "label"]).size()
    opens = first.unstack(fill_value=0).reindex(uses.index, fill_value=0)
    for word in uses.index:
        assert found.uses[word] == uses.loc[word].to_dict()
        assert found.opens[word] == opens.loc[word].to_dict()


def test_predicts_as_numpy_does(spark: SparkSession) -> None:
    smoothing = 0.1
    train, asked = texts(1), texts(2)
    asked.loc[asked.document == 4, "word"] = "never seen"
    names = ",".join(CLASSES)
    whole = naive_bayes(frame(spark, train), Balancer("key"), classes=names)
    parts = partial_counts(frame(spark, train), Balancer("pkg"), classes=names)
    expected = scores(train, asked, smoothing)
    for model in (whole, parts):
        documents = frame(spark, asked[["document", "word"]])
        best = predict(documents, model, smoothing=smoothing).orderBy("document")
        found: pd.DataFrame = best.toPandas()
        assert found.document.tolist() == list(range(len(expected)))
        np.testing.assert_allclose(found.score, expected.max(axis=1), rtol=1e-12)
        assert found.label.tolist() == [CLASSES[i] for i in expected.argmax(axis=1)]
    truth = asked.groupby("document").label.first()
    majority = truth.value_counts(normalize=True).iloc[0]
    assert (found.label.to_numpy() == truth.to_numpy()).mean() > majority + 0.15


def test_looks_at_the_words_of_the_documents_only(spark: SparkSession) -> None:
    names = ",".join(CLASSES)
    parts = partial_counts(frame(spark, texts(1)), Balancer("pkg"), classes=names)
    model = parts.localCheckpoint()
    asked = texts(2, 3)
    mine = model.where(F.col("word").isin(*set(asked.word)))
    assert mine.count() < model.count()
    expected = scores(texts(1), asked, 1.0).max(axis=1)
    found = predict(frame(spark, asked), mine, totals=class_totals(model)).orderBy("document")
    np.testing.assert_allclose([row.score for row in found.collect()], expected, rtol=1e-12)


def test_a_class_without_documents_is_not_found(spark: SparkSession) -> None:
    rows = frame(spark, texts(1, 10)).where("label != 'law'")
    model = naive_bayes(rows, Balancer("key"), classes=",".join(CLASSES))
    counted = model.select(F.sum(F.col("uses")["law"])).collect()[0][0]
    assert counted == 0
    labels = predict(rows, model).select("label").distinct().collect()
    assert sorted(row.label for row in labels) == ["arts", "sports"]


def test_workers_that_a_word_can_be_on(spark: SparkSession) -> None:
    rows = frame(spark, texts(3))
    found = {}
    for scheme in ("key", "pkg", "shuffle"):
        parts = partial_counts(rows, Balancer(scheme), classes=",".join(CLASSES))
        most = parts.groupBy("word").count().agg(F.max("count")).collect()[0][0]
        asked: pd.DataFrame = probes(rows, parts).toPandas()
        assert (asked.probes >= asked.words).all()
        assert (asked.probes <= most * asked.words).all()
        found[scheme] = most, (asked.probes / asked.words).mean()
    assert found["key"] == (1, 1.0)
    assert found["pkg"][0] == 2
    assert found["shuffle"][0] == WORKERS
    assert found["key"][1] < found["pkg"][1] < 2 < found["shuffle"][1]
