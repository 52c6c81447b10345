"""Naive Bayes over a stream of words: trained by counting, asked by adding up partial counts."""

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
"""How many words a made document has, about."""


def naive_bayes(words: DataFrame, balance: Balancer, *, classes: str = CLASSES) -> DataFrame:
    """Return how often documents of each class use a word, and how many of them it opens.

    These counts are the model (`predict`). Rows of other classes are passed over.

    Parameters
    ----------
    words
        A row for each word of a document, with its class; ``opens`` is true for the first word of
        each document, so that documents are counted as well.
    classes
        Their names, with commas between them.
    """
    known = classes.split(",")
    counters = _counters(known)
    named = [counter.alias(name) for name, counter in counters.items()]
    counts = balance.groupBy(_of(words, known), "word").agg(*named)
    return counts.select("word", *_by_class(known))


def partial_counts(words: DataFrame, balance: Balancer, *, classes: str = CLASSES) -> DataFrame:
    """Return `naive_bayes` as the workers have it: a row for each word and slot.

    It is a model as well: a word is on few workers, and its counts are added up when it is asked
    for. A stream of them is upserted on the word and the slot.
    """
    known = classes.split(",")
    counters = _counters(known)
    rows = _of(words, known)
    routing = balance.routing_of("partial_counts", for_split_rows("a count"))
    routed = routing.sent(balance.route(rows, "word"), ["word", SLOT])
    counts = (counter.alias(name) for name, counter in counters.items())
    parts = routed.groupBy("word", SLOT).agg(*counts)
    return parts.select("word", SLOT, *_by_class(known))


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
    that were never seen tell nothing; of classes as likely, the last one by name is taken.

    Parameters
    ----------
    documents
        A row for each word, with the columns ``document`` and ``word``.
    model
        Counts by word, or partial counts. Of these, only the words of the documents are merged.
    totals
        What `class_totals` says of the model, if that is at hand: a look at all of it.
    smoothing
        Added to all counts, as Laplace does.
    """
    uses = F.col("uses") + smoothing
    likelihood = F.log(uses / (F.col("all_uses") + smoothing * F.col("vocabulary")))
    classes = F.broadcast(class_totals(model) if totals is None else totals)
    wanted = documents.groupBy("document", "word").agg(F.count("*").alias("times"))
    found = (
        wanted.join(model, "word")
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
        .join(found, ["document", "label"], "left")
        .select("document", F.struct(score.alias("score"), "label").alias("found"))
    )
    best = scores.groupBy("document").agg(F.max("found").alias("best"))
    return best.select("document", "best.label", "best.score")


def probes(documents: DataFrame, partials: DataFrame) -> DataFrame:
    """Return how many distinct words each document has, and how many partial counts they take.

    By key grouping a word takes one at most, by partial key grouping two, and by shuffle grouping
    as many as there are workers.
    """
    parts = partials.groupBy("word").agg(F.count("*").alias("parts"))
    wanted = documents.select("document", "word").distinct().join(parts, "word", "left")
    asked = F.coalesce(F.sum("parts"), F.lit(0))
    return wanted.groupBy("document").agg(F.count("*").alias("words"), asked.alias("probes"))


def class_totals(model: DataFrame) -> DataFrame:
    """Return for each class its log prior and the uses of all words, and how many words there are.

    Of a model that consists of partial counts, too.
    """
    words = model.agg(F.count_distinct("word").alias("vocabulary"))
    each = model.select(F.explode("uses").alias("label", "uses"), "opens")
    opened = F.sum(F.col("opens")[F.col("label")])
    sums = each.groupBy("label").agg(F.sum("uses").alias("all_uses"), opened.alias("opened"))
    documents = sums.agg(F.sum("opened").alias("documents"))
    prior = F.log(F.col("opened") / F.col("documents"))
    # A class without documents is not to be found, whatever the words say.
    never = F.lit(float("-inf"))
    priors = sums.crossJoin(documents).withColumn("prior", F.coalesce(prior, never))
    return priors.crossJoin(words).select("label", "prior", "all_uses", "vocabulary")


def _of(words: DataFrame, classes: Sequence[str]) -> DataFrame:
    return words.where(F.col("label").isin(*classes))


def _counters(classes: Sequence[str]) -> dict[str, Column]:
    """Return what is counted of a word: for each class its uses, and the documents it opens."""
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
    """Make documents of which each word is for one class mostly; two are written at a time."""
    leaning = np.where(ids % 2 == 0, 0.8, 0.2)
    label = (np.random.default_rng([4, first]).random(len(ids)) < leaning).astype(np.int64)
    begun = first + np.arange(len(ids)) // (2 * LENGTH) * (2 * LENGTH)
    document = 2 * begun + label
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
