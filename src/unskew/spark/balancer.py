"""The one object that a user needs: it routes, and merges what was split."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import DataType, StructType

from unskew.planners import PLANNERS, read_planners
from unskew.spark.aggregates import Aggregate
from unskew.spark.combiners import Combined, accumulated
from unskew.spark.costs import told_costs, without_costs
from unskew.spark.joins import SkewJoin, Times
from unskew.spark.keys import key_columns
from unskew.spark.metrics import Guide
from unskew.spark.moves import TOLD, Moving
from unskew.spark.observed import DRAWN
from unskew.spark.placement import SLOT
from unskew.spark.plan_source import HERALDED
from unskew.spark.planned import PlannedRoute, strategy_of
from unskew.spark.planning import Memory
from unskew.spark.plans import PlanFolder
from unskew.spark.processors import MovingProcessor
from unskew.spark.routing import Routing
from unskew.spark.running import LATEST, SEEN, check_allowed, keep_latest
from unskew.spark.stateful import Function, Operator, as_struct
from unskew.spark.versions import all_nullable
from unskew.spark.whereabouts import MoveLog
from unskew.spark.windows import WINDOW, duration_us

WHOLE = ("key", "consistent")
"""Routers that have a key on one worker, whatever the source and whatever came before."""


@dataclass(frozen=True)
class Balancer(Routing):
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
    capacities
        With a planner: how fast each worker is, or ``"measured"`` by the tasks of functions with
        state; all the same if not given.
    active
        For functions with state: the workers to begin with, if `activate` may change them.

    Attributes
    ----------
    metrics
        What became of the last thousand micro-batches. They are also lines of JSON in the
        checkpoint (``unskew/<name>/metrics.jsonl``) and in the log ``unskew.spark``.
    """

    def apply_in_pandas_with_state(
        self,
        df: DataFrame,
        *keys: str,
        function: Function,
        output: StructType | str,
        state: StructType | str,
        mode: str = "update",
        timeout: str = GroupStateTimeout.NoTimeout,
    ) -> DataFrame:
        """Return what a function with state makes of each key: Spark's applyInPandasWithState.

        Keys stay whole, and by a planner like ``mixed`` they move between workers, with their
        state, when it is worth it. No row waits for that.

        Parameters
        ----------
        function, output, state, mode, timeout
            As Spark's ``func``, ``outputStructType``, ``stateStructType``, ``outputMode`` and
            ``timeoutConf``. The function is given a state with the methods of GroupState.
        """
        kinds = as_struct(output), as_struct(state)
        return self._stateful(df, keys, lambda log: Operator(function, *kinds, timeout, log), mode)

    def transform_with_state_in_pandas(
        self,
        df: DataFrame,
        *keys: str,
        processor: StatefulProcessor,
        output: StructType | str,
        mode: str = "update",
        time_mode: str = "None",
    ) -> DataFrame:
        """Return what a processor with states makes of each key: transformWithStateInPandas.

        As `apply_in_pandas_with_state`; values, lists, maps and timers move with the key. Times to
        live start anew where they come to.
        """
        kind = as_struct(output)
        return self._stateful(
            df, keys, lambda log: MovingProcessor(processor, kind, time_mode, log), mode
        )

    def activate(self, workers: Collection[int], *, n_workers: int | None = None) -> None:
        """Say which workers are active, also while the query runs: they come and go.

        For functions with state, of a balancer that was made with ``active``. Keys of a worker that
        leaves move, when their next rows come, to those that stay; when it comes back, they do.
        """
        most = n_workers or self.workers
        if self.active is None:
            raise ValueError("make the balancer with active=..., the workers to begin with")
        if not workers or min(workers) < 0 or (most and max(workers) >= most):
            some = f"some of 0 to {most - 1}" if most else "numbers from 0 on"
            raise ValueError(f"active workers must be {some}, got {sorted(workers)}")
        MoveLog(self._beside_checkpoint()).activate(workers)

    def _stateful(
        self,
        df: DataFrame,
        keys: Sequence[str],
        wrapped: Callable[[MoveLog], Operator | MovingProcessor],
        mode: str,
    ) -> DataFrame:
        if not df.isStreaming:
            raise ValueError("state is kept in streaming queries; in a batch use applyInPandas")
        if self._scheme_name not in (*PLANNERS, "key"):
            raise ValueError(
                f"{self.scheme} splits keys, and the states of one key cannot be put together: "
                "use a planner like 'mixed', or write a CombineFn for combine(...)"
            )
        columns = key_columns(df, keys)
        route = PlannedRoute(columns, columns, self.n_workers(df))
        root = self._beside_checkpoint()
        folder, log = PlanFolder(f"{root}/plans"), MoveLog(root)
        first = None
        if self.active is not None:
            self.activate(self.active, n_workers=route.n_workers)
            first = log.homes(route.n_workers).first
        rows, guide = route.moving(df, folder.root, log.root, first), Guide()
        if isinstance(self._scheme, str):
            (planner,) = read_planners(self._scheme).values()
            memory = Memory(route.n_workers, self.decay, TOLD)
            guide = Moving(planner, folder, log, memory, self.capacities)
        costs = f"unskew costs of {self.name} {uuid.uuid4().hex}"
        rows = self._watched(rows, route, guide, root, also=costs).drop(DRAWN)
        operator = wrapped(log)
        rows = (route.with_heralds(rows) if operator.times_out else rows).drop(HERALDED)
        found = operator.apply(rows, keys, mode)
        return without_costs(found.observe(costs, told_costs()))

    def join(
        self,
        left: DataFrame,
        right: DataFrame,
        *keys: str,
        how: str = "inner",
        split: str | None = None,
        times: tuple[str, str] | None = None,
        within: tuple[timedelta, timedelta] | None = None,
    ) -> DataFrame:
        """Return a join by key columns that both sides have: hot keys are split, not piled up.

        The rows of hot keys of one side are split, those of the other side replicated to where
        these are. Batches, a stream with a table, and two streams with watermarks. By the scheme
        ``key`` nothing is split: the plain join.

        Parameters
        ----------
        how
            ``inner``, ``left``, ``right``, ``semi`` or ``anti``, as far as Spark has them.
        split
            The side to split, ``left`` or ``right``: the skewed one. The stream if there is one,
            else the left, if the kind of join leaves a choice.
        times, within
            For two streams: the columns of event times, and how much later than a row on the left
            a row on the right may be, at least and at most.
        """
        sides = {"left": left, "right": right}
        streams = [df for df in sides.values() if df.isStreaming]
        workers = self.n_workers(streams[0] if streams else left)
        found = SkewJoin.of(sides, keys, how, split, workers)
        both = None
        if len(streams) == 2:
            if times is None or within is None:
                raise ValueError(
                    "two streams are joined within a time: give times=('left_time', 'right_time') "
                    "and within=(timedelta(0), timedelta(minutes=5)), and both streams a watermark"
                )
            both = Times(*times, *within)
        if self._scheme_name == "key":
            return found.at_home(sides, both, self)
        strategy = (
            strategy_of(self._scheme, workers, self._given_capacities) if self.planned else None
        )
        if strategy is None:
            raise ValueError(
                f"a join is split by a plan, and {self.scheme} makes none: use 'w-choices', "
                "'d-choices', 'dstream', 'fish', a planner, or 'key' for a plain join"
            )
        if not streams:
            return found.of_batches(sides, strategy)
        return found.of_streams(sides, both, self, strategy)

    def aggregate(
        self,
        df: DataFrame,
        *keys: str,
        window: Column | None = None,
        **aggregates: Aggregate | Column,
    ) -> DataFrame:
        """Return aggregates by key: the rows and the schema of the plain query, but balanced.

        A stream with a window needs a watermark and the append mode; without a window it needs the
        update mode. Alternatively write `partials` with an upsert on the keys and the slot, and
        `merge` them when they are read.

        A plain column like ``F.median("x")`` stands for an aggregate that cannot be merged: it is
        refused if the scheme may have a key on several workers. By a planner, a window then keeps
        the plan that was in force when it opened, so that its keys stay whole.
        """
        _check_names(keys, aggregates)
        whole = {name: a for name, a in aggregates.items() if isinstance(a, Column)}
        if whole:
            self._refuse_splitting(df, window, *whole)
            grouping = [*_window(window), *keys]
            columns = [_plain(a).alias(name) for name, a in aggregates.items()]
            routed = self._routed(df, keys, window, whole=True)
            return routed.groupBy(*grouping, SLOT).agg(*columns).drop(SLOT)
        mergeable = {name: a for name, a in aggregates.items() if isinstance(a, Aggregate)}
        if not df.isStreaming or window is not None:
            split = self._partials(df, keys, window, mergeable)
            return self.merge(split, *_window(window), *keys, **mergeable)
        check_allowed(df.sparkSession)
        split = self._running(df, keys, mergeable)
        parts = {name: a.parts(name) for name, a in mergeable.items()}
        flat = [part for names in parts.values() for part in names]
        latest = keep_latest(split, keys, flat, self.n_workers(df))
        results = []
        for name, aggregate in mergeable.items():
            kinds = [split.schema[part].dataType for part in parts[name]]
            folded = (
                merge.fold(F.col(LATEST)[part], kind)
                for merge, part, kind in zip(aggregate.merges, parts[name], kinds, strict=True)
            )
            results.append(_result(aggregate, folded, kinds[0], all_nullable(df)).alias(name))
        return latest.select(*keys, *results)

    def _running(
        self, df: DataFrame, keys: Sequence[str], aggregates: Mapping[str, Aggregate]
    ) -> DataFrame:
        """Return running partial results, with the number of records that each is made of."""
        combined = {
            a.parts(name)[0]: a for name, a in aggregates.items() if isinstance(a, Combined)
        }
        if not combined:
            counted = Aggregate.of(F.sum(F.lit(1)))
            found = self._partials(df, keys, None, {**aggregates, SEEN: counted})
            return found.withColumnRenamed(counted.parts(SEEN)[0], SEEN)
        if len(combined) < len(aggregates):
            raise ValueError(
                "combine(...) and other running aggregates are kept by different operators: "
                "give each a query, or make CombineFns of all"
            )
        return accumulated(self._routed(df, keys, None), [*keys, SLOT], combined)

    def partials(
        self,
        df: DataFrame,
        *keys: str,
        window: Column | None = None,
        **aggregates: Aggregate,
    ) -> DataFrame:
        """Return what each worker computes of each key: a row for each key and slot."""
        _check_names(keys, aggregates)
        return self._partials(df, keys, window, aggregates)

    def sent(self, routed: DataFrame, grouping: Sequence[str]) -> DataFrame:
        """Return routed rows, about to be grouped, as workers are to get them: unchanged.

        For those who derive from this class and want to see, or slow, what is sent.
        """
        return routed

    def _partials(
        self,
        df: DataFrame,
        keys: Sequence[str],
        window: Column | None,
        aggregates: Mapping[str, Aggregate],
    ) -> DataFrame:
        columns = [
            column.alias(part)
            for name, aggregate in aggregates.items()
            for part, column in zip(aggregate.parts(name), aggregate.partials, strict=True)
        ]
        return self._routed(df, keys, window).groupBy(*_window(window), *keys, SLOT).agg(*columns)

    def merge(self, partials: DataFrame, *keys: str, **aggregates: Aggregate) -> DataFrame:
        """Return the aggregates by key of what `partials` gave."""
        merges, results = [], []
        for name, aggregate in aggregates.items():
            parts = aggregate.parts(name)
            merges += [
                merge.aggregate(F.col(part)).alias(part)
                for merge, part in zip(aggregate.merges, parts, strict=True)
            ]
            kind, merged = partials.schema[parts[0]].dataType, map(F.col, parts)
            results.append(_result(aggregate, merged, kind, all_nullable(partials)).alias(name))
        return partials.groupBy(*keys).agg(*merges).select(*keys, *results)

    def _routed(
        self, df: DataFrame, keys: Sequence[str], window: Column | None, whole: bool = False
    ) -> DataFrame:
        for key in keys:
            if key not in df.columns and key.partition(".")[0] in df.columns:
                raise ValueError(
                    f"make a column of {key!r} first: withColumn('name', col({key!r}))"
                )
        if window is not None:
            if WINDOW in df.columns:
                raise ValueError("there is a column 'window' already: rename it, it will be made")
            if whole and df.isStreaming and self._scheme_name in PLANNERS:
                length_us = duration_us(df, window)
                df = df.withColumn(WINDOW, window)
                routed = self.route_windows(df, *keys, length_us=length_us)
                return self.sent(routed, [WINDOW, *keys, SLOT])
            df = df.withColumn(WINDOW, window)
        routed = self.route(df, *keys, before=_window(window))
        return self.sent(routed, [*_window(window), *keys, SLOT])

    def _refuse_splitting(self, df: DataFrame, window: Column | None, *names: str) -> None:
        if self._scheme_name in WHOLE:
            return
        if self._scheme_name in PLANNERS and (window is not None or not df.isStreaming):
            return
        moves = "moves keys between workers" if self._scheme_name in PLANNERS else "splits keys"
        raise ValueError(
            f"{', '.join(names)} cannot be merged, and {self.scheme} {moves}: use a ready-made "
            "aggregate of unskew.spark.aggregates, write it as a CombineFn for combine(...), or "
            "keep keys whole: by the scheme 'key', in windows or a batch also by a planner like "
            "'mixed'; in a stream without windows, use apply_in_pandas_with_state"
        )


def _result(
    aggregate: Aggregate, merged: Iterable[Column], partial: DataType, nullable: bool
) -> Column:
    result = aggregate.finish(*merged).cast(aggregate.kind(partial))
    # A nullable column that never is null.
    return F.when(F.lit(1) == F.lit(1), result) if nullable else result


def _check_names(keys: Sequence[str], aggregates: Mapping[str, Aggregate | Column]) -> None:
    if not aggregates:
        raise ValueError("at least one aggregate is needed, as in total=aggregates.sum('x')")
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate | Column):
            raise TypeError(
                f"{name}={aggregate!r} is no aggregate: give one of unskew.spark.aggregates, as in "
                f"{name}=aggregates.count()"
            )
        parts = aggregate.parts(name) if isinstance(aggregate, Aggregate) else []
        for taken in {name, *parts} & {*keys, SLOT, "window"}:
            raise ValueError(f"{taken!r} is a key, slot or window: give {name} another name")


def _plain(aggregate: Aggregate | Column) -> Column:
    return aggregate.plain if isinstance(aggregate, Aggregate) else aggregate


def _window(window: Column | None) -> list[str]:
    return [] if window is None else [WINDOW]
