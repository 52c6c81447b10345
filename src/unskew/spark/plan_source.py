"""The plan as a table that a streaming query joins with: read anew for every micro-batch."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from unskew.murmur import targets
from unskew.spark.observed import ID
from unskew.spark.plans import PlanFolder, SplitPlan

TARGETS = "__unskew_targets"
SCHEMA = f"{ID} bigint, {TARGETS} array<bigint>"


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
        """Return keys and targets."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads the folder of the option ``path``."""
        return _PlanReader(self.options["path"])


class _PlanReader(DataSourceReader):
    def __init__(self, path: str) -> None:
        self.path = path

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        plan = PlanFolder(self.path).latest()
        if plan is not None:
            yield from plan_table(plan).to_batches()


def read_plan(spark: SparkSession, path: str) -> DataFrame:
    """Return the table of the newest plan, which is read anew whenever it is used."""
    spark.dataSource.register(PlanTable)
    return spark.read.format("unskew_plan").option("path", path).load()
