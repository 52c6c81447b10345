"""Rows grouped by keys, with the methods of Spark's GroupedData on balanced workers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeGuard

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import NumericType, StructType

from unskew.spark.combiners import Combined, Combining
from unskew.spark.control.choices import for_aggregates, for_keys_with_state
from unskew.spark.control.controller import Controller
from unskew.spark.control.moves import MAX_KEYS, MoveController, MoveReporter
from unskew.spark.control.planning import KeyHistory
from unskew.spark.control.schemes import PlannerScheme
from unskew.spark.placement.keys import ColumnOrName, flat, key_columns
from unskew.spark.placement.names import Names
from unskew.spark.placement.windows import duration_us
from unskew.spark.plans.split_plan import PlanFolder
from unskew.spark.routing.planned import PlannedRoute
from unskew.spark.routing.routing import Routing
from unskew.spark.runtime.places import operator_name
from unskew.spark.state.move_log import MoveLog
from unskew.spark.state.operator import Function, Operator
from unskew.spark.state.processors import MovingProcessor
from unskew.spark.state.reports import Reporter
from unskew.spark.state.types import as_struct

STATES = "states"
"""The folder of a function with state; Spark allows one of them in a query."""
WINDOWS = ("spark.timeWindow", "spark.sessionWindow")
"""The metadata keys by which Spark marks window columns."""
REFERENCE = re.compile(r"Column<'`?[\w.]+`?'>")


class Grouped:
    """Rows grouped by keys, as `Balancer.groupBy` returns them.

    Its methods have the names, the parameters and the results of Spark's ``GroupedData``. Nothing
    runs before the result is used, with two exceptions when a method is called: in a batch, planned
    routing reads the rows in one job; in a stream, a listener is registered with the session and a
    probe file is written beside the checkpoint.

    Parameters
    ----------
    routing_of
        Returns the routing of an operator, given its name, the scheme to use if the user gave none,
        and the reason.
    df
        The rows.
    cols
        As for Spark's ``groupBy``: names, columns, expressions, ``F.window(...)``.
    """

    def __init__(
        self,
        routing_of: Callable[[str, tuple[str, str]], Routing],
        df: DataFrame,
        *cols: ColumnOrName | Sequence[ColumnOrName],
    ) -> None:
        self._routing_of, self._df, self._grouping = routing_of, df, flat(cols)
        windows = [col for col in self._grouping if self._is_window(col)]
        self._window = windows[0] if windows else None
        self._keys = [col for col in self._grouping if col is not self._window]
        if windows and not self._keys:
            raise ValueError(
                "grouping by a window alone cannot be balanced, because all rows of a window are "
                "one group: group by a key as well, or use Spark's own groupBy"
            )
        key_columns(df, self._keys)

    def agg(self, *exprs: Column | Combined | Mapping[str, str]) -> DataFrame:
        """Return aggregates of each group, with the rows and the schema of the plain query.

        Supports all aggregates of Spark and `combine`; in a stream, all output modes that Spark
        supports for the plain query. Workers aggregate the rows that they receive, and Spark merges
        their partial results in the plain query's own operator.

        Parameters
        ----------
        exprs
            As for Spark's ``agg``: columns, or one dict from columns to functions.
        """
        aggregates = _checked(exprs)
        scheme = for_aggregates(aggregates)
        routing = self._routing_of(self._named("agg"), scheme)
        if any(isinstance(aggregate, Combined) for aggregate in aggregates):
            return self._combined(routing, aggregates)
        plain = [aggregate for aggregate in aggregates if isinstance(aggregate, Column)]
        if self._stays_whole(routing):
            return self._agg_whole(routing, plain)
        rows = self._at_workers(routing, aggregates)
        return rows.groupBy(*self._grouping).agg(*plain)

    def count(self) -> DataFrame:
        """Return the number of rows of each group."""
        return self.agg(F.count(F.lit(1)).alias("count"))

    def sum(self, *cols: str) -> DataFrame:
        """Return the sums of columns, by default of all numeric ones."""
        return self._each(F.sum, cols)

    def avg(self, *cols: str) -> DataFrame:
        """Return the averages of columns, by default of all numeric ones."""
        return self._each(F.avg, cols)

    mean = avg

    def min(self, *cols: str) -> DataFrame:
        """Return the least values of columns, by default of all numeric ones."""
        return self._each(F.min, cols)

    def max(self, *cols: str) -> DataFrame:
        """Return the greatest values of columns, by default of all numeric ones."""
        return self._each(F.max, cols)

    def applyInPandas(  # noqa: N802
        self, func: Callable[..., pd.DataFrame], schema: StructType | str
    ) -> DataFrame:
        """Return the result of a function over all rows of each group of a batch.

        Groups stay whole: a planner chooses a worker for each, after one scan of the rows.
        """
        if self._df.isStreaming:
            raise ValueError("applyInPandas is for a batch: in a stream use applyInPandasWithState")
        self._check_no_window("applyInPandas")
        arity = len(inspect.signature(func).parameters)
        if arity not in (1, 2) or "Iterator" in str(inspect.signature(func)):
            raise ValueError(
                "the function must take a pandas DataFrame, or a key and a pandas DataFrame, got "
                f"{inspect.signature(func)}"
            )
        routing = self._whole_keys("applyInPandas")
        route = routing.routes(self._df, self._keys)
        rows = routing.with_slots(self._df, route, None)

        def without_slot(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
            user_frame = frame.iloc[:, :-1]
            return func(user_frame) if arity == 1 else func(key[:-1], user_frame)

        return rows.groupBy(*self._keys, route.slot).applyInPandas(without_slot, schema)

    def applyInPandasWithState(  # noqa: N802
        self,
        func: Function,
        outputStructType: StructType | str,  # noqa: N803
        stateStructType: StructType | str,  # noqa: N803
        outputMode: str,  # noqa: N803
        timeoutConf: str,  # noqa: N803
    ) -> DataFrame:
        """Return the result of a function with state over the rows of each key, batch by batch.

        Keys stay whole, and a planner like ``mixed`` moves them between workers, with their state,
        when it pays. No row waits for a move. The function receives a state with the methods of
        Spark's ``GroupState``.
        """
        kind = as_struct(stateStructType)

        def operator(reporter: Reporter) -> Operator:
            return Operator(func, kind, timeoutConf, reporter)

        output = as_struct(outputStructType)
        return self._with_state("applyInPandasWithState", operator, output, outputMode)

    def transformWithStateInPandas(  # noqa: N802
        self,
        statefulProcessor: StatefulProcessor,  # noqa: N803
        outputStructType: StructType | str,  # noqa: N803
        outputMode: str,  # noqa: N803
        timeMode: str,  # noqa: N803
        initialState: Any = None,  # noqa: N803
        eventTimeColumnName: str = "",  # noqa: N803
    ) -> DataFrame:
        """Return the result of a stateful processor over the rows of each key, batch by batch.

        Like `applyInPandasWithState`; values, lists, maps and timers move with the key. The time to
        live of a state starts again when the state moves.
        """
        if initialState is not None or eventTimeColumnName:
            raise ValueError(
                "initialState and eventTimeColumnName are not supported with states that move: "
                "omit both, and load the first states from rows of the stream"
            )
        schema = self._df.select(*key_columns(self._df, self._keys)).schema

        def operator(reporter: Reporter) -> MovingProcessor:
            return MovingProcessor(statefulProcessor, timeMode, schema, reporter)

        output = as_struct(outputStructType)
        return self._with_state("transformWithStateInPandas", operator, output, outputMode)

    def _is_window(self, col: ColumnOrName) -> TypeGuard[Column]:
        if isinstance(col, str) or REFERENCE.fullmatch(str(col)):
            return False
        return any(mark in self._df.select(col).schema[0].metadata for mark in WINDOWS)

    @cached_property
    def _session(self) -> bool:
        """Whether the window is a session window, which has no fixed length."""
        assert self._window is not None
        return WINDOWS[0] not in self._df.select(self._window).schema[0].metadata

    def _named(self, method: str) -> str:
        texts = [re.sub(r"^Column<'(.*)'>$", r"\1", str(col)) for col in self._grouping]
        return f"groupBy({', '.join(texts)}).{method}"

    def _each(self, function: Callable[[str], Column], cols: Sequence[str]) -> DataFrame:
        fields = self._df.schema
        numbers = [field.name for field in fields if isinstance(field.dataType, NumericType)]
        return self.agg(*map(function, cols or numbers))

    def _at_workers(self, routing: Routing, aggregates: Sequence[object]) -> DataFrame:
        """Return the rows on the workers that the scheme chose, before they are aggregated."""
        route = routing.routes(self._df, self._keys)
        place = routing.place(self._df, self._operator(aggregates))
        routed = routing.with_slots(self._df, route, place)
        grouping = [*route.grouping, F.col(route.slot)]
        if not routing.scheme.by_hash:  # such a scheme leaves the shuffle to Spark
            routed = routed.repartition(route.n_workers, *grouping)
        return routing.sent(routed, grouping).drop(route.slot)

    def _operator(self, aggregates: Sequence[object]) -> str:
        names = [a.name if isinstance(a, Combined) else a for a in aggregates]
        return operator_name("aggregate", *self._grouping, *names)

    def _stays_whole(self, routing: Routing) -> bool:
        """Return whether a group stays on one worker to its end, so that nothing is merged."""
        scheme = routing.scheme
        if not self._df.isStreaming:
            return self._window is None and scheme.keeps_keys_whole and not scheme.by_hash
        planner = isinstance(scheme, PlannerScheme)
        return self._window is not None and planner and not self._session

    def _agg_whole(self, routing: Routing, aggregates: Sequence[Column]) -> DataFrame:
        """Return aggregates of groups that each stay on one worker: the plain query, and a slot."""
        df, plain = self._df, self._df.groupBy(*self._grouping).agg(*aggregates).columns
        if self._window is None:
            route = routing.routes(df, self._keys, taken=plain)
            routed, first = routing.with_slots(df, route, None), []
        else:
            window, length_us = Names.free_in(df)("window"), duration_us(df, self._window)
            df = df.withColumn(window, self._window)
            route = routing.routes(df, self._keys, [window], taken=plain)
            routed, first = routing.by_windows(df, route, window, length_us), [F.col(window)]
        sent = routing.sent(routed, [*route.grouping, F.col(route.slot)])
        grouped = sent.groupBy(*first, *self._keys, F.col(route.slot))
        results = grouped.agg(*aggregates).drop(route.slot)
        hidden = [route.names(f"result{i}") for i in range(len(results.columns))]
        # Rows are grouped with the window first; the results keep the user's column order.
        order = [*range(len(hidden))]
        if self._window is not None:
            index = next(i for i, col in enumerate(self._grouping) if col is self._window)
            order = [*order[1 : index + 1], 0, *order[index + 1 :]]
        columns = [F.col(hidden[i]).alias(name) for i, name in zip(order, plain, strict=True)]
        return results.toDF(*hidden).select(*columns)

    def _combined(self, routing: Routing, aggregates: Sequence[Column | Combined]) -> DataFrame:
        """Return aggregates, at least one of which is a CombineFn."""
        if self._window is not None and self._session:
            raise ValueError(
                "combine(...) is for windows of fixed length: for sessions use "
                "applyInPandasWithState with a timeout"
            )
        df, names = self._df, Names.free_in(self._df)
        rows = self._at_workers(routing, aggregates)
        *plain, _ = df.groupBy(*self._grouping).count().schema
        columns = [
            F.col(names("window")) if col is self._window else column
            for col, column in zip(self._grouping, self._columns, strict=True)
        ]
        if self._window is not None:
            rows = rows.withColumn(names("window"), self._window)
        combining, named = Combining(names, columns, plain), self._results(aggregates)
        if self._window is None and df.isStreaming:
            return combining.running(rows, named)
        return combining.at_once(rows, named)

    @property
    def _columns(self) -> list[Column]:
        return [F.col(col) if isinstance(col, str) else col for col in self._grouping]

    def _results(self, aggregates: Sequence[Column | Combined]) -> dict[str, Column | Combined]:
        """Return the aggregates by the names of their result columns."""
        named: dict[str, Column | Combined] = {}
        for aggregate in aggregates:
            if isinstance(aggregate, Combined):
                name = aggregate.name
            else:
                name = self._df.groupBy().agg(aggregate).columns[0]
            if name in named:
                raise ValueError(f"two aggregates are named {name!r}: rename one with alias(...)")
            named[name] = aggregate
        return named

    def _whole_keys(self, method: str) -> Routing:
        """Return the routing of a method that needs all rows of a key on one worker."""
        routing = self._routing_of(self._named(method), for_keys_with_state())
        scheme = routing.scheme
        if not scheme.keeps_keys_whole:
            raise ValueError(
                f"{scheme.text} may split the rows of a key over several workers, and {method} "
                "needs them on one: use a planner like 'mixed', or write a CombineFn for "
                "combine(...)"
            )
        if not routing.planned:
            raise ValueError(
                f"{method} needs planned routing, got {scheme.text} with online routing, which "
                "cannot keep or move whole keys with their state: use a planner like 'mixed', or "
                "'key' with routing='planned'"
            )
        return routing

    def _check_no_window(self, method: str) -> None:
        if self._window is not None:
            raise ValueError(
                f"{method} cannot group by a window expression: make a column of the window first, "
                "and group by that column"
            )

    def _with_state(
        self,
        method: str,
        operator_of: Callable[[Reporter], Operator | MovingProcessor],
        output: StructType,
        mode: str,
    ) -> DataFrame:
        df, keys = self._df, self._keys
        if not df.isStreaming:
            raise ValueError("state is kept in streaming queries; in a batch use applyInPandas")
        self._check_no_window(method)
        routing = self._whole_keys(method)
        names, columns = Names.free_in(df, taken=output.names), key_columns(df, keys)
        route = PlannedRoute(columns, columns, routing.n_workers(df), names, names("slot"))
        place = routing.beside_checkpoint(STATES)
        log = MoveLog(place, route.n_workers, routing.active is not None)
        log.check()
        if routing.active is not None:
            log.activate(routing.active, begin=True)
        speeds = None if isinstance(routing.capacities, str) else routing.capacities
        if (strategy := routing.scheme.strategy(route.n_workers, speeds)) is not None:
            routing.save_first_plan(df.select(*columns), place, strategy)

        def controller() -> Controller:
            if not isinstance(routing.scheme, PlannerScheme):
                return MoveReporter(log)
            history, planner = (
                KeyHistory(route.n_workers, routing.decay, MAX_KEYS),
                routing.scheme.planner,
            )
            return MoveController(
                planner, PlanFolder(place.plans), log, history, routing.capacities
            )

        costs = f"unskew costs of {routing.name} {place.owner}"
        reporter = Reporter(names, output, log)
        operator = operator_of(reporter)
        routed = route.moving(df, log, null_numbers=isinstance(operator, Operator))
        rows = routing.observed_rows(routed, route, controller, place, also=costs)
        if operator.times_out:
            rows = route.with_announcements(rows)
        results = operator.apply(route.with_orders(rows), keys, route.slot, mode)
        return reporter.observed(results, costs)


def _checked(exprs: Sequence[object]) -> list[Column | Combined]:
    """Return the aggregates that were passed to ``agg``, as a list; refuse anything else."""
    if len(exprs) == 1 and isinstance(exprs[0], Mapping):
        named = exprs[0].items()
        return [F.call_function(function, _star(column)) for column, function in named]
    if not exprs:
        raise ValueError("at least one aggregate is needed, as in agg(F.count('*').alias('n'))")
    for expr in exprs:
        if not isinstance(expr, Column | Combined):
            raise TypeError(
                f"an aggregate must be a Column, as in F.count('*'), or combine(...), got {expr!r}"
            )
    return [expr for expr in exprs if isinstance(expr, Column | Combined)]


def _star(column: str) -> Column:
    return F.lit(1) if column == "*" else F.col(column)
