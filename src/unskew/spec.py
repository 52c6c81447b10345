"""What spec strings of streams and schemes have in common: pairs, numbers, near misses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

MOST = 2**63
"""What a number in a spec must be below, unless its parameter says otherwise."""


def pairs(parts: Iterable[str], form: str) -> dict[str, str]:
    """Return the ``name=value`` pairs by name, each given once.

    Examples
    --------
    >>> pairs(["z=1.4", "keys=1e4"], "name=value,name=value")
    {'z': '1.4', 'keys': '1e4'}
    """
    given: dict[str, str] = {}
    for part in parts:
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise ValueError(f"options must look like {form}, got {part!r}")
        if name in given:
            raise ValueError(f"{name} must be given once, got {given[name]} and {value}")
        given[name] = value
    return given


def number(name: str, text: str, whole: bool) -> float:
    """Return a number, written as a person does: ``1e6`` is a whole one too.

    Examples
    --------
    >>> number("records", "1e6", whole=True), number("z", "1.4", whole=False)
    (1000000, 1.4)
    """
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise ValueError(f"{name} must be a number, got {text!r}")
    if abs(value) >= MOST:
        raise ValueError(f"{name} must be below 2^63, got {text!r}")
    if not whole:
        return value
    if not value.is_integer():
        raise ValueError(f"{name} must be a whole number, got {text!r}")
    return int(value)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that is nearest, if any is near."""
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def init_fields(cls: type[Any]) -> dict[str, str]:
    """Return the parameters of a dataclass, with their types as written."""
    return {f.name: str(f.type) for f in fields(cls) if f.init}


def read_named(
    kind: str,
    text: str,
    table: Mapping[str, Any],
    parameters_of: Callable[[Any], dict[str, str]] = init_fields,
) -> list[tuple[str, dict[str, Any]]]:
    """Return the names that a string gives, each with its parameters: ``a,b:name=value``."""
    named = []
    for part in text.split(","):
        name, *options = (piece.strip() for piece in part.split(":"))
        given = pairs(options, f"{name}:name=value:name=value")
        check_named(kind, name, table, given, parameters_of)
        types = parameters_of(table[name])
        named.append((name, {key: _value(key, v, types[key]) for key, v in given.items()}))
    return named


def check_named(
    kind: str,
    name: str,
    table: Mapping[str, Any],
    parameters: Iterable[str],
    parameters_of: Callable[[Any], dict[str, str]] = init_fields,
) -> None:
    """Refuse a name that a table does not have, and parameters that it does not take."""
    if name not in table:
        raise ValueError(
            f"unknown {kind} {name!r}{did_you_mean(name, table)}: use {', '.join(table)}"
        )
    known = parameters_of(table[name])
    for parameter in parameters:
        if parameter not in known:
            hint = did_you_mean(parameter, known)
            raise ValueError(f"{name} has no parameter {parameter!r}{hint}: use {', '.join(known)}")


def _value(name: str, text: str, kind: str) -> Any:
    if "Sequence" in kind:
        return tuple(number(name, part, whole=False) for part in text.split("/"))
    if not kind.startswith(("int", "float")):
        return text
    value = number(name, text, whole=kind.startswith("int"))
    return value if kind.startswith("int") else float(value)
