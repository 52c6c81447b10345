"""How the state of a key gets from one worker to another, lazily and in band.

A plan says where a key should be, the log of moves where its state is (`unskew.spark.whereabouts`).
While they agree, rows go there. When they do not, the rows of the next micro-batch that has any
still go where the state is, and take it along: the worker processes them, and then *exports* the
state for the other one. From the batch after that on rows go to the other worker, which *imports*
the state when the first of them comes. So no row ever waits; a key without rows stays where it is.

Where states can time out, a *herald* goes to the new worker in the batch of the export, so that it
imports the state in the next one, rows or not.

A batch that is tried again does the same again: what it starts from is written down before its
first task runs, exports overwrite themselves, and are read in later batches only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

STAY, HERALD, ARRIVED = -1, -2, -1
"""The state stays where it is; it is announced; it came long ago."""


@dataclass
class Held:
    """What a worker holds of a key.

    Parameters
    ----------
    state
        Of the user, None for none.
    expected
        The batch in which the state was exported that is to come; `ARRIVED` if none is.
    """

    state: Any = None
    expected: int = ARRIVED


@dataclass(frozen=True)
class Orders:
    """What the rows of a key say about its state, all of them the same in a batch.

    Parameters
    ----------
    to
        The worker that it should go to, `STAY`, or `HERALD`: it will come here.
    since
        The batch in which it was exported for this worker; `ARRIVED` if it is here.
    """

    to: int = STAY
    since: int = ARRIVED


@dataclass(frozen=True)
class Transfer:
    """Gives up and takes in the state of one key.

    Parameters
    ----------
    export
        Writes a state, None for nothing, that leaves for a worker.
    fetch
        Returns what was exported in a batch, and notes that it has come.
    """

    export: Callable[[int, Any], None]
    fetch: Callable[[int], Any]

    def step(
        self, held: Held, batch: int, orders: Orders, process: Callable[[], Iterator[Any]]
    ) -> Iterator[Any]:
        """Do what a batch brings to a key at a worker: rows with orders, or waking up."""
        since = max(held.expected, orders.since)
        if orders.to == HERALD:
            if held.state is None:
                held.expected = batch
            return
        if held.state is None and since != ARRIVED:
            held.state, held.expected = self.fetch(since), ARRIVED
        yield from process()
        if orders.to != STAY:
            self.export(orders.to, held.state)
            held.state = None
