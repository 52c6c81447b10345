"""The skew of a DataFrame by its keys, in one call."""

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
    """The skew of rows by their keys.

    Parameters
    ----------
    records
        The number of rows.
    loads
        The number of rows that Spark's hash sends to each worker, estimated from a sample.
    hot
        The most frequent keys, each with its share of the rows.
    """

    records: int
    loads: Sequence[int]
    hot: Sequence[tuple[str, float]]

    @property
    def busiest_over_mean(self) -> float:
        """The ratio of the busiest worker's load to the mean: how much longer its task takes."""
        return max(self.loads) * len(self.loads) / max(1, sum(self.loads))

    def __str__(self) -> str:
        hottest = ", ".join(f"{key} {share:.1%}" for key, share in self.hot[:3]) or "none"
        return (
            f"{self.records:,} records on {len(self.loads)} workers, the busiest has "
            f"{self.busiest_over_mean:.2f} times the mean; hottest keys: {hottest}"
        )


def profile(df: DataFrame, *keys: ColumnOrName) -> Profile:
    """Return the loads of workers and the hot keys under a plain ``groupBy`` of these keys.

    It runs one job over the rows, and samples one in four. For a stream, route it by the scheme
    ``key`` and read the balancer's metrics.
    """
    if df.isStreaming:
        raise ValueError(
            "profile needs a batch, got a stream: use balance.route(df, ...) with "
            "balance = Balancer('key', checkpoint=...), and read balance.metrics while it runs"
        )
    columns, n_workers = key_columns(df, keys), Balancer("key").n_workers(df)
    worker, key = F.pmod(F.hash(*columns), F.lit(n_workers)), key_id(columns)
    names = Names.free_in(df)
    columns_of = {"hot": key, "loads": worker, "names": name_column(key, columns)}
    observation = Observation(names, columns_of)
    sampled = observation.at(with_draws(df, names))
    (row,) = sampled.agg(*observation.sketches(n_workers)).collect()
    batch = BatchObservation.of(row, n_workers)
    hot = [
        (name, batch.hot[key] / batch.records)
        for key, name in batch.names.items()
        if key in batch.hot
    ]
    return Profile(batch.records, [round(load) for load in batch.loads], hot)
