"""The tables of TPC-H that its query 5 needs: small static ones, and a stream of events."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.apps.base import STEP_US, times

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4),
    ("ETHIOPIA", 0), ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2),
    ("IRAN", 4), ("IRAQ", 4), ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0),
    ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1), ("CHINA", 2), ("ROMANIA", 3),
    ("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3), ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
)  # fmt: skip
"""Nations in the order of their keys, with the keys of their regions."""
CUSTOMERS, SUPPLIERS = 1500, 100
ORDER_EVERY = 5
"""One event in five is an order, so an order has four lines on average, as in TPC-H."""
SEASON_S = 2
NUMBERS = SEASON_S * 1_000_000 // STEP_US // ORDER_EVERY
STRIDE = 147
"""The step from one order's number to the next: each number occurs once a season, in any order."""
MONEY = pa.decimal128(15, 2)


def static_tables() -> dict[str, pa.Table]:
    """Return the tables that do not change: regions, nations, customers and suppliers."""
    nations, regions = zip(*NATIONS, strict=True)
    return {
        "region": pa.table({"r_regionkey": np.arange(len(REGIONS)), "r_name": REGIONS}),
        "nation": pa.table(
            {"n_nationkey": np.arange(len(nations)), "n_name": nations, "n_regionkey": regions}
        ),
        "customer": pa.table({"c_custkey": _keys(CUSTOMERS), "c_nationkey": _nations(CUSTOMERS)}),
        "supplier": pa.table({"s_suppkey": _keys(SUPPLIERS), "s_nationkey": _nations(SUPPLIERS)}),
    }


def make_events(ids: NDArray[np.int64], first: int) -> dict[str, Any]:
    """Return orders and their lines; every fifth event is an order.

    Foreign keys are as skewed as the ids: the order and the supplier of a line, and the customer of
    an order. The numbers of orders repeat every season, so that hot orders stay hot: a line belongs
    to the latest order with its number, which is less than a season old. In the first season, the
    orders of some lines were before the start of the stream.
    """
    rng, index = np.random.default_rng([4, first]), np.arange(first, first + len(ids))
    order = index % ORDER_EVERY == 0
    number = np.where(order, STRIDE * (index // ORDER_EVERY), ids) % NUMBERS
    partner = rng.permutation(ids)
    price, discount = rng.integers(90_000, 10_500_000, len(ids)), rng.integers(0, 11, len(ids))
    return {
        "kind": pa.array(np.where(order, "order", "line")),
        "ts": times(ids, first),
        "orderkey": number,
        "custkey": pa.array(1 + (ids - 1) % CUSTOMERS, mask=~order),
        "suppkey": pa.array(1 + (partner - 1) % SUPPLIERS, mask=order),
        "extendedprice": pa.array(price / 100, mask=order).cast(MONEY),
        "discount": pa.array(discount / 100, mask=order).cast(MONEY),
    }


def _keys(size: int) -> NDArray[np.int64]:
    return np.arange(1, size + 1)


def _nations(size: int) -> NDArray[np.int64]:
    """Return nations by key: customers and suppliers with the same small key share a nation."""
    return (7 * _keys(size) + 1) % len(NATIONS)
