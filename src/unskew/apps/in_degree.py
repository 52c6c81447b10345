"""The in-degrees of a graph whose edges are a stream, from sources that are skewed themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.apps.base import App, times
from unskew.spark import Balancer


def in_degree(edges: DataFrame, balance: Balancer) -> DataFrame:
    """Return the number of edges into each vertex.

    Edges are assigned to a source by the vertex that they start at, so the sources are skewed too:
    each has its own router, which knows only the records that it sent itself.
    """
    return balance.groupBy(edges.repartition("src"), "dst").agg(F.count("*").alias("degree"))


def make_edges(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Return generated edges into the given vertices, from vertices that are as skewed."""
    return {
        "src": np.random.default_rng([3, first]).permutation(ids),
        "dst": ids,
        "ts": times(ids, first),
    }


IN_DEGREE = App(
    "in-degree", "src bigint, dst bigint, ts timestamp", make_edges, in_degree, ("dst",)
)
