"""An embedded Spark session, for the demo and the benchmarks."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from unskew.spark.placement.draws import CHECKSUMS


@contextmanager
def embedded_session(
    workers: int, master: str | None = None, **settings: str
) -> Iterator[SparkSession]:
    """Start a quiet Spark in this process, with one task slot for each worker, and stop it at exit.

    Tasks that sleep need no core, so there may be more workers than cores.

    Parameters
    ----------
    workers
        The number of shuffle partitions.
    master
        The address of a cluster to use instead.
    settings
        Settings of Spark, without the prefix ``spark.`` and with underscores for dots.
    """
    # Tasks must run on this Python, in which unskew is installed.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="unskew-") as folder:
        defaults = {
            "spark.sql.shuffle.partitions": workers,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.local.dir": folder,
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.sql.adaptive.enabled": "false",
            "spark.log.level": "OFF",
            "spark.python.daemon.module": "unskew.spark.warm_daemon",
            **dict.fromkeys(CHECKSUMS, "true"),  # the default since Spark 4.2
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.streaming.stateStore.providerClass": (
                "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
            ),
        }
        overrides = {f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}
        builder = SparkSession.builder.master(master or f"local[{workers}]").appName("unskew")
        for name, value in (defaults | overrides).items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()
