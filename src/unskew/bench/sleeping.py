"""Workers that sleep for each record, as in the measurements of the papers."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
from pyspark.sql.types import BooleanType

from unskew.spark import Balancer
from unskew.spark.placement.keys import ColumnOrName


@dataclass(frozen=True)
class SleepingBalancer(Balancer):
    """A balancer whose workers sleep for each record that they aggregate or pair that they join.

    Sleeping tasks need no core, so a small machine behaves like a large one.

    Parameters
    ----------
    delay_us
        The microseconds of sleep for a record.
    """

    delay_us: float = 0.0

    def join(self, *args: Any, **options: Any) -> DataFrame:
        """Return a join by key columns; see `Balancer.join`."""
        pairs = super().join(*args, **options)
        return pairs.where(self._slept(F.lit(0)))

    def _sent(self, routed: DataFrame, grouping: Sequence[ColumnOrName]) -> DataFrame:
        """Return routed rows; the worker of a row sleeps for it."""
        # The shuffle comes first, so that the sleep for each record happens on its worker.
        on_workers = routed.repartition(self.n_workers(routed), *grouping)
        return on_workers.where(self._slept(F.lit(0)))

    def _slept(self, column: Column) -> Column:
        delay_s = self.delay_us / 1e6

        def slept(records: pa.Array) -> pa.Array:
            time.sleep(delay_s * len(records))
            return pa.array(np.ones(len(records), np.bool_))

        # A deterministic filter would be pushed down, and sleep before the shuffle.
        sleep = arrow_udf(slept, returnType=BooleanType()).asNondeterministic()
        return sleep(column)  # type: ignore[no-any-return]


def sleeping_balancer(delay_us: float, **options: Any) -> Balancer:
    """Return a balancer whose workers sleep for each record, unless the delay is 0."""
    return SleepingBalancer(**options, delay_us=delay_us) if delay_us else Balancer(**options)
