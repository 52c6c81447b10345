"""The elements and the groups of a CombineFn are the same in a batch and in a stream."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark.streams import in_order, named, outputs, read_batches, write_batches
from unskew.spark import Balancer, combine

NAN = float("nan")


pytestmark = pytest.mark.usefixtures("three_workers")


class Described:
    """All elements as texts that show their Python types."""

    def create_accumulator(self) -> list[str]:
        return []

    def add_input(self, accumulator: list[str], element: Any) -> list[str]:
        return [*accumulator, described(element)]

    def merge_accumulators(self, accumulators: Iterable[list[str]]) -> list[str]:
        return sorted(text for some in accumulators for text in some)

    def extract_output(self, accumulator: list[str]) -> str:
        return "; ".join(accumulator)


def described(element: Any) -> str:
    kind = type(element).__name__
    if isinstance(element, list | tuple):
        return f"{kind}({', '.join(map(described, element))})"
    if isinstance(element, dict):
        return f"{kind}({', '.join(f'{k}: {described(v)}' for k, v in element.items())})"
    return f"{kind} {element!r}"


KEYS: list[tuple[str, pa.DataType, list[Any]]] = [
    ("double", pa.float64(), [NAN, None, 0.0, -0.0, math.inf, 0.1]),
    ("float", pa.float32(), [NAN, None, 0.0, -0.0, 0.1, -math.inf]),
    ("list", pa.list_(pa.float64()), [[], None, [None], [NAN], [0.0], [-0.0]]),
    (
        "struct",
        pa.struct({"a": pa.int32(), "b": pa.int32()}),
        [{"a": None, "b": 5}, {"a": 5, "b": None}, None, {"a": None, "b": None}],
    ),
    ("bigint", pa.int64(), [None, 2**62 + 1, 2**62, -1]),
    ("date", pa.date32(), [None, date(9999, 12, 31), date(1, 1, 1)]),
    (
        "timestamp",
        pa.timestamp("us", "UTC"),
        [None, datetime(9999, 12, 30, tzinfo=timezone.utc), datetime(1, 1, 2, tzinfo=timezone.utc)],
    ),
    ("decimal", pa.decimal128(38, 2), [None, Decimal("1.10"), Decimal("-9" * 1 + "9" * 35)]),
    ("binary", pa.binary(), [None, b"", b"\x00\xff"]),
    ("string", pa.string(), [None, "", "ü\n\"'", "{}"]),
    ("interval", pa.duration("us"), [None, timedelta(days=-3, microseconds=1), timedelta(0)]),
    ("boolean", pa.bool_(), [None, True, False]),
]


@pytest.mark.parametrize(("kind", "values"), [k[1:] for k in KEYS], ids=[k[0] for k in KEYS])
def test_keys(spark: SparkSession, tmp_path: Path, kind: pa.DataType, values: list[Any]) -> None:
    """A running result has the groups of Spark's own grouping, and their values."""
    keys = [values[i % len(values)] for i in range(60)]
    table = pa.table({"k": pa.array(keys, kind), "x": range(60)})
    write_batches(tmp_path / "in", [table, table.slice(0, 20)])
    rows = read_batches(spark, tmp_path / "in")
    balance = Balancer("shuffle", checkpoint=str(tmp_path / "chk"))
    found = balance.groupBy(rows, "k").agg(combine(Described(), "x", returns="string").alias("all"))
    native = rows.groupBy("k").agg(F.count("*").alias("n"))
    assert found.schema["k"] == native.schema["k"]
    counts = [
        [(repr(key), 1 + text.count(";")) for key, text in batch]
        for batch in outputs(found, tmp_path / "chk", "update")
    ]
    wanted = outputs(native, tmp_path / "plain", "update")
    assert [sorted(batch) for batch in counts] == [
        sorted((repr(key), n) for key, n in batch) for batch in wanted
    ]


