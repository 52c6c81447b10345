"""No misplaced records: each row is on the worker that was chosen for it, in every operator."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from unskew.murmur import anchors, targets
from unskew.routers import make_router
from unskew.spark import SLOT, Balancer
from unskew.spark.placement.slots import partitions_of, slot_column, slots_for

WORKERS = 8
ROWS = "round LONG, source INT, id LONG, worker INT"
Operator = Callable[[DataFrame, Balancer], DataFrame]
ODD = "CASE n % 6 WHEN 0 THEN 'NaN' WHEN 1 THEN '-0.0' WHEN 2 THEN '0.0' WHEN 3 THEN '-Infinity'"
ODD += " WHEN 4 THEN 'Infinity' ELSE '1.5' END"
OTHER_NAN = "IF(n % 12 = 6, double('Infinity') - double('Infinity'), double({}))"

KEYS = {
    "string": "CASE n WHEN 0 THEN '' WHEN 1 THEN 'ключ 🗝' ELSE repeat(concat('k', n), n * n) END",
    "boolean": "n % 2 = 0",
    "tinyint": "CAST(n - 20 AS TINYINT)",
    "smallint": "CAST(n * 800 - 16000 AS SMALLINT)",
    "int": "CAST(n * 100000000 - 2000000000 AS INT)",
    "bigint": "(n - 20) * 450000000000000000",
    "decimal": "CAST(n / 8 AS DECIMAL(9, 3))",
    "wide_decimal": "CAST(concat('-12345678901234567890123456789012', n, '.57') AS DECIMAL(38, 2))",
    "date": "date_add(DATE'1900-01-01', CAST(n * 2000 AS INT))",
    "timestamp": "timestamp_micros(n * 123456789012345 - 2000000000000000)",
    "timestamp_ntz": "CAST(timestamp_micros(n * 123456789012345) AS TIMESTAMP_NTZ)",
    "binary": "unhex(repeat(hex(n), CAST(n AS INT)))",
    "float": f"CAST({OTHER_NAN.format(ODD)} AS FLOAT)",
    "double": OTHER_NAN.format(ODD),
    "months": "make_ym_interval(0, CAST(n AS INT))",
    "days": "make_dt_interval(CAST(n AS INT), 5)",
    "struct": f"named_struct('a', IF(n % 3 = 0, NULL, n % 5), 'b', {OTHER_NAN.format(ODD)})",
    "array": f"array({OTHER_NAN.format(ODD)}, NULL, n % 3)",
    "deep": "array(named_struct('a', array(concat('x', n % 7), NULL)), NULL)",
    "empty": "IF(n % 2 = 0, array(), array(CAST(n AS STRING)))",
}
COMPOSITES = [
    ("string", "int"),
    ("bigint", "bigint_2"),
    ("double", "wide_decimal", "struct"),
    ("boolean", "array", "binary"),
    ("struct.b", "date"),
]
CASES = [*((name,) for name in KEYS), *COMPOSITES]


def numbers(*types: type[np.signedinteger[Any]]) -> list[Any]:
    """Return random numbers of NumPy types, including the least and the greatest."""
    rng, arrays = np.random.default_rng(11), []
    for kind in types:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        drawn = rng.integers(low, high, 4000, dtype=kind, endpoint=True)
        arrays.append(np.concatenate([drawn, np.array([low, high, 0, 1, -1], kind)]))
    return arrays


def of_target(n_workers: int) -> Column:
    return slot_column([F.col("key")], F.col("target"), n_workers)


def test_expression_equals_kernel(spark: SparkSession) -> None:
    """Slots and partitions agree in the JVM and in the kernel, for several numbers of workers."""
    keys, others, draws = numbers(np.int64, np.int32, np.int64)
    tables = []
    for n in (1, 2, 7, 8, 200):
        columns = {"key": keys, "other": others, "worker": (draws % n).astype(np.int32)}
        columns |= {"target": targets(n)[draws % n], "n": np.full(len(keys), n, np.int32)}
        tables.append(pa.table(columns))
    df = spark.createDataFrame(pa.concat_tables(tables)).withColumn("hash", F.hash("key"))
    slot = F.coalesce(*(F.when(F.col("n") == n, of_target(n)) for n in (1, 2, 7, 8, 200)))
    df = df.withColumn(SLOT, slot)
    for name in (SLOT, "other"):
        df = df.withColumn(f"of_{name}", F.pmod(F.hash("key", name), "n"))
    for (n,), part in df.toArrow().to_pandas().groupby(["n"]):
        hashes, workers = part["hash"].to_numpy(), part["worker"].to_numpy()
        slots = slots_for(hashes, workers, anchors(n))
        assert np.array_equal(slots, part[SLOT])
        assert np.array_equal(part["of_slot"], workers)
        home = partitions_of(hashes, np.zeros_like(hashes), n)
        assert np.array_equal(slots == 0, workers == home)
        assert np.array_equal(partitions_of(hashes, slots, n), workers)
        others = part["other"].to_numpy()
        assert np.array_equal(partitions_of(hashes, others, n), part["of_other"])


@pytest.fixture(scope="module")
def typed(spark: SparkSession) -> DataFrame:
    """Return rows with a key of each type; one in eleven is null, in different rows by type."""
    rows = spark.range(0, 720, 1, 3).withColumn("n", F.col("id") % 40)
    keys = enumerate((KEYS | {"bigint_2": KEYS["bigint"]}).items())
    nulls = (f"IF((id + {7 * i}) % 11 = 0, NULL, {key}) AS {name}" for i, (name, key) in keys)
    return rows.selectExpr("id", *nulls)


@pytest.fixture(scope="module")
def hashed(typed: DataFrame) -> pd.DataFrame:
    """Return the sources of the rows of `typed`, and the 64-bit keys that routers see."""
    keys = (F.xxhash64(*names).alias("-".join(names)) for names in CASES)
    return typed.select("id", F.spark_partition_id().alias("source"), *keys).toArrow().to_pandas()


@pytest.mark.parametrize("keys", CASES, ids="-".join)
def test_rows_are_grouped_where_the_router_said(
    typed: DataFrame, hashed: pd.DataFrame, keys: tuple[str, ...]
) -> None:
    name = "-".join(keys)
    routed = Balancer("pkg").route(typed, *keys)
    groups = routed.groupBy(*keys, SLOT).agg(F.collect_list("id").alias("id"))
    found = groups.select("id", F.spark_partition_id().alias("worker")).toArrow().to_pandas()
    rows = found.explode("id").sort_values("id")
    assert rows["id"].tolist() == list(range(len(hashed)))
    wanted = np.empty(len(hashed), np.int32)
    for source, part in hashed.groupby("source"):
        router = make_router("pkg", WORKERS, source=source)
        wanted[part["id"]] = router.route(part[name].to_numpy())
    assert rows["worker"].tolist() == wanted.tolist()
    if name in ("float", "double"):
        # Spark hashes and groups -0.0 as 0.0, and all NaNs as one.
        assert len(found) == len(set(zip(hashed[name], wanted, strict=True)))


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with three rounds of three files; the last one closes all windows."""
    # A file is a source.
    spark.conf.set("spark.sql.files.openCostInBytes", 2**27)
    root, rng = tmp_path_factory.mktemp("events"), np.random.default_rng(2)
    for file in range(9):
        size, moment = 40 + 7 * file, 1_800_000_000 + 100 * file
        seconds = moment + np.arange(size) + (86_400 if file >= 6 else 0)
        table = {
            "key": [None if n == 2 else f"key-{n}" for n in np.minimum(rng.zipf(1.4, size), 9)],
            "id": 1000 * file + np.arange(size),
            "time": pa.array(seconds * 10**6, pa.timestamp("us", "UTC")),
            "round": np.full(size, file // 3),
        }
        pq.write_table(pa.table(table), root / f"{file}.parquet")
        os.utime(root / f"{file}.parquet", (moment, moment))
    yield root
    spark.conf.unset("spark.sql.files.openCostInBytes")


def grouped_in_batch(events: DataFrame, balancer: Balancer) -> DataFrame:
    routed = balancer.route(events.withColumn("round", F.lit(0)), "key")
    return rows_and_worker(routed.groupBy("key", SLOT))


def applied_in_batch(events: DataFrame, balancer: Balancer) -> DataFrame:
    routed = balancer.route(events.withColumn("round", F.lit(0)), "key")
    return routed.groupBy("key", SLOT).applyInPandas(tagger(), ROWS)


def windowed(events: DataFrame, balancer: Balancer) -> DataFrame:
    windows = events.withColumn("window", F.window("time", "5 minutes"))
    return rows_and_worker(
        balancer.route(windows, "key", before=["window"]).groupBy("window", "key", SLOT)
    )


def applied(events: DataFrame, balancer: Balancer) -> DataFrame:
    tag = tagger()

    def count(key: Any, parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        state.update((state.get[0] + 1 if state.exists else 1,))
        return map(tag, parts)

    groups = balancer.route(events, "key").groupBy("key", SLOT)
    return groups.applyInPandasWithState(count, ROWS, "n LONG", "append", "NoTimeout")


def transformed(events: DataFrame, balancer: Balancer) -> DataFrame:
    tag = tagger()

    class Counter(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.n = handle.getValueState("n", "n LONG")

        def handleInputRows(  # noqa: N802
            self, key: Any, rows: Iterator[pd.DataFrame], timer_values: Any
        ) -> Iterator[pd.DataFrame]:
            (n,) = self.n.get() or (0,)
            self.n.update((n + 1,))
            return map(tag, rows)

    groups = balancer.route(events, "key").groupBy("key", SLOT)
    return groups.transformWithStateInPandas(Counter(), ROWS, "append", "none")


def joined(events: DataFrame, balancer: Balancer) -> DataFrame:
    """Join with a row for each key and worker."""
    left = balancer.route(events.where("key IS NOT NULL"), "key")
    every = F.explode(F.lit(targets(WORKERS).tolist()))
    keys = events.where("id = 0").select(F.expr("explode(sequence(1, 9))").alias("n"))
    keys = keys.select(F.format_string("key-%d", "n").alias("key"), every.alias("target"))
    right = keys.withColumn(SLOT, of_target(WORKERS))
    return left.join(right, ["key", SLOT]).withColumn("worker", F.spark_partition_id())


def deduplicated(events: DataFrame, balancer: Balancer) -> DataFrame:
    rows = balancer.route(events, "key", "id").dropDuplicates(["key", "id", SLOT])
    return rows.withColumn("worker", F.spark_partition_id())


def deduplicated_in_time(events: DataFrame, balancer: Balancer) -> DataFrame:
    rows = balancer.route(events, "key", "id").dropDuplicatesWithinWatermark(["key", "id", SLOT])
    return rows.withColumn("worker", F.spark_partition_id())


def rows_and_worker(groups: GroupedData) -> DataFrame:
    lists = groups.agg(F.collect_list(F.struct("round", "source", "id")).alias("rows"))
    return lists.select(F.inline("rows"), F.spark_partition_id().alias("worker"))


def tagger() -> Callable[[pd.DataFrame], pd.DataFrame]:
    """Return a function that emits its worker; it is local, as workers lack this module."""

    def tag(rows: pd.DataFrame) -> pd.DataFrame:
        context = TaskContext.get()
        assert context is not None
        return rows[["round", "source", "id"]].assign(worker=context.partitionId())

    return tag


BATCH: list[Operator] = [grouped_in_batch, applied_in_batch]
STREAMING: list[Operator] = [
    windowed,
    applied,
    transformed,
    joined,
    deduplicated,
    deduplicated_in_time,
]


@pytest.mark.parametrize("operator", [*BATCH, *STREAMING])
def test_operators_run_where_the_router_said(
    spark: SparkSession, folder: Path, tmp_path: Path, operator: Operator
) -> None:
    balancer = Balancer("shuffle", routing="online", checkpoint=str(tmp_path))
    batch = spark.read.parquet(str(folder))
    if operator in BATCH:
        found = operator(batch.withColumn("source", F.spark_partition_id()), balancer)
    else:
        reader = spark.readStream.schema(batch.schema).option("maxFilesPerTrigger", 3)
        events = reader.parquet(str(folder)).withWatermark("time", "1 minute")
        events = events.withColumn("source", F.spark_partition_id())
        name = operator.__name__
        out = operator(events, balancer).writeStream.format("memory").queryName(name)
        out = out.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        out.start().awaitTermination()
        found = spark.table(name)
    rows = found.select("round", "source", "id", "worker").toArrow().to_pandas()
    events = pq.read_table(folder).to_pandas()
    if operator is joined:
        events = events.dropna()
    if operator is windowed:
        # The last round is still open.
        events, rows = (df[df["round"] < 2] for df in (events, rows))
    assert len(rows) == len(events)
    sources = rows.sort_values(["round", "id"]).groupby("source")["worker"]
    assert len(sources) == (9 if operator in BATCH else 3)
    for source, workers in sources:
        router = make_router("shuffle", WORKERS, source=source)
        assert workers.tolist() == router.route(np.zeros(len(workers), np.uint64)).tolist()
