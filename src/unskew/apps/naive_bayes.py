"""Naive Bayes over a stream of words: trained by counting, queried by adding partial counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from unskew.apps.base import App, names, times
from unskew.spark import SLOT, Balancer
from unskew.spark.control.choices import for_split_rows

CLASSES = "ham,spam"
LENGTH = 20
"""About how many words a generated document has."""


def naive_bayes(words: DataFrame, balance: Balancer, *, classes: str = CLASSES) -> DataFrame:
    """Return how often documents of each class use a word, and how many of them it opens.

    These counts are the model (`predict`). Rows of other classes are ignored.

    Parameters
    ----------
    words
        A row for each word of a document, with its class; ``opens`` is true for the first word of
        each document, so that documents are counted as well.
    classes
        The names of the classes, separated by commas.
    """
    labels = classes.split(",")
    counters = [counter.alias(name) for name, counter in _counters(labels).items()]
    counts = balance.groupBy(_of_classes(words, labels), "word").agg(*counters)
    return counts.select("word", *_by_class(labels))


def partial_counts(words: DataFrame, balance: Balancer, *, classes: str = CLASSES) -> DataFrame:
    """Return the counts of `naive_bayes` by worker: a row for each word and slot.

    These are a model as well: a word is on few workers, and its counts are added when a document
    is classified. A stream of partial counts is upserted by the word and the slot.
    """
    labels = classes.split(",")
    rows = _of_classes(words, labels)
    routing = balance.routing_of("partial_counts", for_split_rows("a count"))
    routed = routing.sent(balance.route(rows, "word"), ["word", SLOT])
    counters = (counter.alias(name) for name, counter in _counters(labels).items())
    parts = routed.groupBy("word", SLOT).agg(*counters)
    return parts.select("word", SLOT, *_by_class(labels))


def predict(
    documents: DataFrame,
    model: DataFrame,
    *,
    totals: DataFrame | None = None,
    smoothing: float = 1.0,
) -> DataFrame:
    """Return the most likely class of each document, with its score.

    The score is log P(class) + sum of log P(word | class) over the words of the document, where
    P(word | class) = (uses + smoothing) / (uses of all words + smoothing * number of words). Words
    that the model does not have are ignored; ties go to the last class by name.

    Parameters
    ----------
    documents
        A row for each word, with the columns ``document`` and ``word``.
    model
        Counts by word, or partial counts, of which only the words of the documents are merged.
    totals
        The `class_totals` of the model, to save a scan of the whole model.
    smoothing
        The number that is added to all counts (Laplace smoothing).
    """
    uses = F.col("uses") + smoothing
    likelihood = F.log(uses / (F.col("all_uses") + smoothing * F.col("vocabulary")))
    classes = F.broadcast(class_totals(model) if totals is None else totals)
    document_words = documents.groupBy("document", "word").agg(F.count("*").alias("times"))
    likelihoods = (
        document_words.join(model, "word")
        .select("document", "word", "times", F.explode("uses").alias("label", "uses"))
        .groupBy("document", "word", "times", "label")
        .agg(F.sum("uses").alias("uses"))
        .join(classes, "label")
        .groupBy("document", "label")
        .agg(F.sum(F.col("times") * likelihood).alias("likelihood"))
    )
    score = F.col("prior") + F.coalesce("likelihood", F.lit(0.0))
    scores = (
        documents.select("document")
        .distinct()
        .crossJoin(classes)
        .join(likelihoods, ["document", "label"], "left")
        .select("document", F.struct(score.alias("score"), "label").alias("scored"))
    )
    best = scores.groupBy("document").agg(F.max("scored").alias("best"))
    return best.select("document", "best.label", "best.score")


def probes(documents: DataFrame, partials: DataFrame) -> DataFrame:
    """Return the number of distinct words of each document, and of partial counts to read.

    With key grouping a word has at most one partial count, with partial key grouping two, and with
    shuffle grouping one for each worker.
    """
    parts = partials.groupBy("word").agg(F.count("*").alias("parts"))
    word_parts = documents.select("document", "word").distinct().join(parts, "word", "left")
    probed = F.coalesce(F.sum("parts"), F.lit(0))
    return word_parts.groupBy("document").agg(F.count("*").alias("words"), probed.alias("probes"))


def class_totals(model: DataFrame) -> DataFrame:
    """Return each class's log prior and uses of all words, and the size of the vocabulary.

    The model may consist of partial counts.
    """
    words = model.agg(F.count_distinct("word").alias("vocabulary"))
    by_label = model.select(F.explode("uses").alias("label", "uses"), "opens")
    opened = F.sum(F.col("opens")[F.col("label")])
    sums = by_label.groupBy("label").agg(F.sum("uses").alias("all_uses"), opened.alias("opened"))
    documents = sums.agg(F.sum("opened").alias("documents"))
    prior = F.log(F.col("opened") / F.col("documents"))
    # A class without documents is never predicted, whatever the words.
    never = F.lit(float("-inf"))
    priors = sums.crossJoin(documents).withColumn("prior", F.coalesce(prior, never))
    return priors.crossJoin(words).select("label", "prior", "all_uses", "vocabulary")


def _of_classes(words: DataFrame, classes: Sequence[str]) -> DataFrame:
    return words.where(F.col("label").isin(*classes))


def _counters(classes: Sequence[str]) -> dict[str, Column]:
    """Return the counters of a word: for each class its uses, and the documents that it opens."""
    counters = {}
    for i, name in enumerate(classes):
        of_class = F.col("label") == name
        counters[f"uses_{i}"] = F.count(F.when(of_class, 1))
        counters[f"opens_{i}"] = F.count(F.when(of_class & F.col("opens"), 1))
    return counters


def _by_class(classes: Sequence[str]) -> list[Column]:
    """Return the counts as maps by class."""
    maps = []
    for kind in ("uses", "opens"):
        pairs = [(F.lit(name), F.col(f"{kind}_{i}")) for i, name in enumerate(classes)]
        maps.append(F.create_map(*(part for pair in pairs for part in pair)).alias(kind))
    return maps


def make_documents(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Return generated documents, two interleaved; each word occurs mostly in one class."""
    spam_share = np.where(ids % 2 == 0, 0.8, 0.2)
    label = (np.random.default_rng([4, first]).random(len(ids)) < spam_share).astype(np.int64)
    start = first + np.arange(len(ids)) // (2 * LENGTH) * (2 * LENGTH)
    document = 2 * start + label
    opens = np.zeros(len(ids), bool)
    opens[np.unique(document, return_index=True)[1]] = True
    return {
        "word": names("word", ids),
        "label": pa.array(CLASSES.split(",")).take(pa.array(label)),
        "document": document,
        "opens": opens,
        "ts": times(ids, first),
    }


NAIVE_BAYES = App(
    "naive-bayes",
    "word string, label string, document bigint, opens boolean, ts timestamp",
    make_documents,
    naive_bayes,
    ("word",),
)
