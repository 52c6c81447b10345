"""The plan as a table that a streaming query joins with: read anew for every micro-batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from unskew.murmur import targets
from unskew.sealed import SealError
from unskew.spark.moving import SINCE, STAY, TO
from unskew.spark.observed import ID
from unskew.spark.plans import PlanFolder, SplitPlan
from unskew.spark.schedule import Schedule, ScheduleError
from unskew.spark.tasks import micro_batch
from unskew.spark.whereabouts import MoveLog, Order

TARGETS, HERALDED, SERVING = "__unskew_targets", "__unskew_heralded", "__unskew_serving"
SCHEMA = f"{ID} bigint, {TARGETS} array<bigint>"
TERMS = (
    f"{ID} bigint, {SERVING} array<struct<since: bigint, until: bigint, targets: array<bigint>>>"
)
MOVING = f"{SCHEMA}, {TO} int, {HERALDED} bigint, {SINCE} bigint"


def plan_table(plan: SplitPlan) -> pa.Table:
    """Return the rows of a plan: each key with its workers as targets."""
    first = [0, *(i for i in range(1, len(plan.keys)) if plan.keys[i] != plan.keys[i - 1])]
    first = first if len(plan.keys) else []
    lists = pa.ListArray.from_arrays(
        pa.array([*first, len(plan.keys)], pa.int32()),
        pa.array(targets(plan.n_workers)[plan.workers]),
    )
    return pa.table({ID: pa.array(plan.keys[first].view("int64")), TARGETS: lists})


class PlanTable(DataSource):
    """The newest plan in a folder, as a data source that needs no JAR."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "unskew_plan"

    def schema(self) -> str:
        """Return keys and targets; what to do with states if these move; or when plans hold."""
        if "schedule" in self.options:
            return TERMS
        return MOVING if "moves" in self.options else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the folder of the option ``path``; states move by ``moves``."""
        path, moves = self.options["path"], self.options.get("moves")
        if "schedule" in self.options:
            return _TermsReader(
                path, Schedule(self.options["schedule"], int(self.options["horizon"]))
            )
        if moves is None:
            return _PlanReader(path)
        return _OrdersReader(path, moves, int(self.options["workers"]), "cells" in self.options)


class _PlanReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        plan = PlanFolder(self.path).latest()
        if plan is not None:
            yield from plan_table(plan).to_batches()


class _TermsReader(DataSourceReader):
    def __init__(self, path: str, schedule: Schedule) -> None:
        self.path, self.schedule = path, schedule

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        newest, serving = PlanFolder(self.path).latest(), self.schedule.serving
        if newest is not None:
            serving.keep(newest)
        terms = self.schedule.terms(micro_batch(), newest.version if newest else 0)
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
        yield pa.record_batch({ID: ids, SERVING: pa.array(rows, pa.list_(kind))})


def targets_of(folder: PlanFolder, version: int) -> dict[int, list[int]]:
    """Return the keys of a plan with their targets; none for version 0."""
    if not version:
        return {}
    try:
        table = plan_table(folder.load(version))
    except (SealError, OSError) as error:
        raise ScheduleError(
            f"plan {folder.root}/{version} serves windows, but cannot be read: {error}; restore "
            "that file, and start the query again"
        ) from None
    keys = table[ID].to_numpy().view(np.uint64).tolist()
    return dict(zip(keys, table[TARGETS].to_pylist(), strict=True))


def read_terms(spark: SparkSession, path: str, schedule: Schedule) -> DataFrame:
    """Return the table of when which plan holds, for each key of any plan still in use."""
    spark.dataSource.register(PlanTable)
    reader = spark.read.format("unskew_plan").option("path", path)
    return reader.option("schedule", schedule.root).option("horizon", schedule.horizon_us).load()


class _OrdersReader(DataSourceReader):
    def __init__(self, path: str, moves: str, n_workers: int, cells: bool) -> None:
        self.path, self.moves, self.n_workers, self.cells = path, moves, n_workers, cells

    def wanted(self) -> dict[int, int]:
        plan = PlanFolder(self.path).latest()
        if plan is None:
            return {}
        return dict(zip(plan.keys.tolist(), plan.workers.tolist(), strict=True))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        found, homes = MoveLog(self.moves).orders(micro_batch(), self.wanted, self.n_workers)
        orders = [*found.values()]
        if self.cells:
            both = zip(homes.first_cells.tolist(), homes.now_cells.tolist(), strict=True)
            orders = [
                Order(cell, first, now) for cell, (first, now) in enumerate(both) if first != now
            ]
        goal = targets(self.n_workers).tolist()
        if orders:
            yield pa.record_batch(
                {
                    ID: pa.array(np.array([o.key for o in orders], np.uint64).view(np.int64)),
                    TARGETS: pa.array([[goal[o.worker]] for o in orders]),
                    TO: pa.array([o.to for o in orders], pa.int32()),
                    HERALDED: pa.array(
                        [None if o.to == STAY else goal[o.to] for o in orders], pa.int64()
                    ),
                    SINCE: pa.array([o.since for o in orders]),
                }
            )


def read_orders(
    spark: SparkSession, path: str, moves: str, n_workers: int, cells: bool = False
) -> DataFrame:
    """Return the table of what to do with keys in a micro-batch, and where their rows go.

    ``path`` is the folder of plans, ``moves`` that of `MoveLog`. With ``cells`` it is the table of
    cells of keys whose workers are not those of the beginning.
    """
    spark.dataSource.register(PlanTable)
    reader = spark.read.format("unskew_plan").option("path", path).option("moves", moves)
    reader = reader.option("workers", n_workers)
    return (reader.option("cells", "true") if cells else reader).load()


def read_plan(spark: SparkSession, path: str) -> DataFrame:
    """Return the table of the newest plan, which is read anew whenever it is used."""
    spark.dataSource.register(PlanTable)
    return spark.read.format("unskew_plan").option("path", path).load()
