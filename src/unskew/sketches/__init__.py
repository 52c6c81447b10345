"""Who is hot: sketches of how often keys come. `SKETCHES` names them all."""

from __future__ import annotations

from unskew.sketches.base import Sketch
from unskew.sketches.coin_flip import CoinFlip
from unskew.sketches.count_min import AdaptiveCountMin, CountMin
from unskew.sketches.counting_bloom import CountingBloom
from unskew.sketches.exact import Exact, KeyIndex
from unskew.sketches.space_saving import DecayedSpaceSaving, SpaceSaving

SKETCHES: dict[str, type[Sketch]] = {
    "exact": Exact,
    "space-saving": SpaceSaving,
    "decayed-space-saving": DecayedSpaceSaving,
    "coin-flip": CoinFlip,
    "counting-bloom": CountingBloom,
    "count-min": CountMin,
    "adaptive-count-min": AdaptiveCountMin,
}

__all__ = [
    "SKETCHES",
    "AdaptiveCountMin",
    "CoinFlip",
    "CountMin",
    "CountingBloom",
    "DecayedSpaceSaving",
    "Exact",
    "KeyIndex",
    "Sketch",
    "SpaceSaving",
]
