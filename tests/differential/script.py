"""A case as a Python script that needs nothing but PySpark and unskew."""

from __future__ import annotations

from differential.case import Case, Key, Measure, Rows, Table
from differential.kinds import sql_value
from differential.tables import NOISE, quoted, time_column

HEAD = '''"""{title}"""

from datetime import timedelta
from pathlib import Path
import tempfile

from pyspark.sql import SparkSession, functions as F
from unskew.spark import Balancer, combine
from unskew.spark import functions as UF

spark = SparkSession.builder.master("local[2,4]").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
'''
STREAM = """
def write(folder, batch):
    batch.coalesce(1).write.mode("append").parquet(folder)

def stream(folder):
    reader = spark.readStream.schema(spark.read.parquet(folder).schema)
    return reader.option("maxFilesPerTrigger", 1).parquet(folder)

def run(df, checkpoint):
    def show(batch, number):
        print("batch", number, *batch.collect(), sep="\\n  ")
    out = df.writeStream.foreachBatch(show).outputMode({output!r}).trigger(availableNow=True)
    out.option("checkpointLocation", checkpoint).start().awaitTermination()

root = tempfile.mkdtemp()
"""
REPRS = """
class Reprs:
    def create_accumulator(self): return []
    def add_input(self, accumulator, element): return [*accumulator, repr(element)]
    def merge_accumulators(self, accumulators): return sum(accumulators, [])
    def extract_output(self, accumulator): return sorted(accumulator)
"""


def script(case: Case, title: str) -> str:
    """Return a script that prints the results of the plain and the balanced query."""
    text = HEAD.format(title=title.replace("\\", "/").replace('"', "'"))
    for name, value in case.settings.items():
        text += f"spark.conf.set({name!r}, {value!r})\n"
    if case.operator == "combine":
        text += REPRS
    return text + (_stream(case) if case.stream else _batch(case))


def _batch(case: Case) -> str:
    text = ""
    for side, table in zip(("df", "right"), case.tables, strict=False):
        text += f"{side} = {_values(table, tuple(r for b in table.batches for r in b))}\n"
    way, _, parts = case.layout.partition(" ")
    if way != "straight":
        text += f"df = df.{way}({parts})\n"
    if case.noise:
        text += f"df = df.withColumn({NOISE!r}, F.floor(F.rand(0) * 4).cast('int'))\n"
    text += f"balance = Balancer({case.scheme!r}, routing={case.mode!r})\n"
    text += f"plain = {_plain(case)}\nbalanced = {_balanced(case)}\n"
    return (
        text + "for df in (plain, balanced):\n    df.printSchema()\n    df.show(truncate=False)\n"
    )


def _stream(case: Case) -> str:
    text = STREAM.format(output=case.output)
    sides = [*zip(("df", "right"), case.tables, strict=False)]
    n_batches = max(len(table.batches) for table in case.tables)
    stops = [case.restart_after, n_batches] if case.restart else [n_batches]
    text += "for way in ('plain', 'balanced'):\n    print(way)\n    folder = f'{root}/{way}'\n"
    first = 0
    for stop in stops:
        for side, table in sides:
            for rows in [] if table.static else table.batches[first:stop]:
                text += f"    write(f'{{folder}}/{side}', {_values(table, rows)})\n"
        if first == 0 or case.restart == "rebuilt":
            text += _built(case, sides)
        text += "    run(result, f'{folder}/checkpoint')\n"
        first = stop
    return text


def _built(case: Case, sides: list[tuple[str, Table]]) -> str:
    text = ""
    for number, (side, table) in enumerate(sides):
        if table.static:
            rows = tuple(row for batch in table.batches for row in batch)
            text += f"    {side} = {_values(table, rows)}\n"
            continue
        late = ""
        if case.window is not None:
            time = time_column(case, number)
            late = f".withWatermark({time!r}, '{case.window.watermark_s} seconds')"
        text += f"    {side} = stream(f'{{folder}}/{side}'){late}\n"
    text += f"    balance = Balancer({case.scheme!r}, routing={case.mode!r}, "
    text += "checkpoint=f'{folder}/checkpoint')\n    if way == 'plain':\n"
    return (
        text + f"        result = {_plain(case)}\n    else:\n        result = {_balanced(case)}\n"
    )


