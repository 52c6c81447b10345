"""How the state of a key gets from one worker to another, lazily and in band.

A plan says where a key is now, and where its state may still be. As long as that is open, each row
of the key comes with a request to those places to give up what they have. What a worker knows of a
key is in one of three phases:

- *absent*: nothing. A row makes it *here*; a row of a key on the move makes it *waiting*; asked for
  the state, it exports that there is none.
- *waiting*: rows are kept, as the state is exported elsewhere in the same batch. In the next batch
  the state is imported, the rows are replayed, and it is *here*.
- *here*: rows are processed. Asked for the state, it exports that, and is *absent*.

Requests that come again find nothing, a key that moves on before its state came passes through all
its places in order, and a key without rows stays where it is until it has some. A batch that is
tried again does the same again, as the plan of a batch is written down and exports overwrite
themselves.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

MOVE = "__unskew_move"


class Row(IntEnum):
    """What a row is to the worker that gets it."""

    PLAIN = 0
    MOVING = 1
    """Of a key whose state may be elsewhere."""
    REQUEST = 2
    """Asks for the state."""


class Phase(Enum):
    """What a worker knows of a key."""

    ABSENT = "absent"
    WAITING = "waiting"
    HERE = "here"


@dataclass
class Held:
    """What a worker holds of a key.

    Parameters
    ----------
    phase
        Of the key at this worker.
    state
        The user's state, None if there is none.
    since
        The batch in which waiting began.
    rows
        Those that wait, pickled.
    """

    phase: Phase = Phase.ABSENT
    state: Any = None
    since: int = -1
    rows: bytes = b""


Process = Callable[[Any, Any], Iterator[Any]]
"""Takes the held state and rows, changes the state, and gives results."""


@dataclass(frozen=True)
class Transfer:
    """Gives up and takes in the state of one key.

    Parameters
    ----------
    export
        Writes a state that leaves in a batch, None for nothing.
    find
        Returns what was exported in a batch.
    """

    export: Callable[[int, bytes | None], None]
    find: Callable[[int], bytes | None]

    def step(
        self, held: Held, batch: int, kind: Row | None, rows: Iterator[Any], process: Process
    ) -> Iterator[Any]:
        """Do what a batch brings to a key: rows of one kind, or none, if it only woke up."""
        if held.phase is Phase.WAITING and held.since < batch:
            found = self.find(held.since)
            held.state = None if found is None else pickle.loads(found)
            waiting, held.rows, held.phase = pickle.loads(held.rows), b"", Phase.HERE
            yield from process(held, iter(waiting))
        if kind is Row.REQUEST:
            gone = held.state
            self.export(batch, None if gone is None else pickle.dumps(gone))
            held.phase, held.state = Phase.ABSENT, None
        elif kind is Row.MOVING and held.phase is Phase.ABSENT:
            held.phase, held.since, held.rows = Phase.WAITING, batch, pickle.dumps([*rows])
        elif kind is not None:
            held.phase = Phase.HERE
            yield from process(held, rows)
