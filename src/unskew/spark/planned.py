"""Planned routing: hot keys by a table that is joined in, all others by Spark's own hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from unskew.planners import PLANNERS, read_planners
from unskew.routers import Scheme
from unskew.spark.controller import Controller, Memory, observed
from unskew.spark.hot_keys import Classified, Planned, Strategy
from unskew.spark.placement import MASK, SLOT, anchors, slot_column
from unskew.spark.plan_source import ANCHOR, ANCHORS, ID, plan_table, read_plan
from unskew.spark.plans import PlanFolder, SplitPlan

CLASSIFYING = ("d-choices", "w-choices", "round-robin-head", "dstream", "fish")
"""Schemes whose hot keys can be planned for."""


def strategy_of(scheme: Scheme | str, n_workers: int) -> Strategy | None:
    """Return what makes the plans of a scheme; None if it needs none."""
    if isinstance(scheme, str):
        (planner,) = read_planners(scheme).values()
        return Planned(planner, n_workers)
    if scheme.name in ("key", "shuffle"):
        return None
    if scheme.name not in CLASSIFYING:
        known = ", ".join(["key", "shuffle", *CLASSIFYING, *PLANNERS])
        raise ValueError(
            f"{scheme.name} decides record by record, use mode='online'; planned: {known}"
        )
    return Classified(scheme, n_workers)


def plan_key(columns: Sequence[Column]) -> Column:
    """Return the key of plans: its lower half says where Spark's hash puts it."""
    upper = F.xxhash64(*columns).bitwiseAND(F.lit(-(2**32)))
    return upper.bitwiseOR(F.hash(*columns).cast("long").bitwiseAND(F.lit(MASK)))


@dataclass(frozen=True)
class PlannedRoute:
    """How rows get their slots by a plan.

    Parameters
    ----------
    columns, grouping
        The key, and the columns before the slot in the operator's grouping.
    n_workers
        Shuffle partitions.
    """

    columns: Sequence[Column]
    grouping: Sequence[Column]
    n_workers: int

    def by_table(self, df: DataFrame, table: DataFrame) -> DataFrame:
        """Return the rows with slots by the plan in a table, and their key."""
        joined = df.withColumn(ID, plan_key(self.columns)).join(F.broadcast(table), ID, "left")
        return self._with_slot(joined, F.col(ANCHORS), F.size(ANCHORS)).drop(ANCHORS)

    def over_all(self, df: DataFrame) -> DataFrame:
        """Return the rows with slots over all workers, whatever their key."""
        everywhere = F.lit([int(anchor) for anchor in anchors(self.n_workers)])
        return self._with_slot(df, everywhere, F.lit(self.n_workers))

    def watched(self, df: DataFrame, name: str, controller: Controller) -> DataFrame:
        """Return the rows, observed for a controller that listens from now on."""
        worker = F.pmod(F.hash(*self.grouping, F.col(SLOT)), F.lit(self.n_workers))
        columns = observed(self.n_workers, F.col(ID), homes=self._home(), loads=worker)
        df.sparkSession.streams.addListener(controller)
        return df.observe(name, *columns)

    def learned(self, df: DataFrame, strategy: Strategy) -> SplitPlan:
        """Return a plan for rows that do not change, by one look at them."""
        start = SplitPlan.empty(self.n_workers)
        columns = observed(self.n_workers, plan_key(self.columns), homes=self._home())
        (row,) = df.agg(*columns).collect()
        if not row["records"]:
            return start
        memory = Memory(self.n_workers, decay=0.0)
        memory.add_row(row)
        return strategy.plan(memory.measured(), start)

    def _home(self) -> Column:
        return F.pmod(F.hash(*self.columns, F.lit(0)), F.lit(self.n_workers))

    def _with_slot(self, df: DataFrame, choices: Column, size: Column) -> DataFrame:
        # Seeded, so that a task that is tried again picks the same. A column of its own, so that
        # it is drawn once: the slot needs it in several places.
        pick = F.floor(F.rand(seed=0) * size).cast("int")
        drawn = df.withColumn(ANCHOR, F.element_at(choices, pick + 1))
        slot = slot_column(F.hash(*self.grouping), F.col(ANCHOR))
        return drawn.withColumn(SLOT, F.coalesce(slot, F.lit(0))).drop(ANCHOR)


def local_table(df: DataFrame, plan: SplitPlan) -> DataFrame:
    """Return a plan as a table of the session."""
    return df.sparkSession.createDataFrame(plan_table(plan))


def plan_stream(
    route: PlannedRoute, df: DataFrame, strategy: Strategy, root: str, name: str, decay: float
) -> DataFrame:
    """Return a stream that is routed by the plans of a folder, and a controller that makes them."""
    folder = PlanFolder(root)
    controller = Controller(name, strategy, folder, Memory(route.n_workers, decay))
    routed = route.by_table(df, read_plan(df.sparkSession, root))
    return route.watched(routed, name, controller).drop(ID)
