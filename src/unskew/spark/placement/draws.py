"""Random numbers of rows, the same again when a task is tried again.

A row of a split key goes to one of the key's workers by such a number. Were it another one when a
task is tried again, rows would come twice or never. Rows that come straight from files, from Kafka
and the like come in the same order again, and the number is by their place. Rows that come out of a
shuffle do not; their number is by their content. Rows that are alike in all columns then share it
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
"""No user's, hopefully: with the seed of a user's ``rand`` slots would depend on that column."""
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
"""Operators of a plan whose rows come in the same order again."""
UNORDERED_SOURCES = ("JDBCRelation",)
CHECKSUMS = (
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
"""By these Spark finds out that a task gave other rows when it was tried again."""


def with_draws(df: DataFrame, names: Names) -> DataFrame:
    """Return the rows with a hidden column ``drawn``, a number from 0 to 1."""
    number = by_place() if keeps_order(df) else by_content(df)
    return df.withColumn(names("drawn"), number)


def by_place() -> Column:
    """Return a random number for each row, by its partition and its place in that.

    Spark gives ``rand`` a new seed in each micro-batch, and writes it into the code that it makes:
    all of that would be compiled anew for each batch, and be slow until it is warm. The function of
    ``zip_with`` is not compiled, and of all that are not, it is the fastest.
    """
    one = F.array(F.lit(0))
    return F.get(F.zip_with(one, one, lambda _, __: F.rand(seed=SEED)), F.lit(0))


def by_content(df: DataFrame) -> Column:
    """Return a number for each row that depends on its columns only."""
    names = [name.casefold() for name in df.columns]
    columns = [
        F.col(quoted(field.name))
        for field, name in zip(df.schema, names, strict=True)
        if _hashable(field.dataType) and names.count(name) == 1
    ]
    hashed = F.xxhash64(F.lit(SEED), *columns)
    return F.shiftrightunsigned(hashed, 11) * F.lit(2.0**-53)


def keeps_order(df: DataFrame) -> bool:
    """Say whether the rows come in the same order when a task is tried again.

    What is not known to keep the order is taken to change it.
    """
    text = _Printed(sys.stdout)
    with contextlib.redirect_stdout(text):
        df.explain(extended=True)
    _, _, rest = text.getvalue().partition("== Analyzed Logical Plan ==\n")
    _, *lines = rest.partition("\n== Optimized Logical Plan ==")[0].splitlines()
    return all(_ordered(line) for line in lines)


class _Printed(io.StringIO):
    """What this thread prints; others print as before."""

    def __init__(self, others: TextIO) -> None:
        super().__init__()
        self._others, self._thread = others, threading.get_ident()

    def write(self, text: str) -> int:
        mine = threading.get_ident() == self._thread
        return super().write(text) if mine else self._others.write(text)


def _ordered(line: str) -> bool:
    operator = re.match(r"[\s:+\-~]*'?(\w+)", line)  # "~" marks streams
    return operator is not None and (
        operator[1] in ORDERED and not any(source in line for source in UNORDERED_SOURCES)
    )


def check_order(df: DataFrame, scheme: str) -> None:
    """Refuse a scheme that goes by the order of rows where nothing would tell of another order."""
    unguarded = [name for name in CHECKSUMS if not _set(df, name)]
    if unguarded and not keeps_order(df):
        raise ValueError(
            f"{scheme} decides by the order of the rows, and rows that come out of a shuffle may "
            "come in another order when a task is tried again: set "
            f"{' and '.join(unguarded)} to true, route before the shuffle, or use a scheme in "
            "routing='planned'"
        )


def _set(df: DataFrame, name: str) -> bool:
    try:
        return (df.sparkSession.conf.get(name) or "").lower() == "true"  # its default, if not set
    except PySparkException:  # a Spark that does not know it
        return False


def _hashable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_hashable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _hashable(kind.elementType)
    return not isinstance(kind, MapType | VariantType)
