"""Windows whose keys stay whole: each window keeps the plan that was valid when it opened."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

WINDOW = "window"


def duration_us(df: DataFrame, window: Column) -> int:
    """Return the length of windows in microseconds; refuse session windows."""
    if df.select(window).columns != [WINDOW]:
        raise ValueError(
            "windows must have a fixed length, as those of F.window(...): for sessions, use "
            "applyInPandasWithState with a timeout"
        )
    times = (TimestampType, TimestampNTZType)
    columns = [
        F.lit("2000-01-01 00:00:00" if isinstance(field.dataType, times) else None)
        .cast(field.dataType)
        .alias(field.name)
        for field in df.schema
    ]
    one = df.sparkSession.range(1).select(*columns).select(window)
    length = F.unix_micros(F.col(f"{WINDOW}.end").cast("timestamp")) - F.unix_micros(
        F.col(f"{WINDOW}.start").cast("timestamp")
    )
    (row,) = one.agg(F.max(length).alias("us")).collect()
    return int(row["us"])
