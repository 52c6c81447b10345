"""The plan as a table that a streaming query joins with: read anew for every micro-batch."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from unskew.murmur import targets
from unskew.spark.exports import Exports
from unskew.spark.observed import ID
from unskew.spark.plans import PlanFolder, SplitPlan
from unskew.spark.tasks import micro_batch

TARGETS, ORIGINS = "__unskew_targets", "__unskew_origins"
SCHEMA = f"{ID} bigint, {TARGETS} array<bigint>, {ORIGINS} array<bigint>"


def plan_table(plan: SplitPlan, settled: Collection[int] = ()) -> pa.Table:
    """Return the rows of a plan: each key with its workers as targets.

    Keys whose state may be elsewhere also have the workers that it may be on, unless they have
    settled.
    """
    of_workers = targets(plan.n_workers).tolist()
    now: dict[int, list[int]] = {}
    for key, worker in zip(plan.keys.tolist(), plan.workers.tolist(), strict=True):
        now.setdefault(key, []).append(of_workers[worker])
    before: dict[int, list[int]] = {}
    for key, worker in zip(plan.moved.tolist(), plan.origins.tolist(), strict=True):
        if key not in settled:
            before.setdefault(key, []).append(of_workers[worker])
    keys = [*now, *(key for key in before if key not in now)]
    lists = pa.list_(pa.int64())
    return pa.table(
        {
            ID: pa.array(np.array(keys, np.uint64).view(np.int64)),
            TARGETS: pa.array([now.get(key) for key in keys], lists),
            ORIGINS: pa.array([before.get(key) for key in keys], lists),
        }
    )


class PlanTable(DataSource):
    """The newest plan in a folder, as a data source that needs no JAR."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "unskew_plan"

    def schema(self) -> str:
        """Return keys and targets."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the folder of the option ``path``; ``exports`` if state moves."""
        return _PlanReader(self.options["path"], self.options.get("exports"))


class _PlanReader(DataSourceReader):
    def __init__(self, path: str, exports: str | None) -> None:
        self.path, self.exports = path, exports

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        settled: set[int] = set()
        if self.exports is None:
            plan = PlanFolder(self.path).latest()
        else:
            batch = micro_batch()
            plan, since = PlanFolder(self.path).in_force(batch)
            # All places of a key answered in the first batch that had rows of it.
            settled = {found.plan_key for found in Exports(self.exports).since(since, batch)}
        if plan is not None:
            yield from plan_table(plan, settled).to_batches()


def read_plan(spark: SparkSession, path: str, exports: str | None = None) -> DataFrame:
    """Return the table of the newest plan, which is read anew whenever it is used.

    Where state moves, by way of a folder of exports, a micro-batch keeps the plan that it had when
    it was first tried.
    """
    spark.dataSource.register(PlanTable)
    reader = spark.read.format("unskew_plan").option("path", path)
    return (reader if exports is None else reader.option("exports", exports)).load()
