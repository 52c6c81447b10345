"""A decision tree that grows over a stream, from histograms that the workers build."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as fs
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from unskew.apps.base import App, times
from unskew.apps.histogram import RETURNS, CombineHistograms, Histogram
from unskew.spark import Balancer, combine
from unskew.spark.combiners import Combined
from unskew.spark.runtime.files import located, write_whole
from unskew.state import whole

KEYS = ("leaf", "feature", "label")
NODES = "node int, label string, records bigint, feature int, threshold double, children int"


@dataclass
class Node:
    """A node of the tree, which is a leaf as long as it has no feature.

    Parameters
    ----------
    label
        The class of most of its records.
    records
        The number of records that reached it while it was a leaf.
    feature, threshold
        Records whose feature is at most the threshold go to the first child.
    children
        The number of the first child; the second child has the next number.
    """

    label: str | None = None
    records: int = 0
    feature: int | None = None
    threshold: float | None = None
    children: int | None = None


@dataclass(kw_only=True)
class DecisionTree:
    """A decision tree that grows from histograms of features, which workers build and merge.

    For each micro-batch, the workers build a histogram for each leaf, feature and class; the driver
    merges them with its own. With partial key grouping there are at most two to merge, with shuffle
    grouping one for each worker. A leaf with enough records is split where entropy falls most, and
    its histograms are then dropped. The tree is saved beside the balancer's checkpoint, so a query
    that is restarted continues with it, and no batch is learnt twice.

    Parameters
    ----------
    bins
        The number of bins of a histogram.
    candidates
        The number of points of each feature that are tried.
    min_records
        The number of records that a leaf needs to be split, at least one.
    min_gain
        The gain that a split must exceed, in bits.
    max_leaves
        The largest number of leaves.

    References
    ----------
    Ben-Haim and Tom-Tov, A Streaming Parallel Decision Tree Algorithm, JMLR 11, 2010; Nasir et al.,
    The Power of Both Choices, ICDE 2015, section VI.B.
    """

    bins: int = 64
    candidates: int = 20
    min_records: int = 200
    min_gain: float = 0.02
    max_leaves: int = 64
    nodes: list[Node] = field(default_factory=lambda: [Node()], init=False)
    histograms: dict[tuple[int, int, str], Histogram] = field(default_factory=dict, init=False)
    learnt: int = field(default=-1, init=False)

    def __post_init__(self) -> None:
        whole("candidates", self.candidates, 1)
        whole("min_records", self.min_records, 1)

    def learn(self, batch: DataFrame, number: int, balance: Balancer) -> DataFrame:
        """Learn from a batch unless it was learnt before, and return the nodes of the tree."""
        if self.learnt < 0:
            self.load(balance)
        if number > self.learnt:
            grouped = balance.groupBy(self.values(batch), *KEYS)
            results = grouped.agg(self.aggregate().alias("histogram"))
            for leaf, feature, label, (centers, counts) in results.collect():
                self._add((leaf, feature, label), Histogram.of_bins(centers, counts))
            self._grow()
            self.learnt = number
            self.save(balance)
        rows = [(number, *asdict(node).values()) for number, node in enumerate(self.nodes)]
        return batch.sparkSession.createDataFrame(rows, NODES)

    def values(self, batch: DataFrame) -> DataFrame:
        """Return a row for each feature of each record, with the leaf that the record reaches."""
        return batch.where("label is not null").select(
            self._walk(F.lit).alias("leaf"),
            F.col("label").cast("string"),
            F.posexplode("x").alias("feature", "value"),
        )

    def aggregate(self) -> Combined:
        """Return the aggregate that builds histograms."""
        return combine(CombineHistograms(self.bins), "value", returns=RETURNS)

    def predict(self, rows: DataFrame, name: str = "prediction") -> DataFrame:
        """Return the rows with the class that the tree predicts, in a column of this name."""
        return rows.withColumn(name, self._walk(self._label))

    def save(self, balance: Balancer) -> None:
        """Save the tree beside the checkpoint, if there is one."""
        if balance.checkpoint is None:
            return
        saved = {
            "learnt": self.learnt,
            "nodes": [asdict(node) for node in self.nodes],
            "histograms": [
                [*key, histogram.centers.tolist(), histogram.counts.tolist()]
                for key, histogram in self.histograms.items()
            ],
        }
        system, path = _file(balance)
        write_whole(system, path, json.dumps(saved).encode())

    def load(self, balance: Balancer) -> None:
        """Load the tree that is saved beside the checkpoint, if there is one."""
        if balance.checkpoint is None:
            return
        system, path = _file(balance)
        if system.get_file_info(str(path)).type == fs.FileType.NotFound:
            return
        with system.open_input_stream(str(path)) as file:
            saved = json.loads(file.read())
        self.learnt = saved["learnt"]
        self.nodes = [Node(**node) for node in saved["nodes"]]
        self.histograms = {
            (leaf, feature, label): Histogram.of_bins(centers, counts)
            for leaf, feature, label, centers, counts in saved["histograms"]
        }

    def _walk(self, at_leaf: Callable[[int], Column], number: int = 0) -> Column:
        """Return the column of the leaf that a row reaches; missing values go right."""
        node = self.nodes[number]
        if node.feature is None or node.children is None:
            return at_leaf(number)
        left = F.get("x", F.lit(node.feature)) <= F.lit(node.threshold)
        left_side = self._walk(at_leaf, node.children)
        return F.when(left, left_side).otherwise(self._walk(at_leaf, node.children + 1))

    def _label(self, leaf: int) -> Column:
        return F.lit(self.nodes[leaf].label).cast("string")

    def _add(self, key: tuple[int, int, str], new: Histogram) -> None:
        known = self.histograms.get(key)
        self.histograms[key] = new if known is None else known.merge(new, bins=self.bins)

    def _grow(self) -> None:
        """Set the classes of leaves, and split those that gain enough, the largest first."""
        leaves: dict[int, dict[tuple[int, str], Histogram]] = {}
        for (leaf, feature, label), histogram in self.histograms.items():
            leaves.setdefault(leaf, {})[feature, label] = histogram
        for leaf, histograms in leaves.items():
            counts: dict[str, int] = {}
            for (_, label), histogram in histograms.items():
                # Features may be missing in some records.
                counts[label] = max(counts.get(label, 0), histogram.total)
            node = self.nodes[leaf]
            node.records = sum(counts.values())
            node.label = max(sorted(counts), key=counts.__getitem__)
        for leaf in sorted(leaves, key=lambda leaf: (-self.nodes[leaf].records, leaf)):
            small = (len(self.nodes) + 1) // 2 < self.max_leaves
            if small and self.nodes[leaf].records >= self.min_records:
                self._split(leaf, leaves[leaf])

    def _split(self, leaf: int, histograms: dict[tuple[int, str], Histogram]) -> None:
        features = sorted({feature for (feature, _), h in histograms.items() if h.total})
        splits = [self._best(histograms, feature) for feature in features]
        gain, feature, threshold, labels = max(splits, key=lambda split: split[0])
        if gain <= self.min_gain:
            return
        node = self.nodes[leaf]
        node.feature, node.threshold, node.children = feature, threshold, len(self.nodes)
        self.nodes += [Node(label) for label in labels]
        self.histograms = {key: h for key, h in self.histograms.items() if key[0] != leaf}

    def _best(
        self, histograms: dict[tuple[int, str], Histogram], feature: int
    ) -> tuple[float, int, float, list[str]]:
        """Return the best split by a feature: its gain, its point and the classes of its sides."""
        of_class = {label: h for (number, label), h in histograms.items() if number == feature}
        labels = sorted(of_class)
        parts = [of_class[label] for label in labels]
        points = np.unique(parts[0].merge(*parts[1:], bins=self.bins).uniform(self.candidates + 1))
        totals = np.array([[part.total] for part in parts], np.float64)
        left = np.stack([part.sum(points) for part in parts])
        right = totals - left
        sides = [side.sum(axis=0) * entropy(side) for side in (left, right)]
        gains = entropy(totals) - (sides[0] + sides[1]) / max(totals.sum(), 1.0)
        best = int(gains.argmax())
        majorities = [labels[int(side[:, best].argmax())] for side in (left, right)]
        return float(gains[best]), feature, float(points[best]), majorities


def entropy(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the entropy of each column in bits; the rows are classes.

    Examples
    --------
    >>> entropy(np.array([[2.0, 4.0], [2.0, 0.0]])).tolist()
    [1.0, 0.0]
    """
    shares = counts / np.maximum(counts.sum(axis=0), np.finfo(np.float64).tiny)
    logs = np.log2(shares, out=np.zeros_like(shares), where=shares > 0)
    return np.abs(np.sum(shares * logs, axis=0))  # type: ignore[no-any-return]


def _file(balance: Balancer) -> tuple[fs.FileSystem, PurePosixPath]:
    system, path = located(f"{balance.checkpoint}/unskew/{balance.name}/tree.json")
    return system, PurePosixPath(path)


def make_points(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Return generated points around the positions of their keys, labelled by a box."""
    rng = np.random.default_rng([5, first])
    # The multiples of these numbers are spread evenly over the square.
    positions = np.outer(ids, [0.7548776662, 0.5698402910]) % 1.0
    x = positions + rng.normal(0, 0.05, (len(ids), 2))
    inside = (x[:, 0] > 0.4) & (x[:, 1] < 0.6)
    noise = rng.random((len(ids), 1))
    ends = np.arange(0, 3 * len(ids) + 1, 3, dtype=np.int32)
    return {
        "x": pa.ListArray.from_arrays(ends, pa.array(np.hstack([x, noise]).ravel())),
        "label": pa.array(["out", "in"]).take(pa.array(inside.astype(np.int64))),
        "ts": times(ids, first),
    }


DECISION_TREE = App(
    "decision-tree",
    "x array<double>, label string, ts timestamp",
    make_points,
    DecisionTree,
    ("node",),
    "append",
    learns=True,
)
