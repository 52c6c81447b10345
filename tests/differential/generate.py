"""Random cases: case n of a seed is always the same, and does not depend on earlier cases."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from differential.case import Case, Field, Key, Kind, Measure, Table, Window
from differential.kinds import MONTHS, has_map
from differential.measures import MERGEABLE, READY, Column, random_measures
from differential.settings import random_settings
from differential.values import MOMENT_US, random_column, random_kind

ODD = (
    *("Slot", "SLOT", "slot", "Window", "window", "Key", "left", "right", "n__0", "_x", "a.b"),
    *("a b", "a`b", "__unskew_id", "__unskew_latest", "__unskew_drawn", "ключ", "count(1)", "é"),
)
SIZES = ((0, 0), (1, 1), (2, 20), (2, 20), (10, 60), (10, 60), (20, 100), (100, 300))
PLANNED = (
    "waterline",
    "w-choices",
    "d-choices",
    "fish",
    "dstream",
    "shuffle",
    "round-robin-head",
    "mixed",
)
ONLINE = ("waterline", "pkg", "w-choices", "fish", "shuffle", "greedy-d:d=3", "dkg")


def random_names(rng: Random, n: int, sensitive: bool) -> list[str]:
    """Return names of columns, some of them odd, and all distinct for Spark."""
    names: dict[str, str] = {}
    odd = rng.random() < 0.35
    while len(names) < n:
        name = rng.choice(ODD) if odd and rng.random() < 0.5 else f"c{len(names)}"
        names.setdefault(name if sensitive else name.lower(), name)
    return list(names.values())


def random_scheme(rng: Random) -> tuple[str, str | None]:
    """Return a scheme and a mode."""
    if rng.random() < 0.05:
        return rng.choice(("key", "consistent")), None
    if rng.random() < 0.25:
        return rng.choice(ONLINE), "online"
    return rng.choice(PLANNED), rng.choice((None, "planned"))


def random_key(rng: Random, name: str, sensitive: bool) -> Key:
    """Return a key, passed in one of the ways that Spark accepts."""
    if name.replace("_", "a").isalnum():
        case = "quoted" if sensitive else "case"
        return Key(name, rng.choice(("name", "name", "name", "name", "quoted", case, "column")))
    return Key(name, rng.choice(("quoted", "column")))


def random_table(
    rng: Random, names: list[str], n_keys: int, rows: int, stream: bool = False
) -> tuple[Table, list[Column]]:
    """Return a table with keys first and a unique column last, and its other columns."""
    fields, columns, values = [], [], []
    for i, name in enumerate(names[:-1]):
        kind = random_kind(rng, maps=i >= n_keys)
        nullable = stream or rng.random() < 0.8
        data, wild = random_column(rng, kind, rows, nullable)
        fields.append(Field(name, kind, nullable))
        values.append(data)
        columns.append(Column(fields[-1], wild))
    fields.append(Field(names[-1], "bigint", stream))
    values.append(rng.sample(range(-rows, rows), rows))
    table = Table(tuple(fields), (tuple(zip(*values, strict=True)),))
    return table, columns[n_keys:]


def random_batch(rng: Random) -> Case:
    """Return a case of a batch."""
    if rng.random() < 0.2:
        return random_join(rng)
    operator = rng.choice(("aggregate",) * 8 + ("combine", "route"))
    settings = random_settings(rng)
    n_keys = rng.choice((1, 1, 1, 2, 3))
    sensitive = settings.get("spark.sql.caseSensitive") == "true"
    names = random_names(rng, n_keys + rng.randint(1, 4), sensitive)
    rows = rng.randint(*rng.choice(SIZES)) if rng.random() > 0.01 else 2000
    table, columns = random_table(rng, names, n_keys, rows)
    scheme, mode = random_scheme(rng)
    ready = rng.random() < 0.4
    functions = MERGEABLE if operator == "route" else READY if ready else ()
    case = Case(
        operator=operator,
        tables=(table,),
        keys=tuple(random_key(rng, name, sensitive) for name in names[:n_keys]),
        scheme=scheme,
        mode=mode,
        measures=random_measures(rng, columns, names[-1], functions),
        settings=settings,
        ready_made=ready,
        layout=rng.choice(
            ("straight", "straight", f"repartition {rng.randint(1, 4)}", "coalesce 1")
        ),
        fault=random_fault(rng, mode, settings) if rng.random() < 0.05 else "",
        ordered=rng.random() < 0.1,
        noise=rng.random() < 0.05,
    )
    if case.layout != "straight":  # the order of rows, and so the random column, may change
        case = replace(case, noise=False)
    if operator == "combine":
        return replace(case, measures=combined(rng, table, n_keys))
    if operator == "aggregate" and rng.random() < 0.15:
        return with_window(rng, case)
    return case


def random_fault(rng: Random, mode: str | None, settings: dict[str, str]) -> str:
    """Return a kind of fault; with lost shuffle files, Spark's checksums may be off."""
    fault = rng.choice(("before", "behind", "lost"))
    if fault == "lost" and mode != "online" and rng.random() < 0.5:
        settings["spark.sql.shuffle.orderIndependentChecksum.enabled"] = "false"
    return fault


def combined(rng: Random, table: Table, n_keys: int) -> tuple[Measure, ...]:
    """Return an aggregate by a CombineFn, over columns of types that Python has."""
    usable = [f.name for f in table.fields[n_keys:] if f.kind != MONTHS and not has_map(f.kind)]
    return (Measure("seen", "combine", tuple(usable[-rng.randint(1, 2) :])),)