VALUES = """
    cast(1.5 AS float) AS f, cast(2 AS tinyint) AS t, 3L AS l, cast(null AS int) AS i,
    cast(1.10 AS decimal(10, 2)) AS d, DATE'9999-12-31' AS day,
    TIMESTAMP'9999-12-30 00:00:00' AS ts, TIMESTAMP_NTZ'2024-02-03 04:05:06' AS ntz,
    INTERVAL '3' DAY AS span, 'text' AS s, X'00ff' AS b, array(1, null) AS a,
    array(named_struct('x', 1, 'y', array('z'))) AS nested, map('k', 1.5D) AS m,
    named_struct('x', 1, 'y', null) AS st, true AS flag, cast('NaN' AS double) AS nan
"""


def test_elements(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"SELECT 1 AS k, {VALUES}").write.parquet(str(tmp_path / "in"))
    batch = spark.read.parquet(str(tmp_path / "in"))
    names = batch.columns[1:]
    texts: dict[str, Any] = {name: combine(Described(), name, returns="string") for name in names}
    texts["all"] = combine(Described(), *names, returns="string")
    once = Balancer("shuffle").groupBy(batch, "k").agg(*named(texts))
    stream = spark.readStream.schema(batch.schema).parquet(str(tmp_path / "in"))
    balance = Balancer("shuffle", checkpoint=str(tmp_path / "chk"))
    found = outputs(balance.groupBy(stream, "k").agg(*named(texts)), tmp_path / "chk", "update")
    assert found == [in_order(once)]
    (row,) = once.collect()
    assert row["ts"] == "datetime datetime.datetime(9999, 12, 30, 0, 0)"
    assert row["a"] == "list(int 1, NoneType None)"
    assert row["nested"] == "list(Row(int 1, list(str 'z')))"
    assert row["i"] == "NoneType None"


def test_inputs_of_one_name(spark: SparkSession) -> None:
    df = spark.range(3).selectExpr(
        "named_struct('x', id) AS a", "named_struct('x', -id) AS b", "1 AS k"
    )
    both = combine(Described(), "a.x", "b.x", returns="string")
    (row,) = Balancer("shuffle").groupBy(df, "k").agg(both.alias("both")).collect()
    assert row["both"] == "tuple(int 0, int 0); tuple(int 1, int -1); tuple(int 2, int -2)"


class Mean:
    """A mean from a sum and a count."""

    def create_accumulator(self) -> Any:
        return 0, 0

    def add_input(self, accumulator: Any, element: Any) -> Any:
        return accumulator[0] + element, accumulator[1] + 1

    def merge_accumulators(self, accumulators: Any) -> Any:
        sums, numbers = zip(*accumulators, strict=True)
        return sum(sums), sum(numbers)

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator[0] / accumulator[1]


@pytest.mark.parametrize("accumulator", [None, "sum decimal(20,2), n bigint"])
def test_accumulators_may_have_a_schema(
    spark: SparkSession, tmp_path: Path, accumulator: str | None
) -> None:
    key_costs = [Decimal(n) / 4 for n in range(40)]
    table = pa.table(
        {"key": [f"k{n % 3}" for n in range(40)], "x": pa.array(key_costs, pa.decimal128(10, 2))}
    )
    write_batches(tmp_path / "in", [table.slice(0, 25), table.slice(25)])
    mean = combine(Mean(), "x", returns="decimal(10,4)", accumulator=accumulator)
    kept = {key: [p for n, p in enumerate(key_costs) if n % 3 == key] for key in range(3)}
    wanted = [(f"k{key}", round(sum(some) / len(some), 4)) for key, some in kept.items()]
    rows = spark.read.parquet(str(tmp_path / "in"))
    assert in_order(Balancer("shuffle").groupBy(rows, "key").agg(mean.alias("mean"))) == wanted
    balance = Balancer("shuffle", checkpoint=str(tmp_path / "checkpoint"))
    running = balance.groupBy(read_batches(spark, tmp_path / "in"), "key").agg(mean.alias("mean"))
    assert outputs(running, tmp_path / "checkpoint", "update")[-1] == wanted


def test_accumulators_of_another_type_are_told(spark: SparkSession) -> None:
    mean = combine(Mean(), "x", returns="double", accumulator="sum bigint, n bigint")
    rows = spark.createDataFrame([("a", 1.5)], "key string, x double")
    with pytest.raises(
        PythonException, match=r"an accumulator must fit its schema .* got \(1\.5, 1\): "
    ):
        Balancer("shuffle").groupBy(rows, "key").agg(mean.alias("mean")).collect()
