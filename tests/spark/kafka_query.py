"""Balanced totals of a Kafka topic, while its broker and the query are restarted.

Usage: python kafka_query.py FOLDER; prints the results as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from kafka_broker import Broker, connector_jars
from unskew.apps.run import Job, run
from unskew.apps.vwap import VWAP
from unskew.spark import Balancer

EVENTS, TRADES, PRICES = "events", "trades", "prices"
PARTITIONS = 3
ROUND = 2000
BAD = ("no JSON", "7", '{"symbol": 1')
MOST = 2500
SETTINGS = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.statefulOperator.checkCorrectness.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "640m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "unskew.spark.warm_daemon",
    "spark.ui.showConsoleProgress": "false",
}


def main() -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = Path(sys.argv[1])
    builder = SparkSession.builder.master("local[2]").appName("unskew on Kafka")
    for name, value in {**SETTINGS, "spark.jars": connector_jars()}.items():
        builder = builder.config(name, value)
    with Broker(folder / "broker") as broker:
        for topic in (EVENTS, TRADES):
            broker.create_topic(topic, PARTITIONS)
        broker.create_topic(PRICES, 1)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            print(json.dumps(Scenario(spark, broker, folder).run()))
        finally:
            spark.stop()


class Scenario:
    """A topic of skewed events, and a query that keeps the latest totals by key."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path) -> None:
        self._spark, self._broker, self._folder = spark, broker, folder
        self._servers = {"kafka.bootstrap.servers": broker.servers}
        self._rng = np.random.default_rng(7)
        self._produced: Counter[str | None] = Counter()
        self._latest: dict[str | None, int] = {}

    def run(self) -> dict[str, Any]:
        """Disturb the query while it reads events; return the totals."""
        query = self._start()
        self._produce()
        query.processAllAvailable()
        self._produce()
        self._broker.stop()
        self._broker.start()
        self._produce()
        query.processAllAvailable()
        self._produce()
        if (
            pyspark.__version__ < "4.2"
        ):  # its source fails when it reads a batch again, see SPARK-55271
            query.processAllAvailable()
        query.stop()
        self._broker.kill()
        self._broker.start()
        again = self._start()
        self._produce()
        again.processAllAvailable()
        again.stop()
        return {
            "expected": in_order(self._produced),
            "latest": in_order(self._latest),
            "first batch again": again.recentProgress[0].batchId,
            "app": self._app(),
        }

    def _produce(self) -> None:
        """Write a round of events: many with one key, some without a key."""
        ids = np.minimum(self._rng.zipf(1.5, ROUND), 50)
        keys = [None if key == 9 else f"key-{key}" for key in ids]
        self._produced.update(keys)
        events = self._spark.createDataFrame(pa.table({"key": keys, "value": ["event"] * ROUND}))
        events.write.format("kafka").options(**self._servers).option("topic", EVENTS).save()

    def _start(self) -> StreamingQuery:
        """Start or restart the query."""

        def keep(batch: DataFrame, _: int) -> None:
            self._latest.update((row["key"], row["n"]) for row in batch.collect())

        checkpoint = str(self._folder / "running")
        writer = self._totals(checkpoint).writeStream.outputMode("update").foreachBatch(keep)
        return writer.option("checkpointLocation", checkpoint).start()

    def _totals(self, checkpoint: str) -> DataFrame:
        reader = self._spark.readStream.format("kafka").options(**self._servers)
        reader = reader.option("subscribe", EVENTS).option("startingOffsets", "earliest")
        events = reader.option("maxOffsetsPerTrigger", MOST).load()
        keyed = events.select(F.col("key").cast("string"))
        balancer = Balancer("w-choices", checkpoint=checkpoint)
        return balancer.groupBy(keyed, "key").agg(F.count("*").alias("n"))

    def _app(self) -> dict[str, Any]:
        """Run an application from one topic to another; return the last and the exact prices."""
        ids = np.minimum(self._rng.zipf(1.5, ROUND), 50)
        trades = VWAP.table(ids)
        rows = self._spark.createDataFrame(trades).select(
            F.col("symbol").alias("key"), F.to_json(F.struct("*")).alias("value")
        )
        bad = self._spark.createDataFrame([(None, text) for text in BAD], rows.schema)
        for part in (rows, bad):
            part.write.format("kafka").options(**self._servers).option("topic", TRADES).save()
        job = Job(VWAP, f"kafka://{self._broker.servers}/{TRADES}", batch=ROUND // 4)
        report = run(
            self._spark,
            job,
            "w-choices",
            sink=f"kafka://{self._broker.servers}/{PRICES}",
            once=True,
            bad_records=self._folder / "bad",
        )
        reader = self._spark.read.format("kafka").options(**self._servers)
        written = reader.option("subscribe", PRICES).load().orderBy("timestamp", "offset")
        texts = [row["value"] for row in written.select(F.col("value").cast("string")).collect()]
        latest = {found["symbol"]: found["vwap"] for found in map(json.loads, texts)}
        exact = trades.to_pandas()
        exact["paid"] = exact.price * exact["size"]
        sums = exact.groupby("symbol")[["paid", "size"]].sum()
        return {
            "imbalances": [batch["imbalance"] for batch in report["batches"]],
            "records": report["records"],
            "bad_records": report["bad_records"],
            "bad": [
                row["value"] for row in self._spark.read.text(str(self._folder / "bad")).collect()
            ],
            "written": len(texts),
            "latest": latest,
            "exact": (sums.paid / sums["size"]).to_dict(),
        }


def in_order(totals: Mapping[str | None, int]) -> list[tuple[str | None, int]]:
    return sorted(totals.items(), key=repr)


if __name__ == "__main__":
    main()
