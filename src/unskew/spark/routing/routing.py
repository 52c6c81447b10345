"""Routing of an operator's rows: their slots, by a scheme, and the metrics of each batch."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from unskew.spark.control.controller import Controller
from unskew.spark.control.hot_keys import Strategy
from unskew.spark.control.metrics import BatchMetrics
from unskew.spark.control.observed import (
    HOT_KEYS_PER_WORKER,
    NAMED_KEYS,
    TRACKED_KEYS,
    Observation,
    name_column,
)
from unskew.spark.control.planning import KeyHistory, StrategyController, TimedPlanController
from unskew.spark.control.query_observer import QueryObserver, observe_query
from unskew.spark.control.schemes import MEASURED, PlannerScheme, RouterScheme, SparkScheme
from unskew.spark.placement.draws import check_order, with_draws
from unskew.spark.placement.keys import ColumnOrName, key_columns, key_id
from unskew.spark.placement.names import Names
from unskew.spark.placement.slots import worker_column
from unskew.spark.plans.schedule import Schedule
from unskew.spark.plans.split_plan import PlanFolder
from unskew.spark.routing.history import History
from unskew.spark.routing.online import RouterController, slot_udf
from unskew.spark.routing.plan_source import read_plan
from unskew.spark.routing.planned import PlannedRoute, local_table
from unskew.spark.routing.state_files import StateFiles
from unskew.spark.runtime.checkpoint import PARTITIONS, checkpoint_partitions
from unskew.spark.runtime.files import check_writable
from unskew.spark.runtime.places import Place, check_name, operator_name
from unskew.state import within

ROUTINGS = ("planned", "online")


def _unchanged(routed: DataFrame, grouping: Sequence[ColumnOrName]) -> DataFrame:
    return routed


@dataclass(frozen=True)
class Routing:
    """Gives rows their slots, by one scheme.

    Parameters
    ----------
    scheme, routing, checkpoint, name, decay, capacities, active
        The parameters of `unskew.spark.Balancer`.
    metrics
        The sequence that the metrics of micro-batches are appended to.
    history
        Tables of old records, from which the first plans are made.
    sent
        Transforms routed rows, given their grouping, before they are grouped.
    """

    scheme: SparkScheme
    routing: str | None = None
    checkpoint: str | None = None
    name: str = "router"
    decay: float = 0.5
    capacities: Sequence[float] | str | None = None
    active: Collection[int] | None = None
    metrics: deque[BatchMetrics] = field(default_factory=deque)
    history: History = field(default_factory=History)
    sent: Callable[[DataFrame, Sequence[ColumnOrName]], DataFrame] = _unchanged

    def __post_init__(self) -> None:
        check_name(self.name)
        within("decay", self.decay, 0.0, 1.0)
        if self.routing not in (None, *ROUTINGS):
            raise ValueError(f"routing must be one of {', '.join(ROUTINGS)}, got {self.routing!r}")
        if self.routing == "online" and not self.scheme.can_be_online:
            raise ValueError(f"{self.scheme.text} plans between batches: use routing='planned'")
        if self.routing == "planned":
            self.scheme.strategy(1)
        speeds = self.capacities
        if speeds is None:
            return
        scheme = self.scheme.with_capacities(speeds, self.planned)
        object.__setattr__(self, "scheme", scheme)
        if not isinstance(speeds, str) and not all(0 < c < float("inf") for c in speeds):
            raise ValueError(f"capacities must be above 0 and finite, got {[*speeds]}")

    @property
    def _fixed_capacities(self) -> Sequence[float] | None:
        if self.capacities == MEASURED:
            raise ValueError(
                "capacities can be measured only for functions with state: give numbers instead"
            )
        return None if isinstance(self.capacities, str) else self.capacities

    @property
    def planned(self) -> bool:
        """Whether rows are routed by a plan."""
        if self.routing is None:
            return self.scheme.can_be_planned
        return self.routing == "planned"

    def routes(
        self,
        df: DataFrame,
        keys: Sequence[ColumnOrName],
        before: Sequence[ColumnOrName] = (),
        slot: str | None = None,
        taken: Iterable[str] = (),
    ) -> PlannedRoute:
        """Return the route of rows by these keys; the slot's column is hidden, unless it is named.

        Names that are ``taken`` are not used for hidden columns.
        """
        if self.active is not None:
            raise ValueError(
                "active=... is only for functions with state: use a balancer without it for this "
                "operator"
            )
        columns, names = key_columns(df, keys), Names.free_in(df, taken=taken)
        grouping = [*(key_columns(df, before) if before else []), *columns]
        return PlannedRoute(columns, grouping, self.n_workers(df), names, slot or names("slot"))

    def with_slots(self, df: DataFrame, route: PlannedRoute, place: Place | None) -> DataFrame:
        """Return the rows with their slots; a stream needs a place for its files."""
        with_slots = self._planned if self.planned else self._online
        routed, controller = with_slots(df, route, place)
        if place is not None:
            routed = self.observed_rows(routed, route, controller, place)
        return routed.drop(route.names("id"), route.names("drawn"))

    def by_windows(
        self, df: DataFrame, route: PlannedRoute, window: str, length_us: int
    ) -> DataFrame:
        """Return the rows with slots by window; ``window`` is the column of their window."""
        if not (isinstance(self.scheme, PlannerScheme) and df.isStreaming):
            raise ValueError(
                "only a stream that is routed by a planner keeps windows whole: use one, as in "
                "Balancer('mixed', ...)"
            )
        place = self.place(df, operator_name("windows", *route.columns, length_us))
        assert place is not None
        strategy = self.strategy(route.n_workers)
        assert strategy is not None
        self.save_first_plan(df.select(*route.columns), place, strategy)
        schedule = Schedule(place.root, length_us)
        start = F.col(f"{window}.start").cast("timestamp")
        terms = read_plan(df.sparkSession, place, route.names, horizon=length_us)
        routed = route.by_terms(df, terms, F.unix_micros(start))

        def controller() -> Controller:
            history = KeyHistory(route.n_workers, self.decay)
            return TimedPlanController(strategy, PlanFolder(place.plans), history, schedule)

        observed = self.observed_rows(routed, route, controller, place, latest=F.unix_micros(start))
        return observed.drop(route.names("id"), route.names("drawn"))

    def strategy(self, n_workers: int) -> Strategy | None:
        """Return the strategy that makes plans for the scheme; None if it needs none."""
        return self.scheme.strategy(n_workers, self._fixed_capacities)

    def save_first_plan(self, keys: DataFrame, place: Place, strategy: Strategy) -> None:
        """Save a plan made from the history of a stream's keys, if there is one and no plan yet."""
        folder = PlanFolder(place.plans)
        self.history.save_first_plan(folder, keys, strategy, self.n_workers(keys))

    def _online(
        self, df: DataFrame, route: PlannedRoute, place: Place | None
    ) -> tuple[DataFrame, Callable[[], Controller]]:
        assert isinstance(self.scheme, RouterScheme)
        scheme = self.scheme.scheme
        check_order(df, self.scheme.text)
        slots = slot_udf(scheme, route.n_workers, place)
        drawn = with_draws(df, route.names)
        routed = drawn.withColumn(route.slot, slots(key_id(route.columns), F.hash(*route.grouping)))
        if place is None:
            return routed, Controller
        files = StateFiles(place.root)
        return routed, lambda: RouterController(scheme, route.n_workers, files)

    def _planned(
        self, df: DataFrame, route: PlannedRoute, place: Place | None
    ) -> tuple[DataFrame, Callable[[], Controller]]:
        strategy = self.strategy(route.n_workers)
        if strategy is None:
            return (route.by_hash(df) if self.scheme.by_hash else route.over_all(df)), Controller
        if place is None:
            table = local_table(df, route.learned(df, strategy), route.names)
            return route.by_table(df, table), Controller
        self.save_first_plan(df.select(*route.columns), place, strategy)

        def controller() -> Controller:
            folder = PlanFolder(place.plans)
            return StrategyController(strategy, folder, KeyHistory(route.n_workers, self.decay))

        return route.by_table(df, read_plan(df.sparkSession, place, route.names)), controller

    def observed_rows(
        self,
        df: DataFrame,
        route: PlannedRoute,
        controller: Callable[[], Controller],
        place: Place,
        *,
        also: str | None = None,
        latest: Column | None = None,
    ) -> DataFrame:
        """Return the observed rows, and register an observer of the queries that run them.

        ``also`` is the name of a second observation that the observer reads.
        """
        identity = route.names("id")
        key = F.col(identity) if identity in df.columns else key_id(route.columns)
        columns = {
            "hot": key,
            "loads": worker_column(route.grouping, F.col(route.slot), route.n_workers),
            **({"homes": route.home} if self.planned else {}),
            "names": name_column(key, route.columns),
        }
        observation = Observation(route.names, columns, latest)
        name = f"unskew {self.name} {place.owner}"
        path = f"{place.root}/metrics.jsonl"
        observe_query(
            df.sparkSession,
            name,
            lambda: QueryObserver(controller(), route.n_workers, self.metrics, path, also),
        )
        planner = isinstance(self.scheme, PlannerScheme)
        hot_keys = max(NAMED_KEYS, HOT_KEYS_PER_WORKER * route.n_workers)
        keys = TRACKED_KEYS if planner else min(TRACKED_KEYS, hot_keys)
        sketches = observation.sketches(route.n_workers, keys)
        return observation.dropped(observation.at(df).observe(name, *sketches))

    def n_workers(self, df: DataFrame) -> int:
        """Return the number of workers: the shuffle partitions."""
        session = int(df.sparkSession.conf.get(PARTITIONS) or 200)
        fixed = checkpoint_partitions(self.checkpoint) if self.checkpoint else None
        if df.isStreaming and fixed not in (None, session):
            raise ValueError(
                f"the checkpoint {self.checkpoint} was begun with {fixed} shuffle partitions, the "
                f"session has {session}: set {PARTITIONS} to {fixed}, or begin a new checkpoint"
            )
        speeds = self.capacities
        if speeds is not None and not isinstance(speeds, str) and len(speeds) != session:
            raise ValueError(
                f"capacities must be one for each of the {session} workers, got {len(speeds)}"
            )
        return session

    def place(self, df: DataFrame, operator: str) -> Place | None:
        """Return the folder of an operator's files in a stream; None in a batch."""
        return self.beside_checkpoint(operator) if df.isStreaming else None

    def beside_checkpoint(self, operator: str) -> Place:
        """Return the folder of an operator's files; refuse one that cannot be written."""
        if self.checkpoint is None:
            raise ValueError(
                "routing a stream keeps its state beside the query's checkpoint: "
                "give Balancer(..., checkpoint=...) the query's checkpointLocation"
            )
        # Tasks may run in another working directory than the driver.
        local = ":" not in self.checkpoint
        checkpoint = str(Path(self.checkpoint).absolute()) if local else self.checkpoint
        root = f"{checkpoint}/unskew/{self.name}/{operator}"
        try:
            check_writable(root)
        except OSError as error:
            raise ValueError(
                f"routing a stream keeps its state beside the query's checkpoint, but {root} "
                f"cannot be written: {error}; make it writable, or use another checkpoint"
            ) from None
        return Place(root, checkpoint, uuid.uuid4().hex)
