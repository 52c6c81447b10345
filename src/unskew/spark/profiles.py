"""One line to see the skew of rows, before anything is done about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.spark.balancer import Balancer
from unskew.spark.control.observed import BatchObservation, Observation, name_column
from unskew.spark.placement.draws import with_draws
from unskew.spark.placement.keys import ColumnOrName, key_columns, key_id
from unskew.spark.placement.names import Names


@dataclass(frozen=True)
class Profile:
    """How skewed rows are by their keys.

    Parameters
    ----------
    records
        How many rows there are.
    loads
        The rows that Spark's hash sends to each worker, estimated from a sample.
    hot
        The most frequent keys, with the share of rows that each has.
    """

    records: int
    loads: Sequence[int]
    hot: Sequence[tuple[str, float]]

    @property
    def busiest_over_mean(self) -> float:
        """The load of the busiest worker beside the mean: how much longer its task takes."""
        return max(self.loads) * len(self.loads) / max(1, sum(self.loads))

    def __str__(self) -> str:
        hottest = ", ".join(f"{key} {share:.1%}" for key, share in self.hot[:3]) or "none"
        return (
            f"{self.records:,} records on {len(self.loads)} workers, the busiest has "
            f"{self.busiest_over_mean:.2f} times the mean; hottest keys: {hottest}"
        )


def profile(df: DataFrame, *keys: ColumnOrName) -> Profile:
    """Return what a plain ``groupBy`` of these keys does to its workers: loads, and hot keys.

    It runs one job over the rows, and looks at one in four. For a stream, route it by the scheme
    ``key`` and look at the balancer's metrics.
    """
    if df.isStreaming:
        raise ValueError(
            "profile looks at a batch; for a stream use balance.route(df, ...) of a "
            "balance = Balancer('key', checkpoint=...), and balance.metrics while the query runs"
        )
    columns, n_workers = key_columns(df, keys), Balancer("key").n_workers(df)
    worker, key = F.pmod(F.hash(*columns), F.lit(n_workers)), key_id(columns)
    names = Names.free_in(df)
    look = Observation(names, {"hot": key, "loads": worker, "names": name_column(key, columns)})
    (row,) = look.at(with_draws(df, names)).agg(*look.sketches(n_workers)).collect()
    batch = BatchObservation.of(row, n_workers)
    hot = [
        (name, batch.hot[key] / batch.records)
        for key, name in batch.names.items()
        if key in batch.hot
    ]
    return Profile(batch.records, [round(load) for load in batch.loads], hot)
