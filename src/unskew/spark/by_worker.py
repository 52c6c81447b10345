"""One state for each worker, not for each key: rows by worker, and where keys may have been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from unskew.murmur import homes, targets
from unskew.spark.balancer import Balancer
from unskew.spark.control.choices import for_split_rows
from unskew.spark.control.schemes import RouterScheme, read_scheme
from unskew.spark.placement.keys import ColumnOrName, check_free, key_columns, key_id
from unskew.spark.placement.slots import SLOT, slot_column, worker_column
from unskew.spark.routing.planned import plan_key

Keys = NDArray[np.uint64]

WORKER, KEY_ID, AWAY = "worker", "key_id", "away"
ANY = for_split_rows("what a worker keeps")


def by_worker(df: DataFrame, balance: Balancer, *keys: ColumnOrName) -> DataFrame:
    """Return routed rows with their worker: group by ``worker`` and ``slot``, in this order.

    The group of worker w is processed on shuffle partition w. There are two more columns:
    ``key_id``, the key as 64 bits, and ``away``, whether a plan has the row elsewhere than where
    Spark's hash has its key. `PossibleWorkers` knows what they tell.
    """
    for name in (WORKER, KEY_ID, AWAY):
        check_free(df, name, "rename it, that name is needed")
    columns, reach = key_columns(df, keys), PossibleWorkers.of(balance, df)
    n_workers, routing = reach.n_workers, balance.routing_of("by_worker", ANY)
    identity = plan_key(columns) if routing.planned else key_id(columns)
    routed = balance.route(df, *keys).withColumns(
        {
            WORKER: worker_column(columns, F.col(SLOT), n_workers),
            KEY_ID: identity,
            AWAY: F.lit(reach.by_plan) & (F.col(SLOT) != 0),
        }
    )
    target = F.element_at(F.lit(targets(n_workers).tolist()), F.col(WORKER) + 1)
    slotted = routed.withColumn(SLOT, slot_column([F.col(WORKER)], target, n_workers))
    return routing.sent(slotted, [WORKER, SLOT])


@dataclass(frozen=True)
class PossibleWorkers:
    """Which workers the rows of a key may have been on.

    One by key grouping, two by ``pkg``, all by ``shuffle``. By a plan, the one where Spark's hash
    has it, and those that saw it away from there. By a router that learns, all of them.

    Parameters
    ----------
    scheme
        As of a balancer.
    planned
        Whether rows are routed by a plan.
    n_workers
        Shuffle partitions.
    """

    scheme: str
    planned: bool
    n_workers: int

    @classmethod
    def of(cls, balance: Balancer, df: DataFrame) -> PossibleWorkers:
        """Return the reach of keys that a balancer routes."""
        routing = balance.routing_of("by_worker", ANY)
        return cls(routing.scheme.text, routing.planned, routing.n_workers(df))

    @property
    def by_plan(self) -> bool:
        """Whether keys are where Spark's hash has them, but for those that a plan names."""
        scheme = read_scheme(self.scheme)
        return self.planned and not (isinstance(scheme, RouterScheme) and scheme.on_all_workers)

    @property
    def usual(self) -> int:
        """How many workers a key may have been on that no plan sent elsewhere."""
        nowhere = [np.empty(0, np.uint64)] * self.n_workers
        return int(self.workers(np.zeros(1, np.uint64), nowhere).sum())

    def workers(self, keys: Keys, away: Sequence[Keys]) -> NDArray[np.bool_]:
        """Return whether a key may have been on a worker: a row for each key.

        Parameters
        ----------
        keys
            Their ``key_id``.
        away
            For each worker the keys of all rows so far that were ``away`` on it.

        Examples
        --------
        >>> reach = PossibleWorkers("pkg", planned=False, n_workers=4)
        >>> reach.workers(np.array([7, 8], np.uint64), []).astype(int).tolist()
        [[1, 0, 0, 1], [1, 1, 0, 0]]
        """
        numbers = np.arange(self.n_workers)
        if self.by_plan:
            seen = np.array([np.isin(keys, those) for those in away]).T
            return np.asarray((homes(keys, self.n_workers)[:, None] == numbers) | seen)
        scheme = read_scheme(self.scheme)
        if not (isinstance(scheme, RouterScheme) and scheme.scheme.router.fixed):
            return np.ones((len(keys), self.n_workers), np.bool_)
        router = scheme.scheme.router(self.n_workers, **scheme.scheme.given)
        found = [np.isin(numbers, router.candidates(key)) for key in keys.tolist()]
        return np.array(found, np.bool_).reshape(len(keys), self.n_workers)
