"""Streams in the columns of Parquet and CSV files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from unskew.hashing import hash_keys
from unskew.workloads.base import CHUNK_SIZE, Chunk
from unskew.workloads.files import FileStream


@dataclass(frozen=True)
class ColumnFile(FileStream):
    """A file with a key column, and perhaps a column of source keys.

    The key column is ``key`` where none is named, or the only column.
    """

    key: str | None = None
    source: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.is_blank:
            return
        with self.reading():
            schema = self.schema()
        if self.key is None and schema.names:
            object.__setattr__(self, "key", self._only_key(schema.names))
        for column in self.columns:
            self._check(column, schema)

    def _only_key(self, names: list[str]) -> str:
        if "key" in names or len(names) == 1:
            return "key" if "key" in names else names[0]
        raise ValueError(
            f"which column of {self.path} has the keys: {', '.join(names)}? Name it, as in "
            f"{self.path}:key={names[0]}"
        )

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the names and types of the file's columns."""

    @property
    def columns(self) -> list[str]:
        """The columns to read, each once."""
        return list(dict.fromkeys(name for name in (self.key, self.source) if name is not None))

    def _check(self, column: str, schema: pa.Schema) -> None:
        if column not in schema.names:
            raise ValueError(
                f"{self.path} has no column {column!r}: choose from {', '.join(schema.names)}"
            )
        if schema.names.count(column) > 1:
            raise ValueError(f"{self.path} has several columns {column!r}: rename all but one")
        try:
            hash_keys(pa.array([], self.read_type(schema.field(column))))
        except TypeError as error:
            raise ValueError(f"column {column!r} of {self.path}: {error}{self.hint}") from error

    hint: ClassVar[str] = ""
    """What may help where a column cannot be hashed."""

    def read_type(self, column: pa.Field) -> pa.DataType:
        """Return the type that a column will be read as."""
        return column.type

    def _chunk(self, batch: pa.RecordBatch) -> Chunk:
        keys = hash_keys(batch.column(self.key))
        return Chunk(keys, None if self.source is None else hash_keys(batch.column(self.source)))


@dataclass(frozen=True)
class ParquetFile(ColumnFile):
    """Keys in a column of a Parquet file.

    Parameters
    ----------
    path
        The file.
    key
        Column of the keys.
    source
        Column of the source keys, for sources fed by key.
    """

    kind: ClassVar[str] = "parquet"

    @property
    def n_records(self) -> int:
        """Number of records, from the file's footer."""
        if self.is_blank:
            return 0
        with self.reading(), pa.parquet.ParquetFile(self.path) as file:
            return int(file.metadata.num_rows)

    def schema(self) -> pa.Schema:
        """Return the names and types of the file's columns."""
        return pa.parquet.read_schema(self.path)

    def parts(self) -> Iterator[Chunk]:
        """Yield the records in pieces of any length."""
        if not self.columns:
            return
        with pa.parquet.ParquetFile(self.path) as file:
            for batch in file.iter_batches(CHUNK_SIZE, columns=self.columns):
                yield self._chunk(batch)


@dataclass(frozen=True)
class CsvFile(ColumnFile):
    """Keys in a column of a CSV file with a header, perhaps compressed (``.csv.gz``).

    The types come from the first MiB of the file.

    Parameters
    ----------
    path
        The file.
    key
        Column of the keys.
    source
        Column of the source keys, for sources fed by key.
    type
        ``string`` to take both columns as text: for keys as Spark reads them without a schema,
        or where a column turns from numbers to words after the first MiB.
    """

    kind: ClassVar[str] = "csv"
    hint: ClassVar[str] = "; or try type=string"

    type: str | None = None

    def __post_init__(self) -> None:
        if self.type not in (None, "string"):
            raise ValueError(f"type must be string or left out, got {self.type!r}")
        super().__post_init__()

    def read_type(self, column: pa.Field) -> pa.DataType:
        """Return the type that a column will be read as."""
        return pa.string() if self.type == "string" else column.type

    def schema(self) -> pa.Schema:
        """Return the names and types of the file's columns."""
        try:
            with closing(pa.csv.open_csv(self.path)) as reader:
                return reader.schema
        except pa.ArrowInvalid as error:
            # A compressed file of nothing: not blank by its size, but an empty stream all the same.
            if "Empty CSV file" in str(error):
                return pa.schema([])
            raise

    def parts(self) -> Iterator[Chunk]:
        """Yield the records in pieces of any length."""
        if not self.columns:
            return
        types = {name: pa.string() for name in self.columns} if self.type == "string" else None
        convert = pa.csv.ConvertOptions(include_columns=self.columns, column_types=types)
        try:
            with closing(pa.csv.open_csv(self.path, convert_options=convert)) as reader:
                for batch in reader:
                    yield self._chunk(batch)
        except pa.ArrowInvalid as error:
            if self.type is None and "conversion error" in str(error):
                raise ValueError(f"{self.path}: {error}; try type=string") from error
            raise
