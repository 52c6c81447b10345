"""Greedy-d and Partial Key Grouping: the least loaded of a key's candidates, for each record."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels.choices import route_least
from unskew.routers.base import Router, Workers
from unskew.state import whole

LOADS = ("local", "global", "probing")


@dataclass(repr=False, eq=False)
class GreedyRouter(Router):
    """Each record goes to the least loaded of the ``d`` candidates of its key.

    Parameters
    ----------
    n_workers, seed, source
        As of every router.
    load
        Which loads are compared: ``local``, those that this source gave; ``global``, the true
        ones (all sources decide as one); ``probing``, local ones that are set to the true ones
        from time to time.
    probe_records
        Records of the whole stream between two probes, with ``load="probing"``.
    """

    fixed: ClassVar[bool] = True
    load: Literal["local", "global", "probing"] = "local"
    probe_records: int = 100_000
    loads: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("probe_records", self.probe_records, 1)
        if self.load not in LOADS:
            raise ValueError(f"load must be one of {', '.join(LOADS)}, got {self.load!r}")
        self.loads = np.zeros(self.n_workers)

    @property
    @abstractmethod
    def choices(self) -> int:
        """Candidates of a key."""

    @property
    def shared(self) -> bool:
        """All sources see the same loads when these are global."""
        return self.load == "global"

    @property
    def probe_every(self) -> int | None:
        """Records between two probes."""
        return self.probe_records if self.load == "probing" else None

    def probe(self, loads: Any, sources: int) -> None:
        """Set the estimate to this source's part of the true loads: load / sources."""
        self.loads[:] = np.asarray(loads) / sources

    def _candidates(self, key: np.uint64) -> Workers:
        return self._choices(key, self.choices)

    def _route(self, keys: Keys, out: Workers) -> None:
        d = min(self.choices, self.n_workers)
        route_least(keys, self._hash_seed, d, self.loads, self._prime, out)


@dataclass(repr=False, eq=False)
class GreedyD(GreedyRouter):
    """Send each record to the least loaded of the d candidates of its key.

    Candidates are distinct workers, given by hashes; of equally loaded ones the first is taken.
    A key is replicated to at most d workers. With p1 <= 1/(5n) the imbalance is O(m/n) for d >= 2
    (theorem 4.1); with p1 > d/n it is at least ``(p1/d - 1/n) m``, whatever the choices.

    Parameters
    ----------
    n_workers, seed, source, load, probe_records
        As of `GreedyRouter`.
    d
        Candidates of a key.

    Examples
    --------
    >>> router = GreedyD(n_workers=4, d=3)
    >>> router.candidates(7).tolist(), router.route([7] * 6).tolist()
    ([0, 3, 1], [0, 3, 1, 0, 3, 1])

    References
    ----------
    Nasir, De Francisci Morales, García-Soriano, Kourtellis and Serafini, "The power of both
    choices: practical load balancing for distributed stream processing engines", ICDE 2015.
    """

    d: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("d", self.d, 1)

    @property
    def choices(self) -> int:
        """Candidates of a key."""
        return self.d


@dataclass(repr=False, eq=False)
class PartialKey(GreedyRouter):
    """Partial Key Grouping (PKG): the less loaded of two candidates, for each record.

    The power of two choices with key splitting: both candidates of a key stay open, so sources
    need not agree on anything. A key is on two workers at most. Good while p1 < 2/n; beyond that
    the hottest key overloads its two workers.

    Parameters
    ----------
    n_workers, seed, source, load, probe_records
        As of `GreedyRouter`.

    Examples
    --------
    >>> PartialKey(n_workers=4).route([7, 7, 7, 8]).tolist()
    [0, 3, 0, 1]

    Notes
    -----
    The two candidates are distinct, as in Storm 2; in the authors' code they coincide for one key
    in n.

    References
    ----------
    See `GreedyD`.
    """

    @property
    def choices(self) -> int:
        """Two."""
        return 2
