"""Random numbers for rows, which are the same when a task is retried.

Such a number sends a row of a split key to one of the key's workers. If it changed when a task is
retried, rows would be duplicated or lost. Rows read directly from files, Kafka and the like have
the same order in a retry, so their number depends on their position. Rows from a shuffle have not,
so their number depends on their content; rows that are equal in all columns then share a number
and go to one worker.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import threading
from typing import TextIO

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from unskew.spark.placement.names import Names, quoted

SEED = 0x756E736B6577
"""Unlikely to be a user's seed: with the seed of a user's ``rand``, slots would depend on it."""
ORDERED = {
    "ArrowEvalPython",
    "BatchEvalPython",
    "CollectMetrics",
    "EventTimeWatermark",
    "Filter",
    "Generate",
    "LocalRelation",
    "MapInArrow",
    "MapInPandas",
    "Project",
    "Range",
    "Relation",
    "StreamingDataSourceV2Relation",
    "StreamingRelation",
    "StreamingRelationV2",
    "SubqueryAlias",
    "Union",
}
"""Operators of a query plan that return rows in the same order when a task is retried."""
UNORDERED_SOURCES = ("JDBCRelation",)
CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
"""Settings with which Spark detects that a retried task returned other rows."""


def with_draws(df: DataFrame, names: Names) -> DataFrame:
    """Return the rows with a hidden column ``drawn``, a number from 0 to 1."""
    number = by_place() if keeps_order(df) else by_content(df)
    return df.withColumn(names("drawn"), number)


def by_place() -> Column:
    """Return a random number for each row that depends on its partition and its position there.

    Spark gives ``rand`` a new seed in each micro-batch and writes it into the code that it
    generates, which would be compiled again for each batch and be slow until it is warm. The
    function of ``zip_with`` is interpreted, and it is the fastest of those that are.
    """
    one = F.array(F.lit(0))
    return F.get(F.zip_with(one, one, lambda _, __: F.rand(seed=SEED)), F.lit(0))


def by_content(df: DataFrame) -> Column:
    """Return a random number for each row that depends only on its columns."""
    names = [name.casefold() for name in df.columns]
    columns = [
        F.col(quoted(field.name))
        for field, name in zip(df.schema, names, strict=True)
        if _hashable(field.dataType) and names.count(name) == 1
    ]
    hashed = F.xxhash64(F.lit(SEED), *columns)
    return F.shiftrightunsigned(hashed, 11) * F.lit(2.0**-53)


def keeps_order(df: DataFrame) -> bool:
    """Return whether the rows have the same order when a task is retried.

    An operator that is not known to keep the order is assumed to change it.
    """
    printed = _ThreadOutput(sys.stdout)
    with contextlib.redirect_stdout(printed):
        df.explain(extended=True)
    _, _, rest = printed.getvalue().partition("== Analyzed Logical Plan ==\n")
    _, *lines = rest.partition("\n== Optimized Logical Plan ==")[0].splitlines()
    return all(_ordered(line) for line in lines)


class _ThreadOutput(io.StringIO):
    """Captures the output of the current thread; other threads print as before."""

    def __init__(self, others: TextIO) -> None:
        super().__init__()
        self._others, self._thread = others, threading.get_ident()

    def write(self, text: str) -> int:
        captured = threading.get_ident() == self._thread
        return super().write(text) if captured else self._others.write(text)


def _ordered(line: str) -> bool:
    operator = re.match(r"[\s:+\-~]*'?(\w+)", line)  # "~" marks streams
    return operator is not None and (
        operator[1] in ORDERED and not any(source in line for source in UNORDERED_SOURCES)
    )


def check_order(df: DataFrame, scheme: str) -> None:
    """Refuse a scheme that depends on the order of rows if Spark cannot detect a new order."""
    unguarded = [name for name in CHECKSUMS if not _set(df, name)]
    if unguarded and not keeps_order(df):
        raise ValueError(
            f"{scheme} depends on the order of the rows, and rows from a shuffle may have another "
            "order when a task is retried: set "
            f"{' and '.join(unguarded)} to true, route before the shuffle, or use a scheme in "
            "routing='planned'"
        )


def _set(df: DataFrame, name: str) -> bool:
    try:
        return (
            df.sparkSession.conf.get(name) or ""
        ).lower() == "true"  # the default if it is not set
    except PySparkException:  # a version of Spark without this setting
        return False


def _hashable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_hashable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _hashable(kind.elementType)
    return not isinstance(kind, MapType | VariantType)
