"""A case: everything that is needed to build a plain and a balanced query, as plain data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

Kind = str | tuple[Any, ...]
"""A type: ``"int"``, ``("array", kind)``, ``("struct", kind, ...)`` or ``("map", key, value)``."""
Rows = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Field:
    """A column: its name, its type, and whether its schema allows null."""

    name: str
    kind: Kind
    nullable: bool = True


@dataclass(frozen=True)
class Table:
    """Columns and rows, divided into the micro-batches of a stream.

    Values are those of JSON: an integer for a date (days), a time (microseconds) or an interval
    (months or microseconds), a string for a decimal, hexadecimal digits for binary.
    """

    fields: tuple[Field, ...]
    batches: tuple[Rows, ...]
    static: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [field.name for field in self.fields]

    def values(self, name: str) -> list[Any]:
        """Return all values of a column."""
        index = self.names.index(name)
        return [row[index] for rows in self.batches for row in rows]


@dataclass(frozen=True)
class Key:
    """A key column, and how it is passed: ``name``, ``quoted``, ``case`` or ``column``."""

    column: str
    given: str = "name"


@dataclass(frozen=True)
class Measure:
    """An aggregate: a function of pyspark.sql.functions, its columns, and the result's name."""

    name: str
    function: str
    columns: tuple[str, ...] = ()
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Window:
    """A time window: ``window`` or ``session_window``, its length and slide, and the watermark."""

    function: str
    time: str
    length_s: int
    slide_s: int
    watermark_s: int


@dataclass(frozen=True)
class Case:
    """One comparison.

    Parameters
    ----------
    operator
        ``aggregate``, ``combine``, ``join``, ``route``, ``stateful`` or ``two windows``.
    ready_made
        Whether to use the aggregates of `unskew.spark.functions` where they exist.
    layout
        How a batch is partitioned: ``straight``, or ``repartition`` or ``coalesce`` with a number.
    output
        The output mode of a stream; empty for a batch.
    restart
        What is restarted after some batches: a ``rebuilt`` or the ``same`` DataFrame; empty for
        no restart.
    fault
        Where a task fails once: ``before`` or ``behind`` the balanced operator; or ``lost`` if
        shuffle files are lost; empty for no fault.
    noise
        Whether a column made by ``rand(0)`` is an additional key.
    """

    operator: str
    tables: tuple[Table, ...]
    keys: tuple[Key, ...]
    scheme: str
    mode: str | None = None
    measures: tuple[Measure, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    ready_made: bool = False
    layout: str = "straight"
    window: Window | None = None
    output: str = ""
    restart: str = ""
    restart_after: int = 0
    how: str = "inner"
    split: str | None = None
    fault: str = ""
    ordered: bool = False
    noise: bool = False

    @property
    def stream(self) -> bool:
        """Whether the case is a streaming query."""
        return bool(self.output)

    @property
    def label(self) -> str:
        """The kind of the case, for counts."""
        parts = [self.operator, self.output, self.window.function if self.window else ""]
        if self.operator == "join" and self.stream:
            parts.append("table" if self.tables[1].static else "stream")
        return " ".join(part for part in parts if part)

    def to_json(self) -> str:
        """Return the case as JSON."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Return the case that `to_json` wrote."""
        data = json.loads(text)
        tables = [
            Table(
                tuple(Field(f["name"], _frozen(f["kind"]), f["nullable"]) for f in t["fields"]),
                _frozen(t["batches"]),
                t["static"],
            )
            for t in data["tables"]
        ]
        measures = [
            Measure(m["name"], m["function"], _frozen(m["columns"]), _frozen(m["arguments"]))
            for m in data["measures"]
        ]
        window = Window(**data["window"]) if data["window"] else None
        keys = tuple(Key(**key) for key in data["keys"])
        parts = {"tables": tuple(tables), "measures": tuple(measures), "window": window}
        return cls(**{**data, **parts, "keys": keys})


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
