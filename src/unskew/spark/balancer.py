"""The balancer: the one object that a user needs to balance keyed operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from pyspark.sql import DataFrame

from unskew.spark.control.choices import LEFT, Decision, for_keys_with_state, for_split_rows
from unskew.spark.control.metrics import BatchMetrics
from unskew.spark.control.schemes import read_scheme
from unskew.spark.grouped import STATES, Grouped
from unskew.spark.joins import SkewJoin, Times, kind_and_split
from unskew.spark.placement.keys import ColumnOrName, check_free, flat
from unskew.spark.placement.slots import SLOT
from unskew.spark.routing.history import History
from unskew.spark.routing.routing import Routing
from unskew.spark.runtime.places import operator_name
from unskew.spark.state.move_log import MoveLog

KEPT_METRICS = 1000
"""The number of micro-batches whose metrics are kept."""


@dataclass(frozen=True)
class Balancer:
    """Keeps the workers of keyed operators balanced.

    Operators are lazy, with two exceptions. In a batch, planned routing reads the rows at once, in
    one job. In a stream, an operator registers a listener with the session and writes a probe file
    beside the checkpoint, so that a folder without write access is refused before the query starts.

    Parameters
    ----------
    scheme
        A router or a planner by name, with parameters if wanted: ``"waterline"``,
        ``"fish:epoch=1e4"``, ``"mixed:theta_max=0.05"``. By default the balancer chooses a scheme
        for each operator: see `explain`.
    routing
        ``planned``: hot keys are measured in the JVM, and a controller plans between batches; this
        is the cheapest. ``online``: a router at each source decides on every record. Planned by
        default, if the scheme can be planned.
    checkpoint
        The checkpoint location of the streaming query; not needed in batch.
    name
        Distinguishes the balancers of several operators of one query.
    decay
        The weight that the counts of a batch keep when the next batch arrives (planned routing).
    capacities
        With a planner: how fast each worker is, or ``"measured"`` if the tasks of functions with
        state should measure it. By default all workers are equally fast.
    active
        For functions with state: the workers to start with, if `activate` may change them.

    Attributes
    ----------
    metrics
        Metrics of the last thousand micro-batches. They are also written as lines of JSON to the
        checkpoint (``unskew/<name>/<operator>/metrics.jsonl``) and to the log ``unskew.spark``.
    decisions
        The decision for each operator so far, with the reason.
    """

    scheme: str | None = None
    routing: str | None = None
    checkpoint: str | None = None
    name: str = "router"
    decay: float = 0.5
    capacities: Sequence[float] | str | None = None
    active: Collection[int] | None = None
    metrics: deque[BatchMetrics] = field(
        default_factory=lambda: deque(maxlen=KEPT_METRICS), init=False, repr=False, compare=False
    )
    decisions: list[Decision] = field(default_factory=list, init=False, repr=False, compare=False)
    _history: History = field(default_factory=History, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.scheme is None and self.routing == "online":
            raise ValueError("routing='online' needs a scheme, as in Balancer('pkg', ...)")
        needs_planner = self.capacities is not None or self.active is not None
        default = for_keys_with_state()[0] if needs_planner else LEFT
        self._routing(default if self.scheme is None else self.scheme)

    def groupBy(  # noqa: N802
        self, df: DataFrame, *cols: ColumnOrName | Sequence[ColumnOrName]
    ) -> Grouped:
        """Return rows grouped by keys, with the methods of Spark's ``GroupedData``.

        Parameters
        ----------
        df
            The rows of a batch or of a stream.
        cols
            As for Spark's ``groupBy``; one of them may be ``F.window(...)``.
        """
        return Grouped(self.routing_of, df, *cols)

    groupby = groupBy

    def route(
        self, df: DataFrame, *keys: ColumnOrName, before: Sequence[ColumnOrName] = ()
    ) -> DataFrame:
        """Return the rows with a ``slot`` column; an operator grouped by keys and slot is balanced.

        Group by the columns of ``before`` (a window, say), then the keys, then the slot, in this
        order: Spark's hash of them sends each row to the worker that the scheme chose. In a batch,
        planned routing runs one job over the rows when this is called.
        """
        check_free(df, SLOT, "rename it, because the slot needs that name")
        routing = self.routing_of("route", for_split_rows("an operator behind it"))
        place = routing.place(df, operator_name("route", *before, *flat(keys)))
        return routing.with_slots(df, routing.routes(df, keys, before, SLOT), place)

    def join(
        self,
        left: DataFrame,
        right: DataFrame,
        on: str | Sequence[str],
        how: str = "inner",
        *,
        split: str | None = None,
        times: tuple[str, str] | None = None,
        within: tuple[timedelta, timedelta] | None = None,
    ) -> DataFrame:
        """Return a join by key columns that both sides have, with hot keys spread over workers.

        The rows of hot keys of one side are split, and those of the other side are replicated to
        the workers of the split rows. The sides are two batches, a stream and a table, or two
        streams with watermarks. The scheme ``key`` splits nothing and gives the plain join. For two
        batches this runs one job over the split side when it is called.

        Parameters
        ----------
        on
            The name of a column, or several.
        how
            ``inner``, ``left``, ``right``, ``semi`` or ``anti``, as far as Spark supports them.
        split
            The side to split, ``left`` or ``right``: the skewed one. By default the stream if there
            is only one, else the left side if the kind of join allows it.
        times, within
            For two streams: the columns of event times, and how much later than a row on the left
            a row on the right may be, at least and at most.
        """
        sides = {"left": left, "right": right}
        streams = [df for df in sides.values() if df.isStreaming]
        names = [on] if isinstance(on, str) else [*on]
        kind, chosen = kind_and_split(sides, how, split)
        event_times = None
        if len(streams) == 2:
            if times is None or within is None:
                raise ValueError(
                    "a join of two streams needs a time range: set "
                    "times=('left_time', 'right_time') and "
                    "within=(timedelta(0), timedelta(minutes=5)), and give both streams a watermark"
                )
            event_times = Times(*times, *within)
        elif times is not None or within is not None:
            raise ValueError("times and within are for two streams: omit them, and use where(...)")
        operator = f"join({', '.join(map(str, names))})"
        routing = self.routing_of(operator, for_split_rows(f"the {chosen} side"))
        workers = routing.n_workers(streams[0] if streams else left)
        skew_join = SkewJoin.of(sides, names, kind, chosen, workers, event_times)
        if routing.scheme.by_hash:
            return skew_join.at_home(routing)
        strategy = routing.strategy(workers) if routing.planned else None
        if strategy is None:
            raise ValueError(
                f"a join needs a plan, and {routing.scheme.text} makes none: use "
                "'waterline', 'w-choices', 'd-choices', 'dstream', 'fish', a planner, or 'key' for "
                "a plain join"
            )
        if streams:
            return skew_join.of_streams(routing, strategy)
        return skew_join.of_batches(strategy)

    def prime(self, history: DataFrame, *keys: ColumnOrName) -> None:
        """Let streams start with a plan, made from a table of old records.

        Call it before the operators. Without it, the first batch of a new query is routed by
        Spark's hash alone. An operator of a stream by keys of these names then makes its first plan
        when it is called, by one job that samples the table. A query that has a plan keeps it, and
        no job runs. Keys of the table that no longer come cost nothing; the plan changes with the
        stream, as any other does.

        Parameters
        ----------
        history
            A table with the key columns, of the same types as in the stream.
        keys
            The key columns, in the order of the operator's.
        """
        if self.scheme is not None and not self._routing(self.scheme).planned:
            raise ValueError(
                "online routing decides record by record, without a plan: omit prime(...), or use "
                "a scheme with routing='planned'"
            )
        self._history.add(history, keys)

    def activate(self, workers: Collection[int]) -> None:
        """Set which workers are active, also while the query runs.

        This is for functions with state, and needs a balancer created with ``active``. The keys of
        a worker that leaves move to other workers when their next rows arrive; when it returns,
        they move back.
        """
        if self.active is None:
            raise ValueError("activate needs a balancer with active=..., the workers to start with")
        place = self._routing(for_keys_with_state()[0]).beside_checkpoint(STATES)
        log = MoveLog(place, 0, elastic=True)
        replace(log, n_workers=(log.saved() or {}).get("workers", 0)).activate(workers)

    def explain(self) -> None:
        """Print the decision for each operator so far, with the reason."""
        for decision in self.decisions:
            print(decision)

    def n_workers(self, df: DataFrame) -> int:
        """Return the number of workers, which is the number of shuffle partitions."""
        return self._routing(LEFT if self.scheme is None else self.scheme).n_workers(df)

    def routing_of(self, operator: str, default: tuple[str, str]) -> Routing:
        """Return how the rows of an operator are routed; for the package's own operators.

        Parameters
        ----------
        operator
            The name of the operator as users know it.
        default
            The scheme to use if the balancer has none, and the reason.
        """
        scheme, reason = (self.scheme, "chosen by the user") if self.scheme is not None else default
        routing = self._routing(scheme)
        decision = Decision(operator, scheme, "planned" if routing.planned else "online", reason)
        if decision not in self.decisions:
            self.decisions.append(decision)
        return routing

    def _routing(self, scheme: str) -> Routing:
        return Routing(
            read_scheme(scheme),
            self.routing,
            self.checkpoint,
            self.name,
            self.decay,
            self.capacities,
            self.active,
            self.metrics,
            self._history,
            self._sent,
        )

    def _sent(self, routed: DataFrame, grouping: Sequence[ColumnOrName]) -> DataFrame:
        """Return routed rows as the workers receive them, just before they are grouped."""
        return routed
