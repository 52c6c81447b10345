"""Shrinks a case that differs, as long as it still differs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from differential.case import Case, Key, Rows, Table
from differential.settings import PARTITIONS
from differential.tables import RIGHT

FEW = 12
"""With at most this many rows, rows are removed one by one."""


def shrunk(case: Case, differs: Callable[[Case], bool], limit_s: float) -> Case:
    """Return the smallest case that still differs and that was found within some seconds."""
    until, smaller = time.monotonic() + limit_s, True
    while smaller:
        smaller = False
        for candidate in candidates(case):
            if time.monotonic() > until:
                return case
            if differs(candidate):
                case, smaller = candidate, True
                break
    return case


def candidates(case: Case) -> Iterator[Case]:
    """Yield smaller cases, the much smaller ones first."""
    yield from _fewer_rows(case)
    yield from _simpler(case)
    if len(case.measures) > 1:
        for measure in case.measures:
            rest = tuple(m for m in case.measures if m != measure)
            yield replace(case, measures=rest)
    yield from _fewer_columns(case)
    yield from _plain_names(case)


def _fewer_rows(case: Case) -> Iterator[Case]:
    for at, table in enumerate(case.tables):
        for batches in _smaller(table.batches, case.stream):
            if case.restart_after < len(batches) or not case.restart:
                yield _with_table(case, at, replace(table, batches=batches))


def _smaller(batches: tuple[Rows, ...], stream: bool) -> Iterator[tuple[Rows, ...]]:
    if stream and len(batches) > 1:
        for drop in range(len(batches)):
            yield batches[:drop] + batches[drop + 1 :]
    for i, rows in enumerate(batches):
        for part in _parts(rows):
            yield *batches[:i], part, *batches[i + 1 :]


def _parts(rows: Rows) -> Iterator[Rows]:
    half = len(rows) // 2
    if half:
        yield rows[:half]
        yield rows[half:]
    if 0 < len(rows) <= FEW:
        for drop in range(len(rows)):
            yield rows[:drop] + rows[drop + 1 :]


def _simpler(case: Case) -> Iterator[Case]:
    """Yield cases in which one option has its default value."""
    defaults: dict[str, Any] = {
        "fault": "",
        "restart": "",
        "ordered": False,
        "noise": False,
        "layout": "straight",
        "mode": None,
        "split": None,
    }
    if case.operator == "aggregate" and case.output != "append":
        defaults["window"] = None
    for name, value in defaults.items():
        if getattr(case, name) != value:
            yield replace(case, **{name: value})
    if case.scheme != "shuffle":
        for scheme in ("shuffle", *(() if case.scheme == "w-choices" else ("w-choices",))):
            yield replace(case, scheme=scheme, mode=None)
    for name, setting in case.settings.items():
        if name != PARTITIONS:
            rest = {n: s for n, s in case.settings.items() if n != name}
            yield replace(case, settings=rest)
        elif setting not in ("1", "2"):
            yield replace(case, settings={**case.settings, PARTITIONS: "2"})
    for i, key in enumerate(case.keys):
        if key.given != "name":
            yield replace(case, keys=(*case.keys[:i], Key(key.column), *case.keys[i + 1 :]))


def _fewer_columns(case: Case) -> Iterator[Case]:
    if len(case.keys) > 1:
        for key in case.keys:
            yield replace(case, keys=tuple(k for k in case.keys if k != key))
    used = {key.column for key in case.keys} | {c for m in case.measures for c in m.columns}
    for at, table in enumerate(case.tables):
        for i, field in enumerate(table.fields):
            timed = case.window is not None and field.name.startswith(case.window.time)
            if field.name in used or timed or len(table.fields) == 1:
                continue
            batches = tuple(tuple(row[:i] + row[i + 1 :] for row in rows) for rows in table.batches)
            fields = table.fields[:i] + table.fields[i + 1 :]
            yield _with_table(case, at, replace(table, fields=fields, batches=batches))


def _with_table(case: Case, at: int, table: Table) -> Case:
    return replace(case, tables=(*case.tables[:at], table, *case.tables[at + 1 :]))


def _plain_names(case: Case) -> Iterator[Case]:
    """Yield cases in which one column or result has an ordinary name."""
    times = {f"{case.window.time}{more}" for more in ("", RIGHT)} if case.window else set()
    names = {name for table in case.tables for name in table.names} - times
    for number, name in enumerate(sorted(names)):
        if not _ordinary(name):
            yield renamed(case, name, f"p{number}")
    for i, measure in enumerate(case.measures):
        if not _ordinary(measure.name):
            simple = replace(measure, name=f"m{i}")
            measures = (*case.measures[:i], simple, *case.measures[i + 1 :])
            yield replace(case, measures=measures)


def _ordinary(name: str) -> bool:
    return len(name) == 2 and name[0] in "cpm" and name[1].isdigit()


def renamed(case: Case, old: str, new: str) -> Case:
    """Return a case in which a column has another name."""

    def name(column: str) -> str:
        return new if column == old else column

    tables = tuple(
        replace(t, fields=tuple(replace(f, name=name(f.name)) for f in t.fields))
        for t in case.tables
    )
    measures = tuple(replace(m, columns=tuple(map(name, m.columns))) for m in case.measures)
    keys = tuple(replace(key, column=name(key.column)) for key in case.keys)
    return replace(case, tables=tables, measures=measures, keys=keys)
