"""Rows grouped by keys: the methods of Spark's GroupedData, on balanced workers."""

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
"""The folder of functions with state: Spark has one of them in a query."""
WINDOWS = ("spark.timeWindow", "spark.sessionWindow")
"""How Spark marks the columns that its windows make."""
REFERENCE = re.compile(r"Column<'`?[\w.]+`?'>")


class Grouped:
    """Rows grouped by keys, as `Balancer.groupBy` returns them.

    Its methods have the names, the parameters and the results of Spark's ``GroupedData``. Nothing
    runs before the result is used, but in a batch: there a planned routing looks at the rows once,
    when a method is called.

    Parameters
    ----------
    routing_of
        Returns how the rows of an operator are routed, by its name, the scheme to take if the user
        gave none, and the reason.
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
                "windows alone are one group at a time, which nothing can balance: group by a key "
                "as well, or use Spark's own groupBy"
            )
        key_columns(df, self._keys)

    def agg(self, *exprs: Column | Combined | Mapping[str, str]) -> DataFrame:
        """Return aggregates of each group: the rows and the schema of the plain query.

        Any aggregate of Spark's will do, and `combine`; in a stream, any output mode that Spark has
        for the plain query. Workers aggregate the rows that they get, and Spark merges their
        partial results, in the plain query's own operator.

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
        """Return how many rows each group has."""
        return self.agg(F.count(F.lit(1)).alias("count"))

    def sum(self, *cols: str) -> DataFrame:
        """Return the sums of columns, of all numbers if none is named."""
        return self._each(F.sum, cols)

    def avg(self, *cols: str) -> DataFrame:
        """Return the averages of columns, of all numbers if none is named."""
        return self._each(F.avg, cols)

    mean = avg

    def min(self, *cols: str) -> DataFrame:
        """Return the least values of columns, of all numbers if none is named."""
        return self._each(F.min, cols)

    def max(self, *cols: str) -> DataFrame:
        """Return the greatest values of columns, of all numbers if none is named."""
        return self._each(F.max, cols)

    def applyInPandas(  # noqa: N802
        self, func: Callable[..., pd.DataFrame], schema: StructType | str
    ) -> DataFrame:
        """Return what a function makes of all rows of each group of a batch.

        Groups stay whole: a planner chooses a worker for each, by one look at the rows.
        """
        if self._df.isStreaming:
            raise ValueError("applyInPandas is for a batch: in a stream use applyInPandasWithState")
        if self._window is not None:
            raise ValueError("make a column of the window first, and group by that")
        arity = len(inspect.signature(func).parameters)
        if arity not in (1, 2) or "Iterator" in str(inspect.signature(func)):
            raise ValueError("give a function of a pandas DataFrame, or of a key and a DataFrame")
        routing = self._whole_keys("applyInPandas")
        route = routing.routes(self._df, self._keys)
        rows = routing.with_slots(self._df, route, None)

        def without_slot(key: tuple[Any, ...], frame: pd.DataFrame) -> pd.DataFrame:
            users = frame.iloc[:, :-1]
            return func(users) if arity == 1 else func(key[:-1], users)

        return rows.groupBy(*self._keys, route.slot).applyInPandas(without_slot, schema)

    def applyInPandasWithState(  # noqa: N802
        self,
        func: Function,
        outputStructType: StructType | str,  # noqa: N803
        stateStructType: StructType | str,  # noqa: N803
        outputMode: str,  # noqa: N803
        timeoutConf: str,  # noqa: N803
    ) -> DataFrame:
        """Return what a function with state makes of the rows of each key, batch by batch.

        Keys stay whole, and by a planner like ``mixed`` they move between workers, with their
        state, when it pays. No row waits for that. The function is given a state with the methods
        of Spark's ``GroupState``.
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
        """Return what a processor with states makes of the rows of each key, batch by batch.

        As `applyInPandasWithState`; values, lists, maps and timers move with the key. Times to live
        start anew where a state comes to.
        """
        if initialState is not None or eventTimeColumnName:
            raise ValueError(
                "initialState and eventTimeColumnName are not supported with states that move: "
                "load the first states from rows of the stream, and leave both out"
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
        """Whether the window is one that grows: a session."""
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
        """Return the rows on the workers that the scheme chose, about to be aggregated there."""
        route = routing.routes(self._df, self._keys)
        place = routing.place(self._df, self._operator(aggregates))
        routed = routing.with_slots(self._df, route, place)
        grouping = [*route.grouping, F.col(route.slot)]
        if not routing.scheme.by_hash:  # which leaves it all to Spark
            routed = routed.repartition(route.n_workers, *grouping)
        return routing.sent(routed, grouping).drop(route.slot)

    def _operator(self, aggregates: Sequence[object]) -> str:
        names = [a.name if isinstance(a, Combined) else a for a in aggregates]
        return operator_name("aggregate", *self._grouping, *names)

    def _stays_whole(self, routing: Routing) -> bool:
        """Say whether a group keeps one worker to its end, so that nothing is to be merged."""
        scheme = routing.scheme
        if not self._df.isStreaming:
            return self._window is None and scheme.keeps_keys_whole and not scheme.by_hash
        planner = isinstance(scheme, PlannerScheme)
        return self._window is not None and planner and not self._session

    def _agg_whole(self, routing: Routing, aggregates: Sequence[Column]) -> DataFrame:
        """Return aggregates of groups that are on one worker each: the plain query, and a slot."""
        df, plain = self._df, self._df.groupBy(*self._grouping).agg(*aggregates).columns
        if self._window is None:
            route = routing.routes(df, self._keys, taken=plain)
            routed, first = routing.with_slots(df, route, None), []
        else:
            own, length_us = Names.free_in(df)("window"), duration_us(df, self._window)
            df = df.withColumn(own, self._window)
            route = routing.routes(df, self._keys, [own], taken=plain)
            routed, first = routing.by_windows(df, route, own, length_us), [F.col(own)]
        sent = routing.sent(routed, [*route.grouping, F.col(route.slot)])
        grouped = sent.groupBy(*first, *self._keys, F.col(route.slot))
        results = grouped.agg(*aggregates).drop(route.slot)
        hidden = [route.names(f"result{i}") for i in range(len(results.columns))]
        # Spark's hash has the window first; the results have it where the user gave it.
        order = [*range(len(hidden))]
        if self._window is not None:
            at = next(i for i, col in enumerate(self._grouping) if col is self._window)
            order = [*order[1 : at + 1], 0, *order[at + 1 :]]
        columns = [F.col(hidden[i]).alias(name) for i, name in zip(order, plain, strict=True)]
        return results.toDF(*hidden).select(*columns)

    def _combined(self, routing: Routing, aggregates: Sequence[Column | Combined]) -> DataFrame:
        """Return aggregates of which some are CombineFns."""
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
        """Return aggregates by the names of their columns."""
        named: dict[str, Column | Combined] = {}
        for aggregate in aggregates:
            if isinstance(aggregate, Combined):
                name = aggregate.name
            else:
                name = self._df.groupBy().agg(aggregate).columns[0]
            if name in named:
                raise ValueError(f"two aggregates are named {name!r}: give one another, by alias")
            named[name] = aggregate
        return named

    def _whole_keys(self, method: str) -> Routing:
        """Return the routing of a method that needs all rows of a key on one worker."""
        routing = self._routing_of(self._named(method), for_keys_with_state())
        if not (routing.scheme.keeps_keys_whole and routing.planned):
            raise ValueError(
                f"{routing.scheme.text} splits keys, and the states of one key cannot be put "
                "together: use a planner like 'mixed', or write a CombineFn for combine(...)"
            )
        return routing

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
        if self._window is not None:
            raise ValueError("make a column of the window first, and group by that")
        routing = self._whole_keys(method)
        names, columns = Names.free_in(df, taken=output.names), key_columns(df, keys)
        route = PlannedRoute(columns, columns, routing.n_workers(df), names, names("slot"))
        place = routing.beside_checkpoint(STATES)
        log = MoveLog(place, route.n_workers, routing.active is not None)
        log.check()
        if routing.active is not None:
            log.activate(routing.active, begin=True)

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
    """Return aggregates, one by one."""
    if len(exprs) == 1 and isinstance(exprs[0], Mapping):
        named = exprs[0].items()
        return [F.call_function(function, _star(column)) for column, function in named]
    if not exprs:
        raise ValueError("at least one aggregate is needed, as in agg(F.count('*').alias('n'))")
    for expr in exprs:
        if not isinstance(expr, Column | Combined):
            raise TypeError(
                f"{expr!r} is no aggregate: give one of pyspark.sql.functions, as in F.count('*'), "
                "or combine(...)"
            )
    return [expr for expr in exprs if isinstance(expr, Column | Combined)]


def _star(column: str) -> Column:
    return F.lit(1) if column == "*" else F.col(column)
