"""The one object that a user needs: it routes, and merges what was split."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType

from unskew.planners import PLANNERS, read_planners
from unskew.spark.combiners import Combined, Combining
from unskew.spark.joins import SkewJoin, Times, kind_and_split
from unskew.spark.keys import ColumnOrName, flat, key_columns
from unskew.spark.metrics import Guide
from unskew.spark.moves import TOLD, Following, Moving
from unskew.spark.names import Names
from unskew.spark.places import operator_name
from unskew.spark.planned import PlannedRoute
from unskew.spark.planning import Memory
from unskew.spark.plans import PlanFolder
from unskew.spark.processors import MovingProcessor
from unskew.spark.reports import Reporter
from unskew.spark.routing import Routing
from unskew.spark.state_types import as_struct
from unskew.spark.stateful import Function, Operator, with_facts
from unskew.spark.whereabouts import MoveLog
from unskew.spark.windows import duration_us

STATES = "states"
"""The folder of functions with state: Spark has one of them in a query."""


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
        checkpoint (``unskew/<name>/<operator>/metrics.jsonl``) and in the log ``unskew.spark``.
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
        kind = as_struct(state)

        def wrapped(reporter: Reporter) -> Operator:
            return Operator(function, kind, timeout, reporter)

        return self._stateful(df, keys, wrapped, as_struct(output), mode)

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
        schema = df.select(*key_columns(df, keys)).schema

        def wrapped(reporter: Reporter) -> MovingProcessor:
            return MovingProcessor(processor, time_mode, schema, reporter)

        return self._stateful(df, keys, wrapped, as_struct(output), mode)

    def activate(self, workers: Collection[int], *, n_workers: int | None = None) -> None:
        """Say which workers are active, also while the query runs: they come and go.

        For functions with state, of a balancer that was made with ``active``. Keys of a worker that
        leaves move, when their next rows come, to those that stay; when it comes back, they do.
        """
        if self.active is None:
            raise ValueError("make the balancer with active=..., the workers to begin with")
        known = MoveLog(self._beside_checkpoint(STATES), 0, elastic=True).known() or {}
        self._activate(workers, n_workers or self.workers or known.get("workers"), begin=False)

    def _activate(self, workers: Collection[int], most: int | None, begin: bool) -> None:
        if not workers or min(workers) < 0 or (most and max(workers) >= most):
            some = f"some of 0 to {most - 1}" if most else "numbers from 0 on"
            raise ValueError(f"active workers must be {some}, got {sorted(workers)}")
        log = MoveLog(self._beside_checkpoint(STATES), most or 0, elastic=True)
        log.activate(workers, begin)

    def _stateful(
        self,
        df: DataFrame,
        keys: Sequence[str],
        wrapped: Callable[[Reporter], Operator | MovingProcessor],
        output: StructType,
        mode: str,
    ) -> DataFrame:
        if not df.isStreaming:
            raise ValueError("state is kept in streaming queries; in a batch use applyInPandas")
        if self._scheme_name not in (*PLANNERS, "key"):
            raise ValueError(
                f"{self.scheme} splits keys, and the states of one key cannot be put together: "
                "use a planner like 'mixed', or write a CombineFn for combine(...)"
            )
        names = Names.free_in(df, taken=output.names)
        columns = key_columns(df, keys)
        route = PlannedRoute(columns, columns, self.n_workers(df), names, names("slot"))
        place = self._beside_checkpoint(STATES)
        log = MoveLog(place, route.n_workers, self.active is not None)
        log.check()
        if self.active is not None:
            self._activate(self.active, route.n_workers, begin=True)

        def guide() -> Guide:
            if not isinstance(self._scheme, str):
                return Following(log)
            (planner,) = read_planners(self._scheme).values()
            memory = Memory(route.n_workers, self.decay, TOLD)
            return Moving(planner, PlanFolder(place.plans), log, memory, self.capacities)

        costs = f"unskew costs of {self.name} {place.owner}"
        rows = self._watched(route.moving(df, log), route, guide, place, also=costs)
        reporter = Reporter(names, output, log)
        operator = wrapped(reporter)
        if operator.times_out:
            rows = route.with_heralds(rows)
        found = operator.apply(with_facts(rows, route), keys, route.slot, mode)
        return reporter.observed(found, costs)

    def join(
        self,
        left: DataFrame,
        right: DataFrame,
        *keys: str | Sequence[str],
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
        kind, chosen = kind_and_split(sides, how, split)
        both = None
        if len(streams) == 2:
            if times is None or within is None:
                raise ValueError(
                    "two streams are joined within a time: give times=('left_time', 'right_time') "
                    "and within=(timedelta(0), timedelta(minutes=5)), and both streams a watermark"
                )
            both = Times(*times, *within)
        elif times is not None or within is not None:
            raise ValueError("times and within are for two streams: leave them out, use where(...)")
        names = [key for some in keys for key in ([some] if isinstance(some, str) else some)]
        found = SkewJoin.of(sides, names, kind, chosen, workers, both)
        if self._scheme_name == "key":
            return found.at_home(self)
        strategy = self._strategy(workers) if self.planned else None
        if strategy is None:
            raise ValueError(
                f"a join is split by a plan, and {self.scheme} makes none: use 'w-choices', "
                "'d-choices', 'dstream', 'fish', a planner, or 'key' for a plain join"
            )
        return found.of_streams(self, strategy) if streams else found.of_batches(strategy)

    def aggregate(
        self,
        df: DataFrame,
        *keys: ColumnOrName,
        window: Column | None = None,
        **aggregates: Column | Combined,
    ) -> DataFrame:
        """Return aggregates by key: the rows and the schema of the plain query, but balanced.

        Any aggregate of Spark's will do, and `combine`; in a stream, any output mode that Spark has
        for the plain query. Workers aggregate what they get, and their partial results are merged
        by the plain query itself, in one operator.

        Parameters
        ----------
        keys
            As for ``groupBy``.
        window
            As in ``F.window("time", "1 minute")``; it comes first in the result.
        aggregates
            The columns of the result, as in ``n=F.count("*")``.
        """
        keys = tuple(flat(keys))
        _check_aggregates(aggregates)
        plain = {name: a for name, a in aggregates.items() if isinstance(a, Column)}
        if len(plain) < len(aggregates):
            return self._combined(df, keys, window, aggregates)
        grouping = [*([] if window is None else [window]), *keys]
        if self._whole_in(df, window):
            return self._whole(df, keys, window, plain)
        columns = [column.alias(name) for name, column in plain.items()]
        return self._at_workers(df, keys, grouping, *aggregates).groupBy(*grouping).agg(*columns)

    def _at_workers(self, df: DataFrame, keys: Sequence[ColumnOrName], *parts: object) -> DataFrame:
        """Return the rows on the workers that the scheme chose, about to be aggregated there."""
        route = self._routes(df, keys)
        place = self._place(df, operator_name("aggregate", *parts))
        routed = self._with_slots(df, route, place)
        grouping = [*route.grouping, F.col(route.slot)]
        if self._scheme_name != "key":  # which leaves it all to Spark
            routed = routed.repartition(route.n_workers, *grouping)
        return self.sent(routed, grouping).drop(route.slot)

    def sent(self, routed: DataFrame, grouping: Sequence[ColumnOrName]) -> DataFrame:
        """Return routed rows, about to be grouped, as workers are to get them: unchanged.

        For those who derive from this class and want to see, or slow, what is sent.
        """
        return routed

    def _whole_in(self, df: DataFrame, window: Column | None) -> bool:
        """Say whether a group keeps one worker to its end, so that nothing is to be merged."""
        if not df.isStreaming:
            return window is None and self._scheme_name in (*PLANNERS, "consistent")
        return window is not None and self._scheme_name in PLANNERS and not _grows(df, window)

    def _whole(
        self,
        df: DataFrame,
        keys: Sequence[ColumnOrName],
        window: Column | None,
        aggregates: Mapping[str, Column],
    ) -> DataFrame:
        """Return aggregates of groups that are on one worker each: the plain query, and a slot."""
        if window is None:
            route = self._routes(df, keys, taken=aggregates)
            routed, first = self._with_slots(df, route, None), []
        else:
            own, name = Names.free_in(df)("window"), df.select(window).columns[0]
            df, length_us = df.withColumn(own, window), duration_us(df, window)
            route = self._routes(df, keys, [own], taken=aggregates)
            routed = self._by_windows(df, route, own, length_us)
            first = [F.col(own).alias(name)]
        grouping = [*first, *keys, F.col(route.slot)]
        sent = self.sent(routed, [*route.grouping, F.col(route.slot)])
        columns = [column.alias(name) for name, column in aggregates.items()]
        return sent.groupBy(*grouping).agg(*columns).drop(route.slot)

    def _combined(
        self,
        df: DataFrame,
        keys: Sequence[ColumnOrName],
        window: Column | None,
        aggregates: Mapping[str, Column | Combined],
    ) -> DataFrame:
        """Return aggregates of which some are CombineFns."""
        if window is not None and _grows(df, window):
            raise ValueError(
                "combine(...) is for windows of fixed length: for sessions use "
                "apply_in_pandas_with_state with a timeout"
            )
        rows, names = self._at_workers(df, keys, window, *keys, *aggregates), Names.free_in(df)
        groups = [*([] if window is None else [window]), *keys]
        *plain, _ = df.groupBy(*groups).count().schema
        columns = key_columns(df, keys)
        if window is not None:
            rows = rows.withColumn(names("window"), window)
            columns = [F.col(names("window")), *columns]
        combining = Combining(names, columns, plain)
        if window is None and df.isStreaming:
            return combining.running(rows, aggregates)
        return combining.at_once(rows, aggregates)


def _grows(df: DataFrame, window: Column) -> bool:
    """Say whether a window is no window of fixed length: a session, or a column of the user's."""
    return "spark.timeWindow" not in df.select(window).schema[0].metadata


def _check_aggregates(aggregates: Mapping[str, Column | Combined]) -> None:
    if not aggregates:
        raise ValueError("at least one aggregate is needed: give it a name, as in n=F.count('*')")
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Combined | Column):
            raise TypeError(
                f"{name}={aggregate!r} is no aggregate: give one of pyspark.sql.functions, as in "
                f"{name}=F.count('*'), or combine(...)"
            )
