"""Planned routing: hot keys by a table that is joined in, all others by Spark's own hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType, IntegralType

from unskew.murmur import CELLS, MASK, targets
from unskew.spark.control.hot_keys import Strategy
from unskew.spark.control.observed import BatchObservation, Observation
from unskew.spark.control.planning import KeyHistory
from unskew.spark.placement.draws import by_place, with_draws
from unskew.spark.placement.key_text import has_floats, key_text
from unskew.spark.placement.names import Names
from unskew.spark.placement.slots import slot_column, worker_column
from unskew.spark.plans.split_plan import SplitPlan
from unskew.spark.routing.plan_source import hidden, plan_table, read_plan
from unskew.spark.state.move_log import MoveLog
from unskew.spark.state.protocol import ANNOUNCED, STAY

MINUS_ZERO = (
    "a key is -0.0, for which Spark keeps another state than for 0.0, though it groups their rows "
    "together: add 0.0 to it, df.withColumn(key, F.col(key) + 0.0)"
)
NULL_NUMBER = (
    "a key that is a number is null: Spark's transformWithStateInPandas then mixes up the states "
    "of all keys in a partition; replace it by another value, "
    "df.withColumn(key, F.coalesce(key, F.lit(-1))), or use a string key"
)


def plan_key(columns: Sequence[Column]) -> Column:
    """Return the key's id in plans; its lower half is Spark's hash, which gives its home."""
    # Hashes skip nulls, so that (null, 5) and (5, null) would be one key.
    nulls = [column.isNull() for column in columns] if len(columns) > 1 else []
    upper = F.xxhash64(*columns, *nulls).bitwiseAND(F.lit(-(2**32)))
    return upper.bitwiseOR(F.hash(*columns).cast("long").bitwiseAND(F.lit(MASK)))


@dataclass(frozen=True)
class PlannedRoute:
    """Gives rows their slots by a plan.

    Parameters
    ----------
    columns, grouping
        The key columns, and all columns before the slot in the operator's grouping.
    n_workers
        Shuffle partitions.
    names
        The names of hidden columns.
    slot
        The name of the slot's column.
    """

    columns: Sequence[Column]
    grouping: Sequence[Column]
    n_workers: int
    names: Names
    slot: str

    def by_table(self, df: DataFrame, table: DataFrame) -> DataFrame:
        """Return the rows with slots by the plan in a table, and with their random numbers."""
        joined = self._with_ids(df).join(F.broadcast(table), self.names("id"), "left")
        return self._with_slot(joined, F.col(self.names("targets")))

    def by_terms(self, df: DataFrame, terms: DataFrame, at: Column) -> DataFrame:
        """Return the rows with slots by the plan that holds at the time of each row."""
        serving = self.names("serving")
        joined = self._with_ids(df).join(F.broadcast(terms), self.names("id"), "left")
        holding = F.filter(serving, lambda term: (term["since"] <= at) & (at < term["until"]))
        chosen = F.get(holding, F.lit(0))["targets"]
        rows = joined.withColumn(self.names("targets"), chosen).drop(serving)
        return self._with_slot(rows, F.col(self.names("targets")))

    def moving(self, df: DataFrame, log: MoveLog, null_numbers: bool = True) -> DataFrame:
        """Return the rows with slots by the places of their keys' states, and with the orders.

        Unless ``null_numbers`` is true, a null in a numeric key column is an error.
        """
        table = self._read_orders(df, log, "keys")
        id_, own, text = self.names("id"), self.names("known"), self.names("key")
        joined = self._checked(df, null_numbers).join(F.broadcast(table), id_, "left")
        # Keys in the record or the plan are reported; new keys, too, if workers come and go.
        key = key_text(self.columns, self._kinds(df))
        reported = F.lit(True) if log.elastic else F.col(self.names("target")).isNotNull()
        joined = joined.withColumn(text, F.when(reported, key).otherwise(""))
        same = F.filter(own, lambda known: known["key"] == F.col(text))
        joined = joined.withColumn(own, F.get(same, F.lit(0)))
        target = self._picked(own, "target")
        if log.elastic:
            joined = self._with_cells(joined, log)
            target = F.coalesce(target, F.col(self.names("cell_target")))
        columns = {
            self.names("targets"): F.when(target.isNotNull(), F.array(target)),
            self.names("to"): F.coalesce(self._picked(own, "to"), F.lit(STAY)),
            self.names("announced"): self._picked(own, "announced"),
            self.names("object"): F.coalesce(F.col(own)["object"], F.lit("")),
        }
        rows = joined.withColumns(columns)
        unused = (own, self.names("target"), self.names("cell_target"))
        return self._with_slot(rows, F.col(self.names("targets"))).drop(*unused)

    def _picked(self, known: str, what: str) -> Column:
        """Return a value for the key itself or, if the record does not have it, for its id."""
        entry = F.col(known)
        return F.when(entry.isNotNull(), entry[what]).otherwise(F.col(self.names(what)))

    def _with_cells(self, df: DataFrame, log: MoveLog) -> DataFrame:
        """Return rows with the targets of new keys, by the cells of the keys."""
        key, own = F.col(self.names("id")), self.names("cell")
        cell = self.home * CELLS + F.pmod(F.shiftrightunsigned(key, 32), F.lit(CELLS))
        table = self._read_orders(df, log, "cells")
        target = F.col(self.names("target")).alias(self.names("cell_target"))
        renamed = table.select(F.col(self.names("id")).alias(own), target)
        joined = df.withColumn(own, cell.cast("long")).join(F.broadcast(renamed), own, "left")
        return joined.drop(own)

    def _read_orders(self, df: DataFrame, log: MoveLog, what: str) -> DataFrame:
        options = {"moves": what, "workers": log.n_workers, "elastic": log.elastic}
        return read_plan(df.sparkSession, log.place, self.names, **options)

    def _kinds(self, df: DataFrame) -> list[DataType]:
        return [field.dataType for field in df.select(*self.columns).schema]

    def _checked(self, df: DataFrame, null_numbers: bool) -> DataFrame:
        """Return the rows with their ids; rows fail whose keys Spark would mix up."""
        rows, kinds = self._with_ids(df), self._kinds(df)
        if has_floats(kinds):
            signed = key_text(self.columns, kinds, signed=True)
            minus_zero = signed != key_text(self.columns, kinds)
            rows = self._failing(rows, minus_zero, MINUS_ZERO)
        numbers = [
            column
            for column, kind in zip(self.columns, kinds, strict=True)
            if isinstance(kind, IntegralType | FloatType | DoubleType)
        ]
        if numbers and not null_numbers:
            any_null = reduce(or_, (column.isNull() for column in numbers))
            rows = self._failing(rows, any_null, NULL_NUMBER)
        return rows

    def _failing(self, df: DataFrame, which: Column, message: str) -> DataFrame:
        """Return rows that fail with a message where a condition holds."""
        id_ = self.names("id")
        failed = F.raise_error(F.lit(message)).cast("long")
        return df.withColumn(id_, F.when(which, failed).otherwise(F.col(id_)))

    def with_announcements(self, df: DataFrame) -> DataFrame:
        """Return rows of `moving`, with an announcement to the new worker for states that leave."""
        announced, to = self.names("announced"), self.names("to")
        row = F.struct(F.col(self.slot).alias("slot"), F.col(to).alias("to"))
        target = slot_column(self.grouping, F.col(announced), self.n_workers)
        announcement = F.struct(target.alias("slot"), F.lit(ANNOUNCED).alias("to"))
        both = F.array(row, announcement)
        copies = F.when(F.col(announced).isNull(), F.array(row)).otherwise(both)
        exploded = df.withColumn(announced, F.explode(copies))
        fields = {self.slot: "slot", to: "to"}
        return exploded.withColumns({n: F.col(announced)[f] for n, f in fields.items()})

    def with_orders(self, df: DataFrame) -> DataFrame:
        """Return rows of `moving` as operators get them: the user's columns, orders and slot.

        The orders for the key are one text, because each column takes time for each key.
        """
        orders = [self.names(what) for what in ("id", "to", "object", "key")]
        dropped = [self.names(what) for what in ("drawn", "announced")]
        joined, slot = self.names("facts"), self.names("place")
        last = {joined: F.concat_ws(",", *orders), slot: F.col(self.slot)}
        return (
            df.withColumns(last)
            .drop(*orders, *dropped, self.slot)
            .withColumnRenamed(slot, self.slot)
        )

    def over_all(self, df: DataFrame) -> DataFrame:
        """Return the rows with slots over all workers, whatever their key."""
        return self._with_slot(self._with_ids(df), self._all_targets())

    def by_hash(self, df: DataFrame) -> DataFrame:
        """Return the rows with slots for the workers where Spark's hash puts their keys."""
        no_targets = F.lit(None).cast("array<bigint>")
        return self._with_slot(self._with_ids(df), no_targets)

    def learned(self, df: DataFrame, strategy: Strategy) -> SplitPlan:
        """Return a plan for the rows of a batch, by a job that samples them."""
        empty = SplitPlan.empty(self.n_workers)
        observation = Observation(self.names, {"hot": plan_key(self.columns), "homes": self.home})
        # Only the plan must be the same for all tasks, so that the sample need not be repeatable.
        observed = observation.at(df.withColumn(self.names("drawn"), by_place()))
        (row,) = observed.agg(*observation.sketches(self.n_workers)).collect()
        if not row["records"]:
            return empty
        history = KeyHistory(self.n_workers, decay=0.0)
        history.add(BatchObservation.of(row, self.n_workers))
        return strategy.plan(history.measured(), empty)

    @property
    def home(self) -> Column:
        """The worker of a key by Spark's hash, the same in all windows."""
        return worker_column(self.columns, F.lit(0), self.n_workers)

    def _with_ids(self, df: DataFrame) -> DataFrame:
        """Return the rows with the ids of their keys in plans, and with random numbers."""
        # Columns of their own, as they are used in several places. The random numbers come first:
        # they are not compiled together with the rest, and rows are narrow here.
        return with_draws(df, self.names).withColumn(self.names("id"), plan_key(self.columns))

    def _with_slot(self, df: DataFrame, choices: Column) -> DataFrame:
        own, chosen = self.names("target"), self.names("targets")
        pick = F.floor(F.col(self.names("drawn")) * F.size(choices)).cast("int")
        target = F.element_at(choices, pick + 1)
        if len(self.grouping) > len(self.columns):
            target = F.coalesce(target, F.element_at(self._all_targets(), self.home + 1))
        slot = slot_column(self.grouping, F.col(own), self.n_workers)
        return df.withColumn(own, target).withColumn(self.slot, slot).drop(own, chosen)

    def _all_targets(self) -> Column:
        return F.lit(targets(self.n_workers).tolist())


def local_table(df: DataFrame, plan: SplitPlan, names: Names) -> DataFrame:
    """Return a plan as a DataFrame whose columns have hidden names."""
    return hidden(df.sparkSession.createDataFrame(plan_table(plan)), names)
