"""The tree learns its data, the same with every scheme, and every batch only once."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.apps.streamed import streamed, tables
from unskew.apps.decision_tree import DECISION_TREE, KEYS, DecisionTree, Node
from unskew.apps.histogram import Histogram
from unskew.spark import SLOT, Balancer
from unskew.workloads import Zipf

RECORDS = 1200
GRID = 32


def points(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points on a grid, so that histograms are exact, and whether each is in a box."""
    x = np.random.default_rng(seed).integers(0, GRID + 1, (RECORDS, 3)) / GRID
    return x, np.where((x[:, 0] > 0.5) & (x[:, 2] <= 0.6), "in", "out")


def frame(spark: SparkSession, seed: int) -> DataFrame:
    x, label = points(seed)
    return spark.createDataFrame(pa.table({"x": x.tolist(), "label": label})).repartition(3)


def leaves_of(nodes: list[dict[str, Any]], x: np.ndarray) -> list[int]:
    """Return the leaf that each point reaches."""
    found = []
    for point in x:
        at = 0
        while nodes[at]["children"] is not None:
            right = point[int(nodes[at]["feature"])] > nodes[at]["threshold"]
            at = int(nodes[at]["children"]) + int(right)
        found.append(at)
    return found


def state(tree: DecisionTree) -> Any:
    histograms = {
        key: (found.centers.tolist(), found.counts.tolist())
        for key, found in tree.histograms.items()
    }
    return tree.learnt, tree.nodes, histograms


@pytest.fixture(scope="module")
def whole(spark: SparkSession) -> DecisionTree:
    """Return the tree of two batches with key grouping."""
    tree = DecisionTree()
    for number in range(2):
        tree.learn(frame(spark, number), number, Balancer("key"))
    return tree


def test_learns_a_box(spark: SparkSession, whole: DecisionTree) -> None:
    found: pd.DataFrame = whole.predict(frame(spark, 9)).toPandas()
    assert found.label.value_counts(normalize=True).iloc[0] < 0.75
    assert (found.prediction == found.label).mean() > 0.97
    nodes = [asdict(node) for node in whole.nodes]
    walked = [nodes[leaf]["label"] for leaf in leaves_of(nodes, np.stack(found.x.to_list()))]
    assert found.prediction.tolist() == walked


def test_counts_every_record_once(whole: DecisionTree) -> None:
    assert sum(node.records for node in whole.nodes) == 2 * RECORDS
    x, label = points(1)
    # The root was split after the first batch, so all records of the second are in its children.
    at = np.array(leaves_of([asdict(whole.nodes[0]), asdict(Node()), asdict(Node())], x))
    grown = [leaf for leaf in (1, 2) if whole.nodes[leaf].children is not None]
    assert len(grown) == 1
    assert grown[0] not in {leaf for leaf, _, _ in whole.histograms}
    (kept,) = {1, 2} - {*grown}
    assert whole.nodes[kept].records == (at == kept).sum()
    for name in set(label[at == kept]):
        for feature in range(3):
            exact = Histogram.of(x[(at == kept) & (label == name), feature], 64)
            found = whole.histograms[kept, feature, name]
            assert found.centers.tolist() == exact.centers.tolist()
            assert found.counts.tolist() == exact.counts.tolist()


@pytest.mark.parametrize(("scheme", "mode"), [("w-choices", "planned"), ("pkg", "online")])
def test_the_same_tree_by_every_scheme_and_after_a_restart(
    spark: SparkSession, tmp_path: Path, whole: DecisionTree, scheme: str, mode: str
) -> None:
    balance = Balancer(scheme, routing=mode, checkpoint=str(tmp_path))
    first, again = DecisionTree(), DecisionTree()
    first.learn(frame(spark, 0), 0, balance)
    again.learn(frame(spark, 7), 0, balance)  # would be visible if it were learnt
    assert state(again) == state(first)
    again.learn(frame(spark, 1), 1, balance)
    assert state(again) == state(whole)


def test_workers_keep_fewer_histograms_than_by_shuffle(
    spark: SparkSession, whole: DecisionTree
) -> None:
    rows = whole.values(frame(spark, 2)).cache()
    keys = rows.select(*KEYS).distinct().count()
    kept = {}
    for scheme in ("key", "pkg", "shuffle"):
        routed = Balancer(scheme).route(rows, *KEYS)
        kept[scheme] = routed.select(*KEYS, SLOT).distinct().count()
    rows.unpersist()
    assert kept["key"] == keys
    assert keys < kept["pkg"] <= 2 * keys
    assert kept["shuffle"] > 1.5 * kept["pkg"]


def test_streams(spark: SparkSession, tmp_path: Path) -> None:
    ids = np.concatenate([*Zipf(1.0, 200, 4000, seed=4).ids(4000)])
    batches = tables(DECISION_TREE, ids, 2)
    found = streamed(spark, DECISION_TREE, batches, tmp_path, "pkg", "online", bins=48)
    rows = pa.concat_tables(batches).to_pandas()
    assert found.records.sum() == len(rows)
    assert (tmp_path / "checkpoint/unskew/router/tree.json").exists()
    nodes = found.sort_values("node").astype(object).replace({np.nan: None}).to_dict("records")
    assert [node["node"] for node in nodes] == list(range(len(nodes)))
    walked = [nodes[leaf]["label"] for leaf in leaves_of(nodes, np.stack(rows.x.to_list()))]
    majority = rows.label.value_counts(normalize=True).iloc[0]
    assert np.mean(walked == rows.label) > majority + 0.15


def test_missing_features_and_labels(spark: SparkSession) -> None:
    x, label = points(5)
    rows = [
        (
            [float(v) if i % 7 else None for v in point] if i % 5 else [],
            str(name) if i % 2 else None,
        )
        for i, (point, name) in enumerate(zip(x[:400], label[:400], strict=True))
    ]
    tree = DecisionTree(min_records=100)
    batch = spark.createDataFrame(rows, "x array<double>, label string")
    tree.learn(batch, 0, Balancer("key"))
    known = sum(bool(i % 2 and i % 5 and i % 7) for i in range(400))
    assert tree.nodes[0].records == known
    assert tree.nodes[0].children == 1
    assert tree.predict(batch).where("prediction is null").count() == 0


def test_stops_growing() -> None:
    x, label = points(6)
    grown = []
    for options in ({}, {"max_leaves": 1}, {"min_gain": 1.0}, {"min_records": RECORDS + 1}):
        tree = DecisionTree(**options)
        for feature in range(3):
            for name in ("in", "out"):
                tree._add((0, feature, name), Histogram.of(x[label == name, feature], 64))
        tree._grow()
        grown.append(len(tree.nodes))
    assert grown == [3, 1, 1, 1]
