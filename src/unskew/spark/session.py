"""An embedded Spark session, for the demo and the benchmarks."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import __version__ as spark_version
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from unskew.spark.placement.draws import CHECKSUMS


@contextmanager
def embedded_session(
    workers: int, master: str | None = None, **settings: str
) -> Iterator[SparkSession]:
    """Start a quiet Spark in this process, with one task slot for each worker, and stop it at exit.

    Tasks that sleep need no core, so there may be more workers than cores. What Spark prints goes
    to a log file; if anything fails, the file is kept, and its place is printed.

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
        with _log_file() as log:
            session = _started(builder, log)
            session.sparkContext.setLogLevel("OFF")
            try:
                yield session
            finally:
                session.stop()


def kafka_connector() -> str:
    """Return the Maven package of the Kafka connector for this Spark."""
    return f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}"


@contextmanager
def _log_file() -> Iterator[Path]:
    """Create a log file; remove it at exit, or print its place if there was an error."""
    handle, name = tempfile.mkstemp(prefix="unskew-spark-", suffix=".log")
    os.close(handle)
    log = Path(name)
    try:
        yield log
    except Exception:
        if log.exists() and log.stat().st_size:
            print(f"unskew: the log of Spark is {log}", file=sys.stderr)
        else:
            log.unlink(missing_ok=True)
        raise
    except BaseException:
        log.unlink(missing_ok=True)
        raise
    log.unlink(missing_ok=True)


def _started(builder: SparkSession.Builder, log: Path) -> SparkSession:
    """Start Spark; it and its workers print to the log file."""
    sys.stderr.flush()
    own = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        missing = re.search(r"unresolved dependency: ([^\]:]+)", log.read_text(errors="replace"))
        if missing is None:
            raise
        package = missing[1].replace("#", ":").replace(";", ":")
        raise ValueError(
            f"there is no package {package}, or no registry answers: check --packages; the Kafka "
            f"connector of this Spark is {kafka_connector()}"
        ) from error
    finally:
        os.dup2(own, 2)
        os.close(own)
