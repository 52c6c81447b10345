"""Rows grouped by worker instead of by key, and the workers on which a key may have been."""

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

    The group of worker w is processed on shuffle partition w. Two more columns are added:
    ``key_id``, the key as 64 bits, and ``away``, whether a plan sent the row to another worker than
    Spark's hash of its key. `PossibleWorkers` needs both. A column of one of these names in the
    rows is refused.
    """
    for name in (WORKER, KEY_ID, AWAY):
        check_free(df, name, "rename it, that name is needed")
    columns, possible = key_columns(df, keys), PossibleWorkers.of(balance, df)
    n_workers, routing = possible.n_workers, balance.routing_of("by_worker", ANY)
    identity = plan_key(columns) if routing.planned else key_id(columns)
    routed = balance.route(df, *keys).withColumns(
        {
            WORKER: worker_column(columns, F.col(SLOT), n_workers),
            KEY_ID: identity,
            AWAY: F.lit(possible.by_plan) & (F.col(SLOT) != 0),
        }
    )
    target = F.element_at(F.lit(targets(n_workers).tolist()), F.col(WORKER) + 1)
    slotted = routed.withColumn(SLOT, slot_column([F.col(WORKER)], target, n_workers))
    return routing.sent(slotted, [WORKER, SLOT])


@dataclass(frozen=True)
class PossibleWorkers:
    """The workers on which the rows of a key may have been.

    Key grouping has one for each key, ``pkg`` two, ``shuffle`` all. With a plan these are the one
    that Spark's hash gives and those that received the key by a plan. With a router that learns
    from the stream any worker is possible.

    Parameters
    ----------
    scheme
        The scheme of the balancer.
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
        """Return the possible workers of keys that a balancer routes."""
        routing = balance.routing_of("by_worker", ANY)
        return cls(routing.scheme.text, routing.planned, routing.n_workers(df))

    @property
    def by_plan(self) -> bool:
        """Whether keys are where Spark's hash puts them, except those that a plan names."""
        scheme = read_scheme(self.scheme)
        return self.planned and not (isinstance(scheme, RouterScheme) and scheme.on_all_workers)

    @property
    def usual(self) -> int:
        """The number of possible workers of a key that no plan names."""
        nowhere = [np.empty(0, np.uint64)] * self.n_workers
        return int(self.workers(np.zeros(1, np.uint64), nowhere).sum())

    def workers(self, keys: Keys, away: Sequence[Keys]) -> NDArray[np.bool_]:
        """Return a row for each key: whether it may have been on each worker.

        Parameters
        ----------
        keys
            The ``key_id`` of each key.
        away
            For each worker the keys of all its rows so far that were ``away``.

        Examples
        --------
        >>> possible = PossibleWorkers("pkg", planned=False, n_workers=4)
        >>> possible.workers(np.array([7, 8], np.uint64), []).astype(int).tolist()
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
        candidates = [np.isin(numbers, router.candidates(key)) for key in keys.tolist()]
        return np.array(candidates, np.bool_).reshape(len(keys), self.n_workers)
