"""The differential tester: a fixed part of its cases, and the tester itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, LongType, StringType, StructType

from differential.case import Case, Field, Key, Measure, Table
from differential.compare import Outcome, Verdict, canonical, compare
from differential.run import judge
from differential.script import script
from differential.shrink import shrunk
from differential.tester import Difference, Tally, random_case, shrink

SEED = 7
BATCHES, STREAMS = 40, 5
ROWS = (("a", 1.5), ("b", -0.0), (None, math.nan), ("a", 2.0))
CASE = Case(
    operator="aggregate",
    tables=(Table((Field("k", "string"), Field("x", "double")), (ROWS * 10,)),),
    keys=(Key("k"),),
    scheme="fish",
    measures=(Measure("n", "count_star"), Measure("total", "sum", ("x",))),
    settings={"spark.sql.shuffle.partitions": "7"},
)
SCHEMA = StructType().add("k", StringType()).add("n", LongType()).add("total", DoubleType())


@pytest.mark.parametrize("number", range(BATCHES))
def test_batches_give_what_plain_ones_do(spark: SparkSession, number: int) -> None:
    check(spark, random_case("batch", SEED, number))


@pytest.mark.parametrize("number", range(STREAMS))
def test_streams_give_what_plain_ones_do(spark: SparkSession, number: int) -> None:
    check(spark, random_case("stream", SEED, number))


def check(spark: SparkSession, case: Case) -> None:
    # Faults need a session that retries tasks.
    case = replace(case, fault="")
    verdict = judge(spark, case)
    assert not verdict.differs, f"{verdict}\n{script(case, verdict.kind)}"


def outcome(*rows: tuple[object, ...], schema: StructType = SCHEMA) -> Outcome:
    return Outcome(schema, [list(rows)], built=True)


@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_case_is_the_same_each_time_and_as_json(kind: str) -> None:
    for number in range(200):
        case = random_case(kind, 1, number)
        text = case.to_json()
        assert text == random_case(kind, 1, number).to_json()
        assert Case.from_json(text).to_json() == text
        assert compile(script(case, "a title"), "script.py", "exec")


def test_one_zero_one_nan_lists_in_no_order() -> None:
    assert repr(canonical((-0.0, [math.nan], bytearray(b"x")))) == "(0.0, ['NaN'], b'x')"
    assert canonical(["b", "a"], unordered=True) == ["a", "b"]
    assert canonical(["b", "a"]) == ["b", "a"]


def test_rows_are_compared_in_any_order_and_sums_but_for_rounding() -> None:
    plain = outcome(("a", 1, 0.3), ("b", 2, math.nan))
    assert compare(CASE, plain, outcome(("b", 2, math.nan), ("a", 1, 0.1 + 0.2))).kind == "same"
    assert compare(CASE, plain, outcome(("b", 2, math.nan), ("a", 1, 0.3001))).kind == "rows"
    assert compare(CASE, plain, outcome(("b", 2, math.nan), ("a", 2, 0.3))).kind == "rows"
    assert compare(CASE, plain, outcome(("a", 1, 0.3))).kind == "rows"
    ordered = replace(CASE, ordered=True)
    assert compare(ordered, plain, outcome(*reversed(plain.batches[0]))).kind == "order"


def test_schemas_are_compared() -> None:
    other = StructType().add("k", StringType()).add("n", LongType(), False)
    other = other.add("total", DoubleType())
    assert compare(CASE, outcome(), outcome(schema=other)).kind == "schema"


def test_updates_are_compared_batch_by_batch() -> None:
    case = replace(CASE, output="update")
    plain = Outcome(SCHEMA, [[("a", 1, 1.0)], [], [("a", 2, 2.0)]], built=True)
    late = Outcome(SCHEMA, [[("a", 1, 1.0)], [("a", 2, 2.0)]], built=True)
    swapped = Outcome(SCHEMA, plain.batches[::-1], built=True)
    assert compare(case, plain, late).kind == "same"
    assert compare(case, plain, swapped).kind == "rows"


def test_refusals_name_a_way_out() -> None:
    def kind(error: Exception, built: bool = False) -> str:
        return compare(CASE, outcome(), Outcome(error=error, built=built)).kind

    assert kind(ValueError("there is a column 'slot': rename it")) == "refused"
    assert kind(ValueError("this is not possible")) == "no way out"
    assert kind(KeyError("rename it")) == "error"
    assert kind(ValueError("rename it"), built=True) == "error"
    failed = Outcome(error=RuntimeError("[ARITHMETIC_OVERFLOW] long"), built=True)
    assert compare(CASE, failed, outcome()).kind == "no error"
    assert compare(CASE, failed, failed).kind == "both fail"


def planted(case: Case) -> Verdict:
    """Return a difference for each case with a null key and a sum."""
    null = None in case.tables[0].values(case.keys[0].column)
    wrong = null and any(m.function == "sum" for m in case.measures)
    return Verdict("rows", "planted") if wrong else Verdict("same")


def test_a_planted_difference_is_found_and_shrunk() -> None:
    tally = Tally()
    difference = tally.add(3, CASE, planted(CASE), 0.1)
    assert isinstance(difference, Difference)
    assert tally.add(4, CASE, planted(CASE), 0.1) is None
    small = shrink(difference, planted, 5.0).case
    assert [len(rows) for rows in small.tables[0].batches] == [1]
    assert [m.function for m in small.measures] == ["sum"]
    assert small.scheme == "shuffle"
    assert small.settings == {"spark.sql.shuffle.partitions": "2"}


def test_shrinking_ends_in_time() -> None:
    assert shrunk(CASE, lambda _: True, 0.0) == CASE
