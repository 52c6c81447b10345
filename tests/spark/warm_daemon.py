"""The daemon of PySpark that forks Python workers, with the imports that all of them need.

Spark kills the workers of a query that ends, and a new one takes a second to import pandas.
"""

from __future__ import annotations

import pandas  # noqa: F401
import pyarrow.parquet  # noqa: F401
import pyspark.sql.pandas.serializers
import pyspark.worker  # noqa: F401
from pyspark import daemon

if __name__ == "__main__":
    daemon.manager()
