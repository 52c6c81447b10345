"""Random cases of streams: running aggregates, windows, joins, functions with state."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from differential.case import Case, Field, Key, Measure, Table
from differential.generate import (
    ONLINE,
    combined,
    random_key,
    random_names,
    random_sides,
    random_table,
    random_window,
)
from differential.measures import READY, STREAMABLE, random_measures
from differential.settings import random_settings
from differential.tables import RIGHT
from differential.values import MOMENT_US

PLANNED = ("restless", "restless", "waterline", "d-choices", "fish", "dstream", "shuffle", "mixed")
STEP_S = 20
TIME = "at"


def random_stream(rng: Random) -> Case:
    """Return a case of a stream."""
    makers = (running,) * 4 + (windowed,) * 4 + (two_windows, running_combine, joined, stateful)
    case: Case = rng.choice(makers)(rng)
    n_batches = max(len(table.batches) for table in case.tables)
    if n_batches > 1 and rng.random() < 0.5:
        after = rng.randint(1, n_batches - 1)
        return replace(case, restart=rng.choice(("rebuilt", "same")), restart_after=after)
    return case


def random_stream_scheme(rng: Random) -> tuple[str, str | None]:
    """Return a scheme whose plans change, and a mode."""
    if rng.random() < 0.25:
        return rng.choice(ONLINE), "online"
    return rng.choice(PLANNED), None


def basis(rng: Random, names: list[str] | None = None) -> tuple[Case, Table]:
    """Return a running aggregate of a stream, and its table before it was divided into batches."""
    settings = random_settings(rng, stream=True)
    sensitive = settings.get("spark.sql.caseSensitive") == "true"
    n_keys = rng.choice((1, 1, 1, 2))
    names = names or random_names(rng, n_keys + rng.randint(2, 4), sensitive)
    table, columns = random_table(rng, names, n_keys, rng.choice((0, 8, 40, 120, 250)), stream=True)
    scheme, mode = random_stream_scheme(rng)
    ready = rng.random() < 0.5
    functions = tuple(f for f in STREAMABLE if not ready or f in READY)
    case = Case(
        operator="aggregate",
        tables=(in_batches(rng, table),),
        keys=tuple(random_key(rng, name, sensitive) for name in names[:n_keys]),
        scheme=scheme,
        mode=mode,
        measures=random_measures(rng, columns, names[-1], functions),
        settings=settings,
        ready_made=ready,
        output=rng.choice(("update", "update", "complete")),
        fault=rng.choice(("before", "behind")) if rng.random() < 0.04 else "",
    )
    return case, table


def in_batches(rng: Random, table: Table) -> Table:
    """Return a table of one batch divided into several, one of them sometimes empty."""
    (rows,), n = table.batches, rng.choice((3, 3, 4, 4, 5, 6))
    cuts = sorted(rng.choices(range(len(rows) + 1), k=n - 1))
    ends = zip([0, *cuts], [*cuts, len(rows)], strict=True)
    return replace(table, batches=tuple(rows[start:end] for start, end in ends))


def running(rng: Random) -> Case:
    """Return a running aggregate."""
    return basis(rng)[0]


def running_combine(rng: Random) -> Case:
    """Return a running aggregate by a CombineFn."""
    case, table = basis(rng)
    measures = combined(rng, table, len(case.keys))
    return replace(case, operator="combine", measures=measures, output="update", ready_made=False)


def windowed(rng: Random) -> Case:
    """Return aggregates over windows, with late and unordered times."""
    case, _ = basis(rng)
    timed = with_times(rng, case.tables[0], TIME)
    output = rng.choice(("append", "append", "update", "complete"))
    window = random_window(rng, TIME)
    return replace(case, tables=(timed,), window=window, output=output)


def two_windows(rng: Random) -> Case:
    """Return the union of two windows of one balancer."""
    case = windowed(rng)
    assert case.window is not None
    window = replace(case.window, function="window", slide_s=case.window.length_s)
    return replace(case, operator="two windows", window=window, output="append")


def with_times(rng: Random, table: Table, name: str) -> Table:
    """Return a table with a time column that advances from batch to batch; some times are late."""

    def moment(batch: int) -> int | None:
        if rng.random() < 0.02:
            return None
        late_s = rng.choice((0, 0, 0, 15, 70))
        return MOMENT_US + (STEP_S * batch + rng.randint(0, STEP_S) - late_s) * 1_000_000

    batches = [
        tuple((*row, moment(number)) for row in rows) for number, rows in enumerate(table.batches)
    ]
    return Table((*table.fields, Field(name, "timestamp")), tuple(batches))


def joined(rng: Random) -> Case:
    """Return a join of a stream with a table or with another stream."""
    settings = random_settings(rng, stream=True)
    settings["spark.sql.autoBroadcastJoinThreshold"] = "-1"
    names = random_names(rng, 5, settings.get("spark.sql.caseSensitive") == "true")
    left, right = random_sides(rng, names, 1)
    left, scheme = in_batches(rng, left), rng.choice(("restless", "w-choices", "fish", "mixed"))
    case = Case(
        operator="join",
        tables=(left, replace(right, static=True)),
        keys=(Key(names[0]),),
        scheme=scheme,
        settings=settings,
        how=rng.choice(("inner", "left", "semi", "anti")),
        output="append",
    )
    return _of_two_streams(rng, case, right) if rng.random() < 0.5 else case


def _of_two_streams(rng: Random, case: Case, right: Table) -> Case:
    left = with_times(rng, case.tables[0], TIME)
    rights = with_times(rng, in_batches(rng, right), f"{TIME}{RIGHT}")
    far = MOMENT_US + 10**10  # so that rows without a match are emitted
    ends = [
        replace(table, batches=(*table.batches, ((*(None,) * (len(table.fields) - 1), far),)))
        for table in (left, rights)
    ]
    window = replace(random_window(rng, TIME), watermark_s=40)
    how = rng.choice(("inner", "left", "right", "semi"))
    return replace(case, tables=tuple(ends), window=window, how=how)


def stateful(rng: Random) -> Case:
    """Return a function with state."""
    settings = random_settings(rng, stream=True)
    pool: list[Any] = [None, "", "a", "b", "é", *map(str, range(20))]
    hot = rng.choice(pool)
    rows = tuple(
        (hot if rng.random() < 0.4 else rng.choice(pool), rng.randint(-9, 9)) for _ in range(100)
    )
    table = Table((Field("key", "string"), Field("x", "bigint")), (rows,))
    return Case(
        operator="stateful",
        tables=(in_batches(rng, table),),
        keys=(Key("key"),),
        scheme=rng.choice(("key", "mixed", "restless", "restless", "w-choices")),
        measures=(Measure("total", "adding", ("x",)),),
        settings=settings,
        output="update",
    )
