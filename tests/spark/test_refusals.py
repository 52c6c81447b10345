"""Refusals of a balancer before anything runs: they name the fault and the way out."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from unskew.spark import Balancer

WITHOUT_PYSPARK = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyspark":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
import unskew
import unskew.sim
try:
    import unskew.spark
except ImportError as error:
    print(error)
    print(repr(error.__cause__))
"""


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return spark.range(10).selectExpr(
        "id",
        "id % 3 AS shop_id",
        "named_struct('name', 'a', 'tags', map('x', 1)) AS user",
        "map('x', id) AS counts",
        "array(map('x', id)) AS several",
        "parse_json('1') AS anything",
    )


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scheme": "w-choice"}, "unknown scheme 'w-choice' (did you mean 'w-choices'?): use key,"),
        ({"scheme": "nothing"}, "unknown scheme 'nothing': use key, shuffle,"),
        ({"scheme": ""}, "unknown scheme ''"),
        ({"scheme": "fish:epochs=9"}, "fish has no parameter 'epochs' (did you mean 'epoch'?)"),
        ({"scheme": "fish:epoch=some"}, "epoch must be a number, got 'some'"),
        ({"scheme": "fish:epoch"}, "options must look like fish:name=value"),
        ({"scheme": "pkg,fish"}, "a balancer has one scheme, got pkg,fish"),
        ({"scheme": "pkg,pkg"}, "a balancer has one scheme, got pkg,pkg"),
        ({"scheme": "pkg:load=foo"}, "load must be one of"),
        ({"scheme": "mixed:theta=1"}, "mixed has no parameter 'theta'"),
        ({"scheme": "mixed", "routing": "online"}, "mixed plans between batches"),
        ({"scheme": "pkg", "routing": "planned"}, "pkg decides record by record, use routing="),
        ({"routing": "offline"}, "routing must be one of planned, online, got 'offline'"),
        ({"routing": "online"}, "routing='online' needs a scheme, as in Balancer('pkg', ...)"),
    ],
)
def test_balancer(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Balancer(**options)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ((), "at least one key column is needed: give its name"),
        (("shop",), "no column 'shop' (did you mean 'shop_id'?): there are id, shop_id, user,"),
        (("id", "zzz"), "no column 'zzz': there are id, shop_id,"),
        (("users.name",), "no column 'users.name' (did you mean 'user'?)"),
    ],
)
def test_keys_that_are_not_there(events: DataFrame, keys: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Balancer("pkg").route(events, *keys)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        Balancer("pkg").groupBy(events, *keys).agg(F.count("*").alias("n"))


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("counts", "map<string,bigint>"),
        ("user", "struct<name:string,tags:map<string,int>>"),
        ("user.tags", "map<string,int>"),
        ("several", "array<map<string,bigint>>"),
        ("anything", "variant"),
    ],
)
def test_keys_that_cannot_be_hashed(events: DataFrame, key: str, kind: str) -> None:
    with pytest.raises(
        TypeError, match=f"^cannot group by .* of type {re.escape(kind)}: "
    ) as error:
        Balancer("pkg").route(events, "id", key)
    assert "with to_json or map_entries" in str(error.value)


def test_column_before_the_keys_that_is_not_there(events: DataFrame) -> None:
    with pytest.raises(ValueError, match=r"^no column 'windo': there are id"):
        Balancer("pkg").route(events, "id", before=["windo"])


@pytest.mark.parametrize("scheme", ["pkg", "w-choices", "key:seed=1"])
def test_stream_without_checkpoint(stream: DataFrame, scheme: str) -> None:
    message = r"^routing a stream .*: give Balancer\(\.\.\., checkpoint=\.\.\.\) the query's check"
    with pytest.raises(ValueError, match=message):
        Balancer(scheme, routing="online").route(stream, "value")


def test_nothing_to_aggregate(events: DataFrame) -> None:
    with pytest.raises(ValueError, match=r"^at least one aggregate is needed, as in agg\(F"):
        Balancer("pkg").groupBy(events, "id").agg()


def test_import_without_pyspark() -> None:
    """Only the Spark part needs PySpark, and its error shows how to install it."""
    command = [sys.executable, "-W", "error", "-c", WITHOUT_PYSPARK]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    message, cause = out.splitlines()
    assert message == "unskew.spark needs PySpark: pip install 'unskew[spark]'"
    assert cause.startswith("ModuleNotFoundError(\"No module named 'pyspark'\"")


def test_columns_that_cannot_be_placed(events: DataFrame) -> None:
    with pytest.raises(ValueError, match=r"^there is a column 'slot' already: rename it"):
        Balancer("pkg").route(events.withColumnRenamed("shop_id", "slot"), "id")
    with pytest.raises(
        ValueError, match=r"^key columns must differ, got id, id: give each of them once$"
    ):
        Balancer("pkg").route(events, "id", "id")
    collated = events.selectExpr("cast(id AS string) COLLATE UTF8_LCASE AS name")
    with pytest.raises(TypeError, match="and a collated string with lower"):
        Balancer("pkg").route(collated, "name")
