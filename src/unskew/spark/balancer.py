"""The one object that a user needs: it routes, and merges what was split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from unskew.routers import Scheme, read_schemes
from unskew.spark.aggregates import Aggregate
from unskew.spark.keys import ColumnOrName, key_columns, key_id
from unskew.spark.online import slot_udf
from unskew.spark.placement import SLOT
from unskew.spark.state_files import StateFiles
from unskew.state import whole


@dataclass(frozen=True)
class Balancer:
    """Keeps the workers of keyed operators balanced.

    Parameters
    ----------
    scheme
        A router by name, with parameters if wanted: ``"w-choices"``, ``"fish:epoch=1e4"``.
    workers
        Shuffle partitions; those of the session if not given.
    checkpoint
        The checkpoint location of the streaming query; not needed in batch.
    name
        Tells apart the routers of several operators of one query.
    """

    scheme: str = "w-choices"
    workers: int | None = None
    checkpoint: str | None = None
    name: str = "router"
    _scheme: Scheme = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schemes = read_schemes(self.scheme)
        if len(schemes) != 1:
            raise ValueError(f"a balancer has one scheme, got {self.scheme}")
        object.__setattr__(self, "_scheme", schemes[0])
        if self.workers is not None:
            whole("workers", self.workers, 1)

    def route(
        self, df: DataFrame, *keys: ColumnOrName, before: Sequence[ColumnOrName] = ()
    ) -> DataFrame:
        """Return the rows with a ``slot``: an operator grouped by the keys and it is balanced.

        Group by the columns of ``before`` (a window, say), then the keys, then the slot, in this
        order: Spark's hash of them sends each row to the worker that the scheme chose.
        """
        columns = key_columns(df, keys)
        grouping = [*(key_columns(df, before) if before else []), *columns]
        slots = slot_udf(self._scheme, self.n_workers(df), self._files(df))
        return df.withColumn(SLOT, slots(key_id(columns), F.hash(*grouping)))

    def aggregate(
        self,
        df: DataFrame,
        *keys: str,
        window: Column | None = None,
        **aggregates: Aggregate,
    ) -> DataFrame:
        """Return aggregates by key: the rows and the schema of the plain query, but balanced.

        A stream needs a window, a watermark and the append mode.
        """
        if not aggregates:
            raise ValueError("at least one aggregate is needed, as in total=aggregates.sum('x')")
        if window is not None:
            df = df.withColumn("window", window)
        before = [] if window is None else ["window"]
        routed = self.route(df, *keys, before=before)
        grouping = [*before, *keys]
        partials, merges, results = [], [], []
        plain = df.groupBy(*grouping).agg(*(a.plain.alias(n) for n, a in aggregates.items())).schema
        for name, aggregate in aggregates.items():
            parts = [f"{name}__{i}" for i in range(len(aggregate.partials))]
            partials += [c.alias(p) for c, p in zip(aggregate.partials, parts, strict=True)]
            merges += [m(F.col(p)).alias(p) for m, p in zip(aggregate.merges, parts, strict=True)]
            merged = aggregate.finish(*(F.col(part) for part in parts))
            results.append(merged.cast(plain[name].dataType).alias(name))
        split = routed.groupBy(*grouping, SLOT).agg(*partials)
        return split.groupBy(*grouping).agg(*merges).select(*grouping, *results)

    def n_workers(self, df: DataFrame) -> int:
        """Return how many workers there are: the shuffle partitions."""
        session = int(df.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200)
        if self.workers is not None and self.workers != session:
            raise ValueError(
                f"workers={self.workers}, but spark.sql.shuffle.partitions is {session}: "
                "a worker is a shuffle partition, so set that to the same"
            )
        return session

    def _files(self, df: DataFrame) -> StateFiles | None:
        if not df.isStreaming:
            return None
        if self.checkpoint is None:
            raise ValueError(
                "routing a stream keeps its state beside the query's checkpoint: "
                "give Balancer(..., checkpoint=...) the query's checkpointLocation"
            )
        return StateFiles(f"{self.checkpoint}/unskew/{self.name}")
