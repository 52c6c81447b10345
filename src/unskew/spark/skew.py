"""One line to see the skew of rows, before anything is done about it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.spark.balancer import Balancer
from unskew.spark.keys import ColumnOrName, key_columns, key_id
from unskew.spark.metrics import BatchMetrics, HotKey
from unskew.spark.observed import DRAWN, Observed, drawn, name_column, sampled, sketches


def see_skew(df: DataFrame, *keys: ColumnOrName) -> BatchMetrics:
    """Return what a plain ``groupBy`` of these keys does to its workers: loads, and hot keys.

    It runs one job over the rows, and looks at one in four. For a stream, route it by the scheme
    ``key`` and look at the balancer's metrics.
    """
    if df.isStreaming:
        raise ValueError(
            "see_skew looks at a batch; for a stream: balance = Balancer('key', checkpoint=...), "
            "balance.route(df, ...), and balance.metrics while the query runs"
        )
    columns, n_workers = key_columns(df, keys), Balancer("key").n_workers(df)
    worker, key = F.pmod(F.hash(*columns), F.lit(n_workers)), key_id(columns)
    seen = df.withColumn(DRAWN, drawn())
    seen = sampled(seen, hot=key, loads=worker, names=name_column(key, columns))
    (row,) = seen.agg(*sketches(seen, n_workers)).collect()
    batch = Observed.of(row, n_workers)
    hot = [
        HotKey(name, batch.hot[key] / batch.records, [])
        for key, name in batch.names.items()
        if key in batch.hot
    ]
    loads = [round(load) for load in batch.loads]
    return BatchMetrics(0, batch.records, 0.0, loads, hot, 0, None, 0.0)
