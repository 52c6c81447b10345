"""Planned routing: hot keys by a table that is joined in, all others by Spark's own hash."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from unskew.murmur import CELLS, MASK, cell_workers, targets
from unskew.planners import PLANNERS, read_planners
from unskew.routers import Scheme
from unskew.spark.hot_keys import Classified, Planned, Strategy
from unskew.spark.moving import ARRIVED, HERALD, SINCE, STAY, TO
from unskew.spark.observed import DRAWN, ID, Observed, drawn, sampled, sketches
from unskew.spark.placement import SLOT, slot_column, worker_column
from unskew.spark.plan_source import (
    HERALDED,
    SERVING,
    TARGETS,
    plan_table,
    read_orders,
    read_plan,
    read_terms,
)
from unskew.spark.planning import Memory
from unskew.spark.plans import SplitPlan
from unskew.spark.schedule import Schedule

CLASSIFYING = ("d-choices", "w-choices", "round-robin-head", "dstream", "fish")
"""Schemes whose hot keys can be planned for."""
TARGET, CELL = "__unskew_target", "__unskew_cell"


def strategy_of(
    scheme: Scheme | str, n_workers: int, capacities: Sequence[float] | None = None
) -> Strategy | None:
    """Return what makes the plans of a scheme; None if it needs none."""
    if isinstance(scheme, str):
        (planner,) = read_planners(scheme).values()
        return Planned(planner, n_workers, capacities)
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
    # Hashes pass over nulls, so that (null, 5) and (5, null) would be one key.
    nulls = [column.isNull() for column in columns] if len(columns) > 1 else []
    upper = F.xxhash64(*columns, *nulls).bitwiseAND(F.lit(-(2**32)))
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

    def by_folder(self, df: DataFrame, root: str) -> DataFrame:
        """Return the rows with slots by the newest plan of a folder, at every micro-batch."""
        return self.by_table(df, read_plan(df.sparkSession, root))

    def by_table(self, df: DataFrame, table: DataFrame) -> DataFrame:
        """Return the rows with slots by the plan in a table, and what they were drawn by."""
        joined = self._known(df).join(F.broadcast(table), ID, "left")
        return self._with_slot(joined, F.col(TARGETS)).drop(TARGETS)

    def by_schedule(
        self, df: DataFrame, plans: str, schedule: Schedule, start: Column
    ) -> DataFrame:
        """Return the rows with slots by the plan that holds for the start of their window."""
        return self.by_terms(df, read_terms(df.sparkSession, plans, schedule), F.unix_micros(start))

    def by_terms(self, df: DataFrame, terms: DataFrame, at: Column) -> DataFrame:
        """Return the rows with slots by the plan that holds for each, by its time."""
        joined = self._known(df).join(F.broadcast(terms), ID, "left")
        holding = F.filter(SERVING, lambda term: (term["since"] <= at) & (at < term["until"]))
        chosen = joined.withColumn(TARGETS, F.get(holding, F.lit(0))["targets"]).drop(SERVING)
        return self._with_slot(chosen, F.col(TARGETS)).drop(TARGETS)

    def moving(
        self, df: DataFrame, plans: str, moves: str, first: Collection[int] | None = None
    ) -> DataFrame:
        """Return the rows with slots by where the states of keys are, and what to do with these.

        ``first`` are the workers that were active at the beginning, if workers come and go.
        """
        table = F.broadcast(read_orders(df.sparkSession, plans, moves, self.n_workers))
        joined = self._known(df).join(table, ID, "left")
        if first is not None:
            joined = self._by_cells(joined, plans, moves, first)
        orders = {
            TO: F.coalesce(TO, F.lit(STAY)),
            SINCE: F.coalesce(SINCE, F.lit(ARRIVED).cast("long")),
        }
        return self._with_slot(joined, F.col(TARGETS)).withColumns(orders).drop(TARGETS)

    def _by_cells(self, df: DataFrame, plans: str, moves: str, first: Collection[int]) -> DataFrame:
        """Return rows with orders by the cells of keys, for keys that have none of their own."""
        cell = self.home * CELLS + F.pmod(F.shiftrightunsigned(F.col(ID), 32), F.lit(CELLS))
        names = (TARGETS, TO, HERALDED, SINCE)
        table = read_orders(df.sparkSession, plans, moves, self.n_workers, cells=True)
        renamed = table.select(F.col(ID).alias(CELL), *(F.col(n).alias(f"{n}_cell") for n in names))
        joined = df.withColumn(CELL, cell.cast("long")).join(F.broadcast(renamed), CELL, "left")
        own = F.col(TARGETS).isNotNull()
        at_first = targets(self.n_workers)[cell_workers(self.n_workers, first)].tolist()
        home = F.array(F.element_at(F.lit(at_first), F.col(CELL).cast("int") + 1))
        chosen = {n: F.when(own, F.col(n)).otherwise(F.col(f"{n}_cell")) for n in names}
        chosen[TARGETS] = F.coalesce(chosen[TARGETS], home)
        return joined.withColumns(chosen).drop(CELL, *(f"{n}_cell" for n in names))

    def with_heralds(self, df: DataFrame) -> DataFrame:
        """Return rows of `moving` and, for those whose state leaves, one to where it goes."""
        here = F.struct(SLOT, TO)
        target = slot_column(self.grouping, F.col(HERALDED), self.n_workers)
        there = F.struct(target.alias(SLOT), F.lit(HERALD).alias(TO))
        both = F.when(F.col(HERALDED).isNull(), F.array(here)).otherwise(F.array(here, there))
        exploded = df.withColumn(HERALDED, F.explode(both))
        return exploded.withColumns({name: F.col(HERALDED)[name] for name in (SLOT, TO)})

    def over_all(self, df: DataFrame) -> DataFrame:
        """Return the rows with slots over all workers, whatever their key."""
        return self._with_slot(self._known(df), self._everywhere())

    def by_hash(self, df: DataFrame) -> DataFrame:
        """Return the rows on the workers where Spark's hash puts their keys."""
        nowhere = F.lit(None).cast("array<bigint>")
        return self._with_slot(self._known(df), nowhere)

    def learned(self, df: DataFrame, strategy: Strategy) -> SplitPlan:
        """Return a plan for rows that do not change, by one look at them."""
        start = SplitPlan.empty(self.n_workers)
        seen = sampled(df.withColumn(DRAWN, drawn()), hot=plan_key(self.columns), homes=self.home)
        (row,) = seen.agg(*sketches(seen, self.n_workers)).collect()
        if not row["records"]:
            return start
        memory = Memory(self.n_workers, decay=0.0)
        memory.add(Observed.of(row, self.n_workers))
        return strategy.plan(memory.measured(), start)

    @property
    def home(self) -> Column:
        """The worker of a key by Spark's hash, the same in all windows."""
        return worker_column(self.columns, F.lit(0), self.n_workers)

    def _known(self, df: DataFrame) -> DataFrame:
        """Return the rows with the key of plans, and with what is drawn for each."""
        # Columns of their own, as they are needed in several places. What is drawn comes first: it
        # is not compiled together with the rest, and rows are narrow here.
        return df.withColumn(DRAWN, drawn()).withColumn(ID, plan_key(self.columns))

    def _with_slot(self, df: DataFrame, choices: Column) -> DataFrame:
        pick = F.floor(F.col(DRAWN) * F.size(choices)).cast("int")
        target = F.element_at(choices, pick + 1)
        if len(self.grouping) > len(self.columns):
            target = F.coalesce(target, F.element_at(self._everywhere(), self.home + 1))
        slot = slot_column(self.grouping, F.col(TARGET), self.n_workers)
        return df.withColumn(TARGET, target).withColumn(SLOT, slot).drop(TARGET)

    def _everywhere(self) -> Column:
        return F.lit(targets(self.n_workers).tolist())


def local_table(df: DataFrame, plan: SplitPlan) -> DataFrame:
    """Return a plan as a table of the session."""
    return df.sparkSession.createDataFrame(plan_table(plan))