def with_window(rng: Random, case: Case) -> Case:
    """Return a case of a batch with a time column and windows over it."""
    (table,) = case.tables
    kind = rng.choice(("timestamp", "timestamp", "timestamp_ntz"))
    name = rng.choice(("at", "time", "Time", "event time"))
    taken = {n.lower() for n in table.names}
    name = f"{name} 2" if name.lower() in taken else name

    def moment() -> int | None:
        return None if rng.random() < 0.03 else MOMENT_US + rng.randint(0, 200) * 1_000_000

    rows = tuple((*row, moment()) for row in table.batches[0])
    timed = Table((*table.fields, Field(name, kind)), (rows,))
    # Rows would be ordered by key only, and many windows share a key.
    return replace(case, tables=(timed,), window=random_window(rng, name), ordered=False)


def random_window(rng: Random, time: str) -> Window:
    """Return tumbling, sliding or session windows."""
    function = "session_window" if rng.random() < 0.25 else "window"
    length, slide = rng.choice(((10, 10), (30, 30), (60, 60), (40, 10), (30, 20)))
    return Window(function, time, length, slide, rng.choice((0, 10, 40)))


PAIRS: tuple[tuple[str, str], ...] = (
    ("int", "bigint"),
    ("smallint", "int"),
    ("decimal(5,2)", "decimal(18,4)"),
    ("decimal(18,4)", "decimal(38,18)"),
    ("int", "decimal(5,2)"),
    ("float", "double"),
    ("int", "double"),
    ("date", "timestamp"),
    ("int", "string"),
)


def converted(old: Kind, new: Kind, value: Any) -> Any:
    """Return a value of one type of a pair, converted to the other type."""
    if value is None or old == new:
        return value
    if isinstance(old, tuple) or isinstance(new, tuple):
        kinds = old[1:] * len(value) if old[0] == "array" else old[1:]
        others = new[1:] * len(value) if new[0] == "array" else new[1:]
        return tuple(converted(*each) for each in zip(kinds, others, value, strict=True))
    if new == "string" or new.startswith("decimal"):
        return str(value)
    if new == "timestamp":
        return value * 86_400_000_000
    return float(value) if new == "double" else value


def random_join(rng: Random) -> Case:
    """Return a join of two tables, whose keys may have different types."""
    settings = random_settings(rng)
    if rng.random() < 0.8:
        settings["spark.sql.autoBroadcastJoinThreshold"] = "-1"
    n_keys = rng.choice((1, 1, 1, 2))
    names = random_names(rng, n_keys + 4, settings.get("spark.sql.caseSensitive") == "true")
    left, right = random_sides(rng, names, n_keys)
    scheme, mode = random_scheme(rng)
    return Case(
        operator="join",
        tables=(left, right),
        keys=tuple(Key(name) for name in names[:n_keys]),
        scheme=scheme if mode != "online" else "w-choices",
        settings=settings,
        layout=rng.choice(("straight", "straight", "repartition 3")),
        how=rng.choice(("inner", "left", "right", "semi", "anti", "left_outer")),
        split=rng.choice((None, None, "left", "right")),
    )


def random_sides(rng: Random, names: list[str], n_keys: int) -> tuple[Table, Table]:
    """Return two tables with the same keys, whose other columns may differ only in case."""
    keys, kinds = names[:n_keys], []
    for _ in keys:
        old, new = rng.choice(PAIRS)  # type: Kind, Kind
        if rng.random() < 0.4:
            new = old = random_kind(rng)
        elif rng.random() < 0.2 and new != "string":
            old, new = (("array", old), ("array", new))
        elif rng.random() < 0.2 and new != "string":
            old, new = (("struct", "int", old), ("struct", "int", new))
        kinds.append((old, new))
    first = [random_column(rng, old, 60, True)[0] for old, _ in kinds]
    tames = [[None if _too_large(v) else v for v in column] for column in first]
    other = names[n_keys + 1].swapcase() if rng.random() < 0.2 else names[n_keys + 2]
    left_rows, right_rows = rng.choice((0, 1, 10, 60)), rng.choice((1, 10, 30))
    left, right = [], []
    for i in range(left_rows):
        left.append((*(column[i] for column in tames), i, rng.choice((None, 1.5))))
    for i in range(right_rows):
        at = rng.randrange(60)
        pairs = zip(kinds, tames, strict=True)
        right.append((*(converted(old, new, column[at]) for (old, new), column in pairs), i))
    lefts = [*(Field(n, old) for n, (old, _) in zip(keys, kinds, strict=True))]
    rights = [*(Field(n, new) for n, (_, new) in zip(keys, kinds, strict=True))]
    lefts += [Field(names[n_keys], "bigint"), Field(names[n_keys + 1], "double")]
    rights += [Field(other, "bigint")]
    return Table(tuple(lefts), (tuple(left),)), Table(tuple(rights), (tuple(right),))


def _too_large(value: Any) -> bool:
    """Return whether a value may not fit the other type of a pair."""
    if isinstance(value, tuple):
        return any(map(_too_large, value))
    if isinstance(value, str):
        return value.startswith("9999") or value.startswith("1000")
    return isinstance(value, int | float) and 1e6 < abs(value) < 1e12