def _values(table: Table, rows: Rows) -> str:
    names = ", ".join(map(quoted, table.names))
    kinds = [field.kind for field in table.fields]
    shown = rows or ((None,) * len(kinds),)
    tuples = [
        f"({', '.join(sql_value(k, v) for k, v in zip(kinds, row, strict=True))})" for row in shown
    ]
    query = f"SELECT * FROM VALUES {', '.join(tuples)} AS t({names})"
    text = f"spark.sql({query!r})"
    return text if rows else f"{text}.limit(0)"


def _key(key: Key) -> str:
    names = {"column": f"F.col({quoted(key.column)!r})", "quoted": repr(quoted(key.column))}
    shown = key.column.swapcase() if key.given == "case" else key.column
    return names.get(key.given, repr(shown))


def _keys(case: Case) -> str:
    return ", ".join([*map(_key, case.keys), *([repr(NOISE)] if case.noise else [])])


def _measure(measure: Measure) -> str:
    if measure.function == "count_star":
        return "F.count('*')"
    columns = [f"F.col({quoted(name)!r})" for name in measure.columns]
    if measure.function == "spread":
        return f"F.max({columns[0]}) - F.min({columns[0]})"
    return f"F.{measure.function}({', '.join([*columns, *map(repr, measure.arguments)])})"


def _window(case: Case, times: int = 1) -> str:
    if case.window is None:
        return "None"
    slide = ""
    if case.window.function == "window" and times == 1:
        slide = f", '{case.window.slide_s} seconds'"
    length = f"{times * case.window.length_s} seconds"
    return f"F.{case.window.function}({quoted(case.window.time)!r}, '{length}'{slide})"


def _plain(case: Case, times: int = 1) -> str:
    if case.operator == "join":
        names = [key.column for key in case.keys]
        return f"df.join(right, on={names!r}, how={case.how!r})  # and within times, if any"
    if case.operator == "two windows" and times == 1:
        one = _plain(case, 3)
        return f"{one}.union({one.replace(_window(case, 3), _window(case))})"
    if case.operator == "stateful":
        return "df.groupBy('key').applyInPandasWithState(...)"
    window = "" if case.window is None else f"{_window(case, times)}, "
    if case.operator == "combine":
        (measure,) = case.measures
        structs = f"F.collect_list(F.struct({', '.join(map(repr, map(quoted, measure.columns)))}))"
        return f"df.groupBy({_keys(case)}).agg({structs}.alias({measure.name!r}))"
    measures = [f"({_measure(m)}).alias({m.name!r})" for m in case.measures]
    return f"df.groupBy({window}{_keys(case)}).agg({', '.join(measures)})"


def _balanced(case: Case, times: int = 1) -> str:
    if case.operator == "join":
        names = [key.column for key in case.keys]
        more = ""
        if case.window is not None:
            more = f", times={(time_column(case, 0), time_column(case, 1))!r}, "
            more += "within=(timedelta(seconds=-10), timedelta(seconds=15))"
        return f"balance.join(df, right, {names!r}, how={case.how!r}, split={case.split!r}{more})"
    if case.operator == "two windows" and times == 1:
        one = _balanced(case, 3)
        return f"{one}.union({one.replace(_window(case, 3), _window(case))})"
    if case.operator == "route":
        return f"df.transform(balance.route, {_keys(case)})  # grouped by the keys and slot"
    if case.operator == "stateful":
        return "balance.groupBy(df, 'key').applyInPandasWithState(...)"
    if case.operator == "combine":
        (measure,) = case.measures
        columns = ", ".join(f"F.col({quoted(name)!r})" for name in measure.columns)
        aggregate = f"combine(Reprs(), {columns}, returns='array<string>')"
        return f"balance.groupBy(df, {_keys(case)}).agg({aggregate}.alias({measure.name!r}))"
    measures = ", ".join(f"({_ready_made(case, m)}).alias({m.name!r})" for m in case.measures)
    window = "" if case.window is None else f"{_window(case, times)}, "
    return f"balance.groupBy(df, {window}{_keys(case)}).agg({measures})"


def _ready_made(case: Case, measure: Measure) -> str:
    names = {"count_star": "count", "avg": "mean"}
    if not case.ready_made or len(measure.columns) > 1:
        return _measure(measure)
    columns = [f"F.col({quoted(name)!r})" for name in measure.columns]
    return f"UF.{names.get(measure.function, measure.function)}({', '.join(columns)})"
