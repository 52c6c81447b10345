"""Results arrive in their sink exactly once, also when a query continues later."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.apps import APPS
from unskew.apps.run import Job, run
from unskew.apps.sinks import flattened, open_sink
from unskew.spark import Balancer
from unskew.workloads import Zipf

RECORDS = 3000
STREAM = f"zipf:z=1.5,keys=40,records={RECORDS},seed=1"


def exact() -> pd.Series:
    """Return the average prices of the stream, computed by pandas."""
    ids = np.concatenate([*Zipf(1.5, 40, RECORDS, seed=1).ids(RECORDS)])
    tables = [APPS["vwap"].table(ids[i : i + 500], i) for i in range(0, RECORDS, 500)]
    trades = pd.concat(table.to_pandas() for table in tables)
    trades["paid"] = trades.price * trades["size"]
    totals = trades.groupby("symbol")[["paid", "size"]].sum()
    return totals.paid / totals["size"]


def test_a_database_has_the_latest_row_of_each_key(spark: SparkSession, tmp_path: Path) -> None:
    url = f"jdbc:derby:{tmp_path / 'database'};create=true"
    job = Job(APPS["vwap"], STREAM, batch=1000)
    report = run(spark, job, "w-choices", sink=f"{url}#prices")
    assert report["records"] == RECORDS
    assert [batch["records"] for batch in report["batches"]] == [1000, 1000, 1000]
    found = pd.DataFrame(spark.read.jdbc(url, "prices").toPandas()).set_index("symbol")
    expected = exact()
    assert len(found) == len(expected)
    pd.testing.assert_series_equal(
        found.vwap[expected.index], expected, check_names=False, rtol=1e-12
    )


def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    job = Job(APPS["vwap"], STREAM, batch=1000)
    checkpoint, sink = tmp_path / "checkpoint", f"parquet:{tmp_path / 'prices'}"
    first = run(spark, job, "dstream", sink=sink, checkpoint=checkpoint, seconds=0.0)
    rest = run(spark, job, "dstream", sink=sink, checkpoint=checkpoint)
    assert first["stopped"] == "time"
    assert rest["stopped"] == "end"
    found = spark.read.parquet(str(tmp_path / "prices"))
    grouped = found.groupBy("symbol").agg(F.max_by("vwap", "batch").alias("vwap"))
    latest = pd.DataFrame(grouped.toPandas())
    expected = exact()
    assert sorted(latest.symbol) == sorted(expected.index)
    np.testing.assert_allclose(latest.set_index("symbol").vwap[expected.index], expected)
    with pytest.raises(ValueError, match="belongs to another stream"):
        run(spark, Job(APPS["vwap"], "zipf:z=1", batch=1000), "key", checkpoint=checkpoint)


def test_results_can_be_persisted(spark: SparkSession, tmp_path: Path) -> None:
    """Spark fails to persist the result of a sorted aggregation in foreachBatch; ours works."""
    job = Job(APPS["vwap"], STREAM, batch=RECORDS)
    balance = Balancer("w-choices", checkpoint=str(tmp_path))
    counts = []

    def twice(batch: DataFrame, _: int) -> None:
        batch.persist()
        counts.extend([batch.count(), batch.select("symbol").distinct().count()])
        batch.unpersist()

    key_costs = job.app.query(job.source(spark, tmp_path).rows, balance)
    writer = key_costs.writeStream.foreachBatch(twice).outputMode("update")
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    writer.start().awaitTermination()
    assert counts == [len(exact())] * 2


def test_a_null_key_has_one_row_too(spark: SparkSession, tmp_path: Path) -> None:
    url = f"jdbc:derby:{tmp_path / 'database'};create=true"
    write = open_sink(f"{url}#counts", ["id"])  # Derby does not accept null strings from Spark
    assert not isinstance(write, str)
    for n in (1, 2):
        rows = f"SELECT * FROM VALUES (NULL, {n}), (0, {10 * n}), ({n}, 5) AS t(id, n)"
        write(spark.sql(rows), n)
    found = {(row["id"], row["n"]) for row in spark.read.jdbc(url, "counts").collect()}
    assert found == {(None, 2), (0, 20), (1, 5), (2, 5)}


def test_nested_columns_become_flat(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT struct(timestamp'2026-01-01' AS start, timestamp'2026-01-02' AS end) AS window, "
        "array(struct(3 AS n)) AS top, 1 AS x"
    )
    flat = flattened(rows)
    assert flat.columns == ["window_start", "window_end", "top", "x"]
    assert flat.first()["top"] == '[{"n":3}]'  # type: ignore[index]


def test_a_database_that_fails_says_why(spark: SparkSession) -> None:
    job = Job(APPS["vwap"], STREAM, batch=3000)
    with pytest.raises(RuntimeError, match=r"the query failed: .*Database '/no/where' not found"):
        run(spark, job, "key", sink="jdbc:derby:/no/where#prices")


@pytest.mark.parametrize(
    "sink", ["", "postgres", "parquet:", "kafka:x", "kafka://host:1", "jdbc:x", "jdbc:x#a;b"]
)
def test_unknown_sinks_are_refused(sink: str) -> None:
    with pytest.raises(ValueError, match=r"sink"):
        open_sink(sink, ["key"])


def test_a_password_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    for sink in ("jdbc:postgresql://db/x?password=secret", "postgresql://me:secret@db/x"):
        with pytest.raises(ValueError, match="sink") as refused:
            open_sink(sink, ["key"])
        assert "secret" not in str(refused.value)
    with pytest.raises(ValueError, match="variable NO_SUCH of the sink is not set"):
        open_sink("jdbc:postgresql://db/x?password=${NO_SUCH}#t", ["key"])
    monkeypatch.setenv("WITH_HASH", "secret#1")
    open_sink("jdbc:postgresql://db/x?password=${WITH_HASH}#t", ["key"])
