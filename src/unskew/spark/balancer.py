"""The one object that a user needs: it routes, and merges what was split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from unskew.planners import PLANNERS, read_planners
from unskew.routers import Scheme, read_schemes
from unskew.spark.aggregates import Aggregate
from unskew.spark.checkpoint import PARTITIONS, checkpoint_partitions
from unskew.spark.keys import ColumnOrName, key_columns, key_id
from unskew.spark.online import slot_udf
from unskew.spark.placement import SLOT
from unskew.spark.plan_source import ID
from unskew.spark.planned import (
    CLASSIFYING,
    PlannedRoute,
    local_table,
    plan_stream,
    strategy_of,
)
from unskew.spark.state_files import StateFiles
from unskew.state import whole, within

MODES = ("planned", "online")


@dataclass(frozen=True)
class Balancer:
    """Keeps the workers of keyed operators balanced.

    Parameters
    ----------
    scheme
        A router or a planner by name, with parameters if wanted: ``"w-choices"``,
        ``"fish:epoch=1e4"``, ``"mixed:theta_max=0.05"``.
    workers
        Shuffle partitions; those of the session if not given.
    mode
        ``planned``: hot keys are measured in the JVM, and a controller plans between batches; the
        cheapest. ``online``: a router at each source decides on every record. Planned if not given
        and the scheme can be planned.
    checkpoint
        The checkpoint location of the streaming query; not needed in batch.
    name
        Tells apart the routers of several operators of one query.
    decay
        What a batch counts, in planned routing, when the next one has come.
    """

    scheme: str = "w-choices"
    workers: int | None = None
    mode: str | None = None
    checkpoint: str | None = None
    name: str = "router"
    decay: float = 0.5
    _scheme: Scheme | str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.workers is not None:
            whole("workers", self.workers, 1)
        within("decay", self.decay, 0.0, 1.0)
        if self.mode not in (None, *MODES):
            raise ValueError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        planner = self.scheme.partition(":")[0].strip() in PLANNERS
        named = list(read_planners(self.scheme)) if planner else read_schemes(self.scheme)
        if len(named) != 1:
            raise ValueError(f"a balancer has one scheme, got {self.scheme}")
        object.__setattr__(self, "_scheme", named[0])
        if isinstance(named[0], Scheme):
            named[0].router(self.workers or 2, **named[0].given)  # refuses bad parameters
        if planner and self.mode == "online":
            raise ValueError(f"{self.scheme} plans between batches: use mode='planned'")
        if self.mode == "planned":
            strategy_of(self._scheme, 1)

    @property
    def planned(self) -> bool:
        """Whether rows are routed by a plan."""
        if isinstance(self._scheme, str):
            return True
        able = self._scheme.name in (*CLASSIFYING, "key", "shuffle")
        return able if self.mode is None else self.mode == "planned"

    def route(
        self, df: DataFrame, *keys: ColumnOrName, before: Sequence[ColumnOrName] = ()
    ) -> DataFrame:
        """Return the rows with a ``slot``: an operator grouped by the keys and it is balanced.

        Group by the columns of ``before`` (a window, say), then the keys, then the slot, in this
        order: Spark's hash of them sends each row to the worker that the scheme chose.
        """
        columns = key_columns(df, keys)
        grouping = [*(key_columns(df, before) if before else []), *columns]
        n_workers = self.n_workers(df)
        if self.planned:
            return self._route_planned(df, PlannedRoute(columns, grouping, n_workers))
        assert isinstance(self._scheme, Scheme)
        files = StateFiles(self._beside_checkpoint()) if df.isStreaming else None
        slots = slot_udf(self._scheme, n_workers, files)
        return df.withColumn(SLOT, slots(key_id(columns), F.hash(*grouping)))

    def _route_planned(self, df: DataFrame, route: PlannedRoute) -> DataFrame:
        strategy = strategy_of(self._scheme, route.n_workers)
        if strategy is None:
            spread = isinstance(self._scheme, Scheme) and self._scheme.name == "shuffle"
            return route.over_all(df) if spread else df.withColumn(SLOT, F.lit(0))
        if not df.isStreaming:
            plan = route.learned(df, strategy)
            return route.by_table(df, local_table(df, plan)).drop(ID)
        root, name = f"{self._beside_checkpoint()}/plans", f"unskew {self.name}"
        return plan_stream(route, df, strategy, root, name, self.decay)

    def aggregate(
        self,
        df: DataFrame,
        *keys: str,
        window: Column | None = None,
        **aggregates: Aggregate,
    ) -> DataFrame:
        """Return aggregates by key: the rows and the schema of the plain query, but balanced.

        A stream needs a window, a watermark and the append mode. For running aggregates write the
        `partials` with an upsert on the keys and the slot, and `merge` them when they are read.
        """
        if df.isStreaming and window is None:
            raise ValueError(
                "a stream is merged by window: give window=F.window(...), or write partials(...) "
                "with an upsert on the keys and the slot and merge(...) them on reading"
            )
        split = self.partials(df, *keys, window=window, **aggregates)
        return self.merge(split, *_window(window), *keys, **aggregates)

    def partials(
        self,
        df: DataFrame,
        *keys: str,
        window: Column | None = None,
        **aggregates: Aggregate,
    ) -> DataFrame:
        """Return what each worker computes of each key: a row for each key and slot."""
        for key in keys:
            if key not in df.columns and key.partition(".")[0] in df.columns:
                raise ValueError(
                    f"make a column of {key!r} first: withColumn('name', col({key!r}))"
                )
        if not aggregates:
            raise ValueError("at least one aggregate is needed, as in total=aggregates.sum('x')")
        if window is not None:
            df = df.withColumn("window", window)
        routed = self.route(df, *keys, before=_window(window))
        columns = [
            column.alias(part)
            for name, aggregate in aggregates.items()
            for part, column in zip(aggregate.parts(name), aggregate.partials, strict=True)
        ]
        return routed.groupBy(*_window(window), *keys, SLOT).agg(*columns)

    def merge(self, partials: DataFrame, *keys: str, **aggregates: Aggregate) -> DataFrame:
        """Return the aggregates by key of what `partials` gave."""
        merges, results = [], []
        for name, aggregate in aggregates.items():
            parts = aggregate.parts(name)
            merges += [m(F.col(p)).alias(p) for m, p in zip(aggregate.merges, parts, strict=True)]
            kind = aggregate.kind(partials.schema[parts[0]].dataType)
            results.append(aggregate.finish(*map(F.col, parts)).cast(kind).alias(name))
        return partials.groupBy(*keys).agg(*merges).select(*keys, *results)

    def n_workers(self, df: DataFrame) -> int:
        """Return how many workers there are: the shuffle partitions."""
        session = int(df.sparkSession.conf.get(PARTITIONS) or 200)
        fixed = checkpoint_partitions(self.checkpoint) if self.checkpoint else None
        if df.isStreaming and fixed not in (None, session):
            raise ValueError(
                f"the checkpoint {self.checkpoint} was begun with {fixed} shuffle partitions, the "
                f"session has {session}: set {PARTITIONS} to {fixed}, or begin a new checkpoint"
            )
        if self.workers is not None and self.workers != session:
            raise ValueError(
                f"workers={self.workers}, but spark.sql.shuffle.partitions is {session}: "
                "a worker is a shuffle partition, so set that to the same"
            )
        return session

    def _beside_checkpoint(self) -> str:
        if self.checkpoint is None:
            raise ValueError(
                "routing a stream keeps its state beside the query's checkpoint: "
                "give Balancer(..., checkpoint=...) the query's checkpointLocation"
            )
        return f"{self.checkpoint}/unskew/{self.name}"


def _window(window: Column | None) -> list[str]:
    return [] if window is None else ["window"]
