"""One string for any stream: ``zipf:z=1.4,keys=1e4``, ``ln1``, ``x.parquet:key=user``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from unskew.spec import did_you_mean, number, pairs
from unskew.workloads.base import Stream
from unskew.workloads.columns import CsvFile, ParquetFile
from unskew.workloads.evolving_zipf import EvolvingZipf
from unskew.workloads.files import FileStream, check_file
from unskew.workloads.fluctuating_zipf import FluctuatingZipf
from unskew.workloads.generated import Generated
from unskew.workloads.log_normal import LN1, LN2, LogNormal
from unskew.workloads.matched import CT, LJ, TW, WP, Matched
from unskew.workloads.text import EdgeFile, WordFile
from unskew.workloads.uniform import Uniform
from unskew.workloads.zipf import Zipf

FORM = "name=value,name=value"

STREAMS: dict[str, type[Generated]] = {
    "zipf": Zipf,
    "uniform": Uniform,
    "evolving-zipf": EvolvingZipf,
    "fluctuating-zipf": FluctuatingZipf,
    "log-normal": LogNormal,
    "ln1": LN1,
    "ln2": LN2,
    "matched": Matched,
    "wp": WP,
    "tw": TW,
    "ct": CT,
    "lj": LJ,
}

FORMATS: dict[str, type[FileStream]] = {
    "parquet": ParquetFile,
    "csv": CsvFile,
    "words": WordFile,
    "edges": EdgeFile,
}

ENDINGS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".csv.gz": "csv",
    ".txt": "words",
    ".txt.gz": "words",
    ".text": "words",
    ".edges": "edges",
    ".edges.gz": "edges",
}


def open_stream(spec: str) -> Stream:
    """Return the stream that a spec names: a generator or a file, with its options.

    Parameters
    ----------
    spec
        ``name`` or ``name:parameter=value,...`` with a name of `STREAMS`; or the path of a file,
        after a colon perhaps ``key=column``, ``source=column`` and ``format=`` one of `FORMATS`.

    Examples
    --------
    >>> open_stream("zipf:z=1.4,keys=1e4,records=1e6,seed=1")
    Zipf(z=1.4, keys=10000, records=1000000, seed=1)
    >>> open_stream("zpif")
    Traceback (most recent call last):
    ValueError: unknown stream 'zpif' (did you mean 'zipf'?): give a file or one of zipf, uniform, \
evolving-zipf, fluctuating-zipf, log-normal, ln1, ln2, matched, wp, tw, ct, lj
    """
    name, _, options = spec.partition(":")
    if name in STREAMS:
        return _generated(name, pairs(options.split(","), FORM) if options else {})
    path, options = _split_path(spec)
    given = pairs(re.split(r",(?=\w+=)", options), FORM) if options else {}
    ending = _ending(path)
    if not spec or not (path.exists() or ending or "format" in given or len(path.parts) > 1):
        hint = did_you_mean(name, STREAMS)
        known = ", ".join(STREAMS)
        raise ValueError(f"unknown stream {name!r}{hint}: give a file or one of {known}")
    return _file(path, given.pop("format", ending), given)


def summaries() -> dict[str, str]:
    """Return one line on every generator, by name.

    Examples
    --------
    >>> summaries()["uniform"]
    'Keys 1..keys, all equally likely.'
    """
    return {name: (cls.__doc__ or "").partition("\n")[0] for name, cls in STREAMS.items()}


def _generated(name: str, given: dict[str, str]) -> Generated:
    cls = STREAMS[name]
    kinds = {f.name: f.type for f in fields(cls)}  # type: ignore[arg-type]
    _refuse_unknown(name, given, kinds)
    return cls(**{key: number(key, text, kinds[key] == "int") for key, text in given.items()})


def _file(path: Path, form: str | None, given: dict[str, str]) -> FileStream:
    known = ", ".join(FORMATS)
    check_file(path)
    if form is None:
        raise ValueError(f"cannot tell the format of {path}: add :format= with one of {known}")
    if form not in FORMATS:
        raise ValueError(f"unknown format {form!r}{did_you_mean(form, FORMATS)}: use {known}")
    cls = FORMATS[form]
    options = [f.name for f in fields(cls) if f.name != "path"]
    _refuse_unknown(f"{cls.kind} file {path}", given, [*options, "format"])
    values: dict[str, Any] = given
    return cls(path, **values)


def _split_path(spec: str) -> tuple[Path, str]:
    match = re.fullmatch(r"(.+?):(\w+=.*)", spec)
    if match is None or Path(spec).exists():
        return Path(spec), ""
    return Path(match[1]), match[2]


def _ending(path: Path) -> str | None:
    name = path.name.lower()
    return next((form for ending, form in ENDINGS.items() if name.endswith(ending)), None)


def _refuse_unknown(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    names = list(known)
    for name in given:
        if name not in names:
            hint = did_you_mean(name, names)
            raise ValueError(
                f"{owner} has no option {name!r}{hint}: choose from {', '.join(names)}"
            )
