"""A Spark session that is fast with small queries, and the settings of one case."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

MEMORY = Path("/dev/shm")
MASTER = "local[2,4]"
"""Two cores, and up to four attempts of a task."""


def scratch_folder() -> Path:
    """Return a new folder, in memory if possible."""
    return Path(tempfile.mkdtemp(prefix="differential-", dir=MEMORY if MEMORY.is_dir() else None))


def start_session(folder: Path) -> SparkSession:
    """Return a session that keeps its files in a folder."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder} -XX:TieredStopAtLevel=1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.cleaner.periodicGC.interval": "2min",
    }
    builder = SparkSession.builder.master(MASTER).appName("differential")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    for noisy in ("DataFrameQueryContextLogger", "unskew.spark"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    return session


@contextmanager
def applied(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply settings to a session, and restore the old ones at exit."""
    before: dict[str, str | None] = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
