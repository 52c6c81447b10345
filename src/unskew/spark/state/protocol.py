"""How the state of a key gets from one worker to another, and the laws that this keeps.

A plan says where a key should be, a record where its state is (`unskew.spark.state.move_log`). Rows
go where the state is. If that is not where it should be, the worker processes the rows and then
*exports* the state, to an object of its task (`unskew.spark.state.exports`). From the next batch on
rows go to the other worker, which *imports* the state when the first of them comes. So no row ever
waits, and a key without rows stays where it is. If states can time out, an *announcement* goes to
the new worker in the batch of the export, which wakes it in the next one: then it imports the
state, rows or not, and what is due times out.

The laws, for each key that Spark groups as one, and each micro-batch:

1. *One holder.* At the end of a batch a state is in the store of one worker, or in one object on
   its way to one worker, or nowhere, if there is none.
2. *One caller.* The user's function is called as in the plain query: in the same batches, with the
   same rows, with the state that the call before left as Spark keeps it, for the same timeouts.
3. *Same again.* What a batch does with keys is written down once, before its first task runs: the
   *orders* of the batch, made of those of the batch before and of what its tasks told. A batch that
   is tried again, by the same driver or by the next one, has the same orders and reads the same
   objects, as objects are removed only when the batch that read them is over.
4. *Last word.* A task tells what became of its keys in one object, under a name of its attempt,
   before it ends. If there are several of one task, the newest counts, as in Spark's own store.
5. *Nothing guessed.* Orders are made of those of the batch before, which must be there. In a batch
   in which anything can be told all tasks leave an object, if only to say that there is nothing. So
   a file that is lost, cut, changed, swapped or of another query is found out, and named.
6. *Nothing kept for ever.* An object goes when its last state was imported. If few states of an old
   one are still awaited, they are carried over to a new one. A key without a state is forgotten.

Where workers come and go, tasks also tell of keys that are new to them, so that it is known which
are not: a new key is born where it belongs now, and not where it would have been before.
"""

from __future__ import annotations

STAY, ANNOUNCED = -1, -2
"""What to do with a state: it stays where it is; it will come here."""
