"""Spark and the simulator make the same decisions: the same worker for every record."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew import hash_keys
from unskew.routers import ROUTERS, Router, read_schemes
from unskew.spark import SLOT, Balancer
from unskew.state import WHOSE

WORKERS = 8
SCHEMES = {name: name for name in ROUTERS} | {
    # All parts of a scheme are used within a few hundred records.
    "greedy-d": "greedy-d:d=3",
    "d-choices": "d-choices:warm_up=30:capacity=20",
    "w-choices": "w-choices:warm_up=50",
    "dkg": "dkg:learning=400",
    "dstream": "dstream:threshold=2:decline=0.05",
    "fish": "fish:epoch=60:rate=50:counters=30",
    "waterline": "waterline:epoch=60:alarm=20",
}
SPEEDS: dict[str, list[float]] = dict.fromkeys(("consistent", "fish"), [1.0, 0.5] * 4)
"""The capacities of the workers, for schemes that use them."""
GROUPS = [list(SCHEMES)[start : start + 5] for start in range(0, len(SCHEMES), 5)]
STARTS = [3, 5, 2, 4]
"""The number of sources of each run of the query; each run has two batches."""

ORDER = [("source", "ascending"), ("id", "ascending")]
Workers = NDArray[np.int32]


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with files of skewed records; each file is a source in a batch."""
    settings = {
        "spark.sql.files.openCostInBytes": 2**27,
        "spark.sql.execution.arrow.maxRecordsPerBatch": 50,
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    root, rng = tmp_path_factory.mktemp("records"), np.random.default_rng(8)
    for file in range(2 * sum(STARTS)):
        ids = np.minimum(rng.zipf(1.3, 100 + 5 * file), 60) + 3 * (file // 10)
        keys = [None if n == 7 else f"key-{n}" for n in ids]
        path = root / f"{file:02}.parquet"
        pq.write_table(pa.table({"word": keys, "id": np.arange(len(ids))}), path)
        os.utime(path, (1_800_000_000 + file,) * 2)
    yield root
    for name in settings:
        spark.conf.unset(name)


def routed(df: DataFrame, schemes: list[str], checkpoint: Path | None = None) -> DataFrame:
    """Return records with the worker that each scheme chose."""
    df = df.withColumn("source", F.spark_partition_id())
    for name in schemes:
        place = None if checkpoint is None else str(checkpoint)
        balancer = Balancer(
            SCHEMES[name],
            routing="online",
            checkpoint=place,
            name=name,
            capacities=SPEEDS.get(name),
        )
        worker = F.pmod(F.hash("word", SLOT), F.lit(WORKERS))
        df = balancer.route(df, "word").withColumn(name, worker).drop(SLOT)
    return df


def sources(batch: pa.Table) -> dict[int, pa.Table]:
    """Return the records of each source in order."""
    batch = batch.sort_by(ORDER)
    numbers = np.unique(batch["source"].to_numpy()).tolist()
    return {source: batch.filter(pc.field("source") == source) for source in numbers}


def replayed(spec: str, batches: list[pa.Table]) -> Iterator[tuple[int, pa.Table, Workers]]:
    """Yield the records of each source in each batch, and the workers that routers choose."""
    (scheme,) = read_schemes(spec)
    given = dict(scheme.given)
    if scheme.name in SPEEDS:
        given["capacities"] = SPEEDS[scheme.name]
    routers: dict[int, Router] = {}
    for batch in batches:
        before = {source: routers[source].snapshot() for source in sorted(routers)}
        for source, records in sources(batch).items():
            router = scheme.router(WORKERS, source=source, **given)
            if source not in routers and before:
                another = list(before.values())[source % len(before)]
                router.restore({**another, WHOSE: np.array(repr(router))})
            router = routers.setdefault(source, router)
            yield source, records, router.route(hash_keys(records["word"]))


def check(schemes: list[str], batches: list[pa.Table]) -> None:
    for name in schemes:
        for source, records, workers in replayed(SCHEMES[name], batches):
            assert records[name].to_pylist() == workers.tolist(), (name, source)


@pytest.mark.parametrize("schemes", GROUPS, ids=" ".join)
def test_batch(spark: SparkSession, folder: Path, schemes: list[str]) -> None:
    records = spark.read.parquet(*(str(folder / f"{file:02}.parquet") for file in range(24, 28)))
    found = routed(records, schemes).toArrow()
    assert len(sources(found)) == 4
    check(schemes, [found])


@pytest.mark.parametrize("schemes", GROUPS, ids=" ".join)
def test_stream(spark: SparkSession, folder: Path, tmp_path: Path, schemes: list[str]) -> None:
    """The query is restarted several times, with more and with fewer sources; it fails once."""
    files = iter(sorted(folder.iterdir()))
    found: dict[int, pa.Table] = {}
    failed: dict[int, pa.Table] = {}
    (tmp_path / "in").mkdir()

    def collect(batch: DataFrame, number: int) -> None:
        found[number] = batch.toArrow()
        if number == 3 and not failed:
            failed[number] = found[number]
            raise RuntimeError("the sink is down")

    def run(n_sources: int) -> None:
        reader = spark.readStream.schema("word STRING, id LONG")
        reader = reader.option("maxFilesPerTrigger", n_sources)
        df = routed(reader.parquet(str(tmp_path / "in")), schemes, tmp_path / "checkpoint")
        writer = df.writeStream.foreachBatch(collect).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.start().awaitTermination()

    for n_sources in STARTS:
        for _ in range(2 * n_sources):
            shutil.copy2(next(files), tmp_path / "in")
        if n_sources == 5:
            with pytest.raises(StreamingQueryException, match="the sink is down"):
                run(n_sources)
        run(n_sources)

    batches = [found[number] for number in sorted(found)]
    assert [len(sources(batch)) for batch in batches] == [3, 3, 5, 5, 2, 2, 4, 4]
    assert sum(len(batch) for batch in batches) == pq.read_table(folder).num_rows
    assert failed[3].sort_by(ORDER).equals(found[3].sort_by(ORDER))
    check(schemes, batches)


def test_all_schemes_are_tried() -> None:
    assert SCHEMES.keys() == ROUTERS.keys()
    assert [name for group in GROUPS for name in group] == list(ROUTERS)
