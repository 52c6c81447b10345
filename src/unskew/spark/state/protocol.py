"""How the state of a key gets from one worker to another, and the laws that this keeps.

A plan assigns a key to a worker; a record keeps where the key's state is
(`unskew.spark.state.move_log`). Rows go to the worker that has the state. If the plan assigns the
key to another worker, the old one processes the rows and then *exports* the state to its task's
object (`unskew.spark.state.exports`). From the next batch on, rows go to the new worker, which
*imports* the state with the first of them. So no row ever waits, and the state of a key without
rows stays where it is. If states can time out, an *announcement* goes to the new worker in the
batch of the export and wakes the key there in the next batch: the worker then imports the state,
with or without rows, and fires the timeouts that are due.

The laws, for each key that Spark groups as one, and each micro-batch:

1. *One holder.* At the end of a batch a state is in the store of one worker, or in one object on
   its way to one worker, or nowhere, if the key has none.
2. *One caller.* The user's function is called as in the plain query: in the same batches, with the
   same rows, for the same timeouts, and with the state that the previous call left, in the form in
   which Spark stores it.
3. *Same again.* What a batch does with keys is written once, before its first task runs: the
   *orders* of the batch, derived from those of the previous batch and from what its tasks reported.
   A batch that is retried, by the same driver or by the next one, has the same orders and reads the
   same objects, because objects are removed only when the batch that read them is over.
4. *Latest attempt.* A task reports the state changes of its keys in one object, named after its
   attempt, before it ends. If a task left several, the newest counts, as in Spark's own store.
5. *Nothing guessed.* Orders are derived from those of the previous batch, which must exist. In a
   batch in which a state may change its place, every task leaves an object, if only an empty one.
   So a file that is lost, truncated, changed, swapped or from another query is detected, and
   reported by name.
6. *Nothing kept for ever.* An object is removed when its last state has been imported. If few
   states of an old one are still awaited, they are carried over to a new one. The record drops a
   key that has no state.

In the first batch of a query no key has a state, so keys start where the plan puts them. Later, a
key that is new to the record might have a state at home, so it starts there.

Where workers come and go, tasks also report keys that are new to them, so that the record knows all
others: a new key starts on the worker that owns it now, not on the one that owned it before.
"""

from __future__ import annotations

STAY, ANNOUNCED = -1, -2
"""What to do with a state: it stays where it is; it will arrive here."""
