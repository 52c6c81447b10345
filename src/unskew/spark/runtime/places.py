"""Where an operator keeps its files beside a query's checkpoint, and that nobody else does."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from hashlib import blake2b

from unskew.spark.runtime.files import Rooted, located, remove, write_once
from unskew.spark.runtime.tasks import query_and_run

_CLAIMED: set[tuple[str, str, str]] = set()


class PlaceError(RuntimeError):
    """The files of an operator belong to another operator or to another query."""


@dataclass(frozen=True)
class Place(Rooted):
    """A folder of one operator of one query.

    Parameters
    ----------
    root
        ``<checkpoint>/unskew/<name>/<operator>``.
    checkpoint
        The query's checkpoint location.
    owner
        Tells apart the operators of one query.
    """

    root: str
    checkpoint: str
    owner: str

    @property
    def plans(self) -> str:
        """The folder of plans."""
        return f"{self.root}/plans"

    def claim(self) -> None:
        """Take the place for the operator and the query of the running task, or refuse.

        A query that is started again has its old id; the operator of a new run takes over.
        """
        query, run = query_and_run()
        if query is None or run is None or (self.root, self.owner, run) in _CLAIMED:
            return
        self._check_query(query)
        first = self._agreed("query", query)
        if first != query:
            raise PlaceError(
                f"{self.root} belongs to query {first}, and this is query {query}: give each query "
                "a balancer with a checkpoint of its own"
            )
        owner = self._agreed(f"runs/{run}", self.owner)
        if owner != self.owner:
            raise PlaceError(
                f"two operators of one query would share {self.root}: give one of them a balancer "
                "with another name, Balancer(..., name=...)"
            )
        for other in self._infos(self._path / "runs"):
            if other.base_name != run:
                remove(self._system, self._path / "runs" / other.base_name)
        _CLAIMED.add((self.root, self.owner, run))

    def _check_query(self, query: str) -> None:
        """Refuse a checkpoint that is not the query's own."""
        system, path = located(self.checkpoint)
        try:
            with system.open_input_stream(f"{path}/metadata") as file:
                found = json.loads(file.read())["id"]
        except (FileNotFoundError, ValueError, KeyError):
            found = "no query"
        if found != query:
            raise PlaceError(
                f"the balancer's checkpoint {self.checkpoint} is that of {found}, not of the query "
                f"{query}: give Balancer(checkpoint=...) the query's own checkpointLocation"
            )

    def _agreed(self, name: str, value: str) -> str:
        """Return what a file says that is written once: this value, if it was not there."""
        path = self._path / name
        write_once(self._system, path, value.encode())
        return self._bytes(path).decode()


def operator_name(kind: str, *parts: object) -> str:
    """Return the name of an operator's folder: the same when the query is built again.

    Examples
    --------
    >>> operator_name("route", "user"), operator_name("route", "shop")
    ('route-c69288c4', 'route-7d2bd5ce')
    """
    text = json.dumps([str(part) for part in parts])
    return f"{kind}-{blake2b(text.encode(), digest_size=4).hexdigest()}"


def check_name(name: str) -> None:
    """Refuse a balancer's name that is no plain folder name."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(
            f"name must be letters, digits, '_', '-' and '.', as in 'clicks', got {name!r}: it is "
            "the name of a folder; use such a one"
        )
