"""One line to see the skew of rows, before anything is done about it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.spark.balancer import Balancer
from unskew.spark.draws import with_draws
from unskew.spark.keys import ColumnOrName, key_columns, key_id
from unskew.spark.metrics import BatchMetrics, HotKey
from unskew.spark.names import Names
from unskew.spark.observed import Look, Observed, name_column


def see_skew(df: DataFrame, *keys: ColumnOrName) -> BatchMetrics:
    """Return what a plain ``groupBy`` of these keys does to its workers: loads, and hot keys.

    It runs one job over the rows, and looks at one in four. For a stream, route it by the scheme
    ``key`` and look at the balancer's metrics.
    """
    if df.isStreaming:
        raise ValueError(
            "see_skew looks at a batch; for a stream use balance.route(df, ...) of a "
            "balance = Balancer('key', checkpoint=...), and balance.metrics while the query runs"
        )
    columns, n_workers = key_columns(df, keys), Balancer("key").n_workers(df)
    worker, key = F.pmod(F.hash(*columns), F.lit(n_workers)), key_id(columns)
    names = Names.free_in(df)
    look = Look(names, {"hot": key, "loads": worker, "names": name_column(key, columns)})
    (row,) = look.at(with_draws(df, names)).agg(*look.sketches(n_workers)).collect()
    batch = Observed.of(row, n_workers)
    hot = [
        HotKey(name, batch.hot[key] / batch.records, [])
        for key, name in batch.names.items()
        if key in batch.hot
    ]
    loads = [round(load) for load in batch.loads]
    return BatchMetrics(0, batch.records, 0.0, loads, hot, 0, 0.0)
