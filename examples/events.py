"""The data of the examples: clicks of users, half of them by one user."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def session() -> SparkSession:
    """Return a small Spark session in this process."""
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 4)
    return builder.config("spark.ui.enabled", "false").getOrCreate()


def clicks(spark: SparkSession, rows: int = 2000) -> DataFrame:
    """Return a batch of clicks."""
    n = F.col("id")
    user = F.when(n % 2 == 0, F.lit("ann")).otherwise(F.format_string("user-%d", n % 97))
    time = F.timestamp_seconds(F.lit(1_700_000_000) + n)
    url = F.format_string("/page/%d", n % 13)
    return spark.range(rows).select(user.alias("user"), time.alias("time"), url.alias("url"))


def stream(spark: SparkSession) -> DataFrame:
    """Return the clicks as a stream of files."""
    folder = mkdtemp()
    clicks(spark).repartition(4).write.parquet(f"{folder}/clicks")
    schema = clicks(spark).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 2)
    return reader.parquet(f"{folder}/clicks").withWatermark("time", "1 hour")


def results(df: DataFrame, checkpoint: str, mode: str) -> list[tuple[object, ...]]:
    """Run a stream to its end; return the last row of each key, sorted."""
    latest: dict[object, tuple[object, ...]] = {}

    def collect(batch: DataFrame, number: int) -> None:
        latest.update({row[0]: tuple(row) for row in batch.collect()})

    writer = df.writeStream.foreachBatch(collect).outputMode(mode).trigger(availableNow=True)
    writer.option("checkpointLocation", checkpoint).start().awaitTermination()
    return sorted(latest.values(), key=str)


def new_checkpoint() -> str:
    """Return a new folder for the checkpoint of a query."""
    return str(Path(mkdtemp()) / "checkpoint")
