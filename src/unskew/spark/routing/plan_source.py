"""The plan as a table that a streaming query joins with; every micro-batch reads it again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from unskew.murmur import targets
from unskew.sealed import SealError
from unskew.spark.placement.names import Names
from unskew.spark.plans.schedule import Schedule, ScheduleError
from unskew.spark.plans.split_plan import PlanFolder, SplitPlan
from unskew.spark.runtime.places import Place
from unskew.spark.runtime.tasks import freeze_imports, micro_batch
from unskew.spark.state.move_log import MoveLog

PLAN_SCHEMA = "id bigint, targets array<bigint>"
TERMS_SCHEMA = (
    "id bigint, serving array<struct<since: bigint, until: bigint, targets: array<bigint>>>"
)
_TARGET = "target bigint, to int, announced bigint"
ORDERS_SCHEMA = f"id bigint, {_TARGET}, known array<struct<key: string, {_TARGET}, object: string>>"
CELLS_SCHEMA = "id bigint, target bigint"


def plan_table(plan: SplitPlan) -> pa.Table:
    """Return a plan as a table: each key with the targets of its workers."""
    starts = [0, *(i for i in range(1, len(plan.keys)) if plan.keys[i] != plan.keys[i - 1])]
    starts = starts if len(plan.keys) else []
    lists = pa.ListArray.from_arrays(
        pa.array([*starts, len(plan.keys)], pa.int32()),
        pa.array(targets(plan.n_workers)[plan.workers]),
    )
    return pa.table({"id": pa.array(plan.keys[starts].view("int64")), "targets": lists})


class PlanTable(DataSource):
    """The data source of plans and orders, in Python, so that it needs no JAR."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "unskew_plan"

    def schema(self) -> str:
        """Return the schema of plans, of plans with their times, or of orders, by the options."""
        if "horizon" in self.options:
            return TERMS_SCHEMA
        if "moves" in self.options:
            return {"keys": ORDERS_SCHEMA, "cells": CELLS_SCHEMA}[self.options["moves"]]
        return PLAN_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a place's plans or, if states move, of its orders."""
        place = Place(self.options["root"], self.options["checkpoint"], self.options["owner"])
        if "horizon" in self.options:
            return _TermsReader(place, Schedule(place.root, int(self.options["horizon"])))
        if "moves" in self.options:
            elastic = self.options["elastic"] == "True"
            log = MoveLog(place, int(self.options["workers"]), elastic)
            return _OrdersReader(log, self.options["moves"] == "cells")
        return _PlanReader(place)


class _PlanReader(DataSourceReader):
    def __init__(self, place: Place) -> None:
        self.place = place

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        self.place.claim()
        plan = PlanFolder(self.place.plans).latest()
        if plan is not None:
            yield from plan_table(plan).to_batches()


class _TermsReader(DataSourceReader):
    def __init__(self, place: Place, schedule: Schedule) -> None:
        self.place, self.schedule = place, schedule

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        self.place.claim()
        newest, serving = PlanFolder(self.place.plans).latest(), self.schedule.serving
        if newest is not None:
            serving.save(newest, renumber=False)
        terms = self.schedule.terms(micro_batch(), newest.version if newest else 0)
        serving.remove_old(used={term.version for term in terms})
        plans = {term.version: targets_of(serving, term.version) for term in terms}
        keys = sorted({key for plan in plans.values() for key in plan})
        rows = [
            [
                {"since": t.since, "until": t.until, "targets": plans[t.version].get(key)}
                for t in terms
            ]
            for key in keys
        ]
        kind = pa.struct(
            {"since": pa.int64(), "until": pa.int64(), "targets": pa.list_(pa.int64())}
        )
        ids = pa.array(np.array(keys, np.uint64).view(np.int64))
        yield pa.record_batch({"id": ids, "serving": pa.array(rows, pa.list_(kind))})


def targets_of(folder: PlanFolder, version: int) -> dict[int, list[int]]:
    """Return the keys of a plan with their targets; empty for version 0."""
    if not version:
        return {}
    try:
        table = plan_table(folder.load(version))
    except (SealError, OSError) as error:
        raise ScheduleError(
            f"plan {folder.root}/{version} is in use, but cannot be read: {error}; "
            "restore that file, and start the query again"
        ) from None
    keys = table["id"].to_numpy().view(np.uint64).tolist()
    return dict(zip(keys, table["targets"].to_pylist(), strict=True))


class _OrdersReader(DataSourceReader):
    def __init__(self, log: MoveLog, cells: bool) -> None:
        self.log, self.cells = log, cells

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        self.log.place.claim()
        orders = self.log.orders(micro_batch())
        yield from (orders.by_cell() if self.cells else orders.by_id()).to_batches()


def read_plan(spark: SparkSession, place: Place, names: Names, **options: object) -> DataFrame:
    """Return the table of the newest plan of a place, which every micro-batch reads again.

    Its columns have hidden names. With ``horizon``, it has the keys of all plans in use, each with
    its targets under every plan and the times that the plan holds for. With ``moves="keys"``,
    ``workers`` and ``elastic``, it has the orders of the batch for keys whose states move; with
    ``moves="cells"`` the targets of new keys, by cell.
    """
    spark.dataSource.register(PlanTable)
    reader = spark.read.format("unskew_plan")
    for name, value in (vars(place) | options).items():
        reader = reader.option(name, str(value))
    return hidden(reader.load(), names)


def hidden(table: DataFrame, names: Names) -> DataFrame:
    """Return a table with hidden names for its columns."""
    return table.select(*(F.col(name).alias(names(name)) for name in table.columns))
