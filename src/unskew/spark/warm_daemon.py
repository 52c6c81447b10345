"""PySpark's daemon that forks Python workers, with the modules imported that all of them need.

Importing pandas takes a worker a second, and the workers of a query end with it. What is imported
is exempt from the garbage collection after each task. Sessions use this daemon by the setting
``spark.python.daemon.module``.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark import daemon

import unskew.spark.routing.plan_source
import unskew.spark.state.operator  # noqa: F401
from unskew.spark.runtime.tasks import freeze_imports

if __name__ == "__main__":
    freeze_imports()
    daemon.manager()
