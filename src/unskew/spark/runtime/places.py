"""The folder of an operator beside a query's checkpoint, which no other operator may use."""

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
    """The folder of one operator of one query.

    Parameters
    ----------
    root
        ``<checkpoint>/unskew/<name>/<operator>``.
    checkpoint
        The query's checkpoint location.
    owner
        A random id that distinguishes the operators of one query.
    """

    root: str
    checkpoint: str
    owner: str

    @property
    def plans(self) -> str:
        """The folder of plans."""
        return f"{self.root}/plans"

    def claim(self) -> None:
        """Claim the folder for the operator and the query of the running task, or refuse.

        A query that is restarted keeps its id; the operator of a new run takes over the folder.
        """
        query, run = query_and_run()
        if query is None or run is None or (self.root, self.owner, run) in _CLAIMED:
            return
        self._check_query(query)
        first = self._agreed("query", query)
        if first != query:
            raise PlaceError(
                f"{self.root} belongs to query {first}, not to query {query}: give each query a "
                "balancer with a checkpoint of its own"
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
                owner = json.loads(file.read())["id"]
        except (FileNotFoundError, ValueError, KeyError):
            owner = "no query"
        if owner != query:
            raise PlaceError(
                f"the balancer's checkpoint {self.checkpoint} belongs to {owner}, not to the query "
                f"{query}: give Balancer(checkpoint=...) the query's own checkpointLocation"
            )

    def _agreed(self, name: str, value: str) -> str:
        """Return the content of a file that is written once; write this value if it is missing."""
        path = self._path / name
        write_once(self._system, path, value.encode())
        return self._bytes(path).decode()


def operator_name(kind: str, *parts: object) -> str:
    """Return the name of an operator's folder, which is the same when the query is built again.

    Examples
    --------
    >>> operator_name("route", "user"), operator_name("route", "shop")
    ('route-c69288c4', 'route-7d2bd5ce')
    """
    text = json.dumps([str(part) for part in parts])
    return f"{kind}-{blake2b(text.encode(), digest_size=4).hexdigest()}"


def check_name(name: str) -> None:
    """Refuse a balancer's name that is not a plain folder name."""
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
        raise ValueError(
            f"name must be letters, digits, '_', '-' and '.', got {name!r}: use a plain folder "
            "name, as in 'clicks'"
        )
