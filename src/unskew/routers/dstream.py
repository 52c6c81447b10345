"""DStream: popularity-aware differentiated routing."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.hashing import Keys
from unskew.kernels.dstream import route_dstream
from unskew.routers.base import HOT_KEYS, Router, Workers, start_of
from unskew.sketches.coin_flip import ROOM_WITHOUT_DECLINE, CoinFlip
from unskew.sketches.counting_bloom import CountingBloom


@dataclass(repr=False, eq=False)
class DStream(Router):
    """Hot keys by shuffle grouping, all others by key grouping.

    A coin-flip synopsis predicts which keys are hot now; it signals keys that become hot
    ("append") or cool down ("delete") to a counting Bloom filter, which every record is looked up
    in. Follows drift: a key is hot while its share stays above about 2p.

    Parameters
    ----------
    n_workers, seed, source
        As of every router.
    threshold, length, ones, decline
        r, l, zeta and p of `unskew.sketches.CoinFlip`.
    false_positives
        The rate of cool keys that the filter takes for hot, when it is as full as it is sized for.
    predictor
        ``central``: one predictor sees the whole stream, as in the paper. ``local``: each source
        has its own.

    Examples
    --------
    >>> router = DStream(n_workers=4)
    >>> workers = router.route([7] * 2000)
    >>> router.hot().tolist(), np.bincount(workers[-400:]).tolist()
    ([7], [100, 100, 100, 100])

    References
    ----------
    Chen, Zhang and Jin, "Popularity-aware differentiated distributed stream processing on skewed
    streams", ICNP 2017.
    """

    planned: ClassVar[str | None] = HOT_KEYS
    threshold: int = 6
    length: int = 16
    ones: int = 2
    decline: float = 0.01
    false_positives: float = 0.001
    predictor: Literal["central", "local"] = "central"
    synopsis: CoinFlip = field(init=False)
    filter: CountingBloom = field(init=False)
    turn: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.predictor not in ("central", "local"):
            raise ValueError(f"predictor must be central or local, got {self.predictor!r}")
        self.synopsis = CoinFlip(self.threshold, self.length, self.ones, self.decline, self.seed)
        room = math.ceil(1 / self.decline) if self.decline else ROOM_WITHOUT_DECLINE
        self.filter = CountingBloom(room, self.false_positives)
        start = start_of(self.seed, self.source, self.n_workers)
        self.turn = np.array([self.n_workers, start])

    @property
    def shared(self) -> bool:
        """One predictor for all sources, if it is central."""
        return self.predictor == "central"

    def hot(self) -> Keys:
        """Return the keys that are hot now."""
        return self.synopsis.hot()

    def _candidates(self, key: np.uint64) -> Workers:
        hot = self.filter.contains(np.array([key], np.uint64))[0]
        return self._all_workers() if hot else self._choices(key, 1)

    def _route(self, keys: Keys, out: Workers) -> None:
        route_dstream(
            keys,
            self._hash_seed,
            self.synopsis.synopsis,
            self.synopsis.rule,
            self.filter.counts,
            self.filter.probes,
            self.turn,
            out,
        )
        self.filter.members[0] = self.synopsis.synopsis.hot[: len(self.synopsis)].sum()
