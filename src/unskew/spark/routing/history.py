"""Old records of streams, from which a first plan is made before a query starts."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame

from unskew.spark.control.hot_keys import Strategy
from unskew.spark.placement.keys import ColumnOrName, key_columns
from unskew.spark.placement.names import Names
from unskew.spark.plans.split_plan import PlanFolder
from unskew.spark.routing.planned import PlannedRoute

log = logging.getLogger("unskew.spark")


@dataclass(frozen=True)
class History:
    """Tables of old records, by the names of their key columns."""

    tables: dict[tuple[str, ...], tuple[DataFrame, list[Column]]] = field(default_factory=dict)

    def add(self, df: DataFrame, keys: Sequence[ColumnOrName]) -> None:
        """Add a table; it replaces an earlier one with the same keys."""
        if df.isStreaming:
            raise ValueError(
                "the history must be a table, and this is a stream: read it with spark.read"
            )
        columns = key_columns(df, keys)
        self.tables[_names(df.select(*columns))] = df, columns

    def save_first_plan(
        self, folder: PlanFolder, keys: DataFrame, strategy: Strategy, n_workers: int
    ) -> None:
        """Save a plan for the keys of a stream, by a job that samples the table with these keys.

        Nothing happens if there is no such table, or if the folder has a plan for these workers.

        Parameters
        ----------
        folder
            The folder of the stream's plans.
        keys
            The stream's key columns, with the names that the user knows.
        strategy, n_workers
            The strategy that makes the plan, and the number of shuffle partitions.
        """
        latest = folder.latest()
        if not self.tables or (latest is not None and latest.n_workers == n_workers):
            return
        names = _names(keys)
        if names not in self.tables:
            known = "; ".join(", ".join(primed) for primed in self.tables)
            log.warning("%s starts without a plan: primed are %s", ", ".join(names), known)
            return
        df, columns = self.tables[names]
        for own, other in zip(df.select(*columns).schema, keys.schema, strict=True):
            types = own.dataType.simpleString(), other.dataType.simpleString()
            if types[0] != types[1]:
                raise ValueError(
                    f"{own.name} is of type {types[0]} in the history and of type {types[1]} in "
                    f"the stream, and Spark hashes them differently: cast the history's column "
                    f"to {types[1]} before prime(...)"
                )
        hidden = Names.free_in(df)
        route = PlannedRoute(columns, columns, n_workers, hidden, hidden("slot"))
        plan = route.learned(df, strategy)
        if plan.version:
            folder.save(plan)


def _names(keys: DataFrame) -> tuple[str, ...]:
    return tuple(name.casefold() for name in keys.columns)
