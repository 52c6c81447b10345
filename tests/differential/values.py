"""Random values of every type, with many edge cases, and random columns with skew."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from differential.case import Kind
from differential.kinds import ATOMS, DECIMALS, FLOATS, INTEGERS, INTERVALS, MONTHS, precision

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64, MONTHS: 32}
DAY_US = 86_400_000_000
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""The first of January of year 1 and the last of December of year 9999, in days since 1970."""
WORDS = (
    "",
    " ",
    "a",
    "A",
    "b",
    "é",
    "e\u0301",
    "ß",
    "日本",
    "😀",
    "null",
    "x" * 40,
    "a.b",
    "'",
    "\\",
)
MOMENT_US = 1_767_225_600_000_000


def random_kind(rng: Random, depth: int = 2, maps: bool = False) -> Kind:
    """Return a type; one in six is a nested type."""
    if depth == 0 or rng.random() < 0.83:
        return rng.choice(ATOMS)
    inner = [_nested(rng, depth) for _ in range(rng.randint(1, 3))]
    if maps and rng.random() < 0.3:
        return "map", rng.choice(("int", "string", "date")), inner[0]
    return ("array", inner[0]) if rng.random() < 0.5 else ("struct", *inner)


def _nested(rng: Random, depth: int) -> Kind:
    while True:
        kind = random_kind(rng, depth - 1)
        if kind != MONTHS:
            return kind


def random_value(rng: Random, kind: Kind, wild: bool, nulls: float = 0.15) -> Any:
    """Return a value; wild values are as large as the type allows, with one sign in a column."""
    if isinstance(kind, str):
        return _atom(rng, kind, wild)

    def inner(kind: Kind) -> Any:
        return None if rng.random() < nulls else random_value(rng, kind, wild)

    if kind[0] == "array":
        return tuple(inner(kind[1]) for _ in range(rng.randint(0, 3)))
    if kind[0] == "map":
        keys = {random_value(rng, kind[1], False) for _ in range(rng.randint(0, 3))}
        return tuple((key, inner(kind[2])) for key in sorted(keys))
    return tuple(inner(part) for part in kind[1:])


def _atom(rng: Random, kind: str, wild: bool) -> Any:
    if kind == "boolean":
        return rng.random() < 0.5
    if kind in BITS:
        most = 2 ** (BITS[kind] - 1) - 1
        return rng.choice((most, most - 1, most // 2 + 1, 0, 1)) if wild else rng.randint(-9, 9)
    if kind in FLOATS:
        return _float(rng, kind, wild)
    if kind in DECIMALS:
        digits, scale = precision(kind)
        whole = (
            rng.choice((10**digits - 1, 10 ** (digits - 1), 0)) if wild else rng.randint(-99, 99)
        )
        return f"{whole}e-{scale}"
    if kind == "string":
        return rng.choice(WORDS)
    if kind == "binary":
        return rng.choice(("", "00", "ff", "0000", "c3a9", "61"))
    if kind == "date":
        return rng.choice((FIRST_DAY, LAST_DAY, -1, 0)) if wild else rng.randint(20_000, 20_020)
    if kind == "interval day to second":
        return rng.choice((2**63 - 1, 0, DAY_US)) if wild else rng.randint(-9, 9) * 500_000
    ends = (FIRST_DAY * DAY_US, (LAST_DAY + 1) * DAY_US - 1, -1, 0)
    return rng.choice(ends) if wild else MOMENT_US + rng.randint(-20, 20) * 3_600_000_000


def _float(rng: Random, kind: str, wild: bool) -> float:
    if wild:
        most = 3.4028234663852886e38 if kind == "float" else 1.7976931348623157e308
        return rng.choice((most, -most, 5e-324 if kind == "double" else 1e-45, 0.0, 1.0))
    odd = (math.nan, 0.0, -0.0, math.inf, -math.inf)
    tame = rng.randint(-40, 40) / 8
    return rng.choice(odd) if rng.random() < 0.3 else tame


def random_column(rng: Random, kind: Kind, rows: int, nullable: bool) -> tuple[list[Any], bool]:
    """Return the values of a column, often with a hot one, and whether they are wild."""
    wild = rng.random() < 0.2
    distinct = rng.choice((1, 2, 3, 5, 8, 30, max(1, rows)))
    pool = [random_value(rng, kind, wild) for _ in range(distinct)]
    hot = rng.choice((None, pool[0])) if nullable else pool[0]
    share = rng.choice((0.0, 0.0, 0.5, 0.6, 0.9))
    nulls = rng.choice((0.0, 0.1, 0.4)) if nullable else 0.0

    def draw() -> Any:
        if rng.random() < share:
            return hot
        return None if rng.random() < nulls else rng.choice(pool)

    return [draw() for _ in range(rows)], wild


def summable(kind: Kind, wild: bool) -> bool:
    """Return whether a sum of such values is the same in every order, apart from rounding."""
    return kind in (*INTEGERS, *DECIMALS, *INTERVALS) or (kind in FLOATS and not wild)
