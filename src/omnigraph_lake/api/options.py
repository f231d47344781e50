"""Types of arguments: words, rows, sources, and options of calls that have many.

Nothing is imported here that a reader of a graph would not need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from os import PathLike
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, Union

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph_lake.runner.progress import Progress
    from omnigraph_lake.runner.session import SparkTarget

Mode: TypeAlias = Literal["append", "merge", "replace", "overwrite"]
"""What a write does with rows that exist."""

Durability: TypeAlias = Literal["commit", "os"]
"""Whether acknowledged writes on a local disk survive a power failure, or only a process crash."""

Verify: TypeAlias = Literal["metadata", "first-read"]
"""Which files are compared with their checksums before they are read."""


class ArrowStream(Protocol):
    """Tables with the Arrow stream interface: of pyarrow, polars, pandas, DuckDB and others."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


class Networkx(Protocol):
    """A graph of networkx."""

    @property
    def nodes(self) -> object: ...

    @property
    def edges(self) -> object: ...

    def is_multigraph(self) -> bool: ...


Rows: TypeAlias = ArrowStream | Sequence[Mapping[str, object]]
"""Rows of one type: an Arrow table or stream, a data frame, or a list of dicts."""

Key: TypeAlias = (
    str
    | int
    | float
    | Decimal
    | date
    | datetime
    | tuple[str | int | float | Decimal | date | datetime, ...]
)
"""The value of a key; a tuple of them if a key has several properties."""

# Unions, as `|` does not take the names of types that only type checkers import.
Source: TypeAlias = (
    str
    | PathLike[str]
    | Iterable[str | PathLike[str]]
    | Mapping[str, Union[ArrowStream, "DataFrame"]]
)
"""What is loaded: paths, patterns and directories, or frames by type name."""

ImportedInput: TypeAlias = (
    str
    | PathLike[str]
    | Iterable[str | PathLike[str]]
    | Mapping[str, Union[ArrowStream, "DataFrame", Sequence[Mapping[str, object]]]]
    | Networkx
)
"""What is imported: paths, patterns and directories, frames by name, or a networkx graph."""

Spark: TypeAlias = Union["SparkSession", "SparkTarget"]
"""Where Spark runs: a session, or a target for which a session is started."""

Resolve: TypeAlias = str | PathLike[str] | Mapping[str, object]
"""How conflicts are resolved: `"ours"`, `"theirs"`, `"newest"`, a mapping by type and column, or
the path of a JSON file with one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of `import_data`."""

    format: str | None = None
    """The format of all files, instead of what their names say: csv, jsonl, json, parquet, arrow,
    sqlite, duckdb or graphml."""
    header: bool | None = None
    """Whether the first record of CSV files, and of arrays of JSON arrays, has the names of the
    columns; found out by default."""
    delimiter: str | None = None
    """The character between the cells of CSV files; found out by default."""
    encoding: str | None = None
    """The encoding of CSV and JSON files, as `"cp1252"`; by default UTF-8, and what is recognised:
    UTF-16 with a byte order mark, and windows-1252."""
    unknown_columns: Literal["error", "ignore", "keep"] | None = None
    """What is done with columns that the mapping does not name: refuse them (the default), skip
    them, or keep their values as JSON in a property."""
    missing_endpoints: Literal["reject", "create"] = "reject"
    """Whether edges to missing nodes are rejected, or the nodes are created."""
    keys: Mapping[str, str] | None = None
    """The column of the key, by type or source, as in `{"Customer": "customer_id"}`; only for a
    new graph."""
    edges: Mapping[str, str] | None = None
    """The type or source that a column refers to, as in `{"Order.sold_to": "Customer"}`. Choices
    for a graph that exists edit its mapping, and its schema."""
    types: Mapping[str, str] | None = None
    """The type of a column of texts, as in `{"Order.day": "Date"}`: String, Bool, I64, F64, Date or
    DateTime; or, only for a new graph, the source with whose records those of a source are of one
    type, as in `{"test": "train"}`."""
    null_words: Sequence[str] = ()
    """Texts that mean no value, in every column."""
    sample: int | None = None
    """Infer the schema from so many records of each source, instead of all."""
    schema_out: str | PathLike[str] | None = None
    """Where the inferred schema is written; beside the graph by default."""
    map_out: str | PathLike[str] | None = None
    """Where the inferred mapping is written; beside the graph by default."""
    max_rejected: int | str | None = None
    """How many records to reject at most: a number or a share, as in `"0.1%"` (10% by default)."""
    engine: Literal["auto", "local", "spark"] = "auto"
    """Where to run: `auto` is this process for small inputs and Spark for large ones."""
    branch: str | None = None
    """The branch to import into; it is created from main if it does not exist."""
    quarantine: str | None = None
    """Where rejected records are written; inside the graph by default."""
    progress: Progress | None = None
    """Receives the progress of the load."""
    storage_options: Mapping[str, str] | None = None
    """Options of the object stores of the graph and of the input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """Options of `Graph.load`."""

    columns: Mapping[str, str] | None = None
    """Columns of the input by property, where their names differ."""
    dialect: Literal["0.7"] | None = None
    """How JSON lines spell dates and times: `"0.7"` for exports of Omnigraph 0.7."""
    end_type: Mapping[str, str] | None = None
    """Node types of ends of edges that the input does not name, as in `{"to": "Company"}`."""
    order_by: str | None = None
    """Of several records with one key, keep the one with the highest value of this property."""
    max_rejected: int | str | None = None
    """How many records to reject at most: a number or a share, as in `"0.1%"` (10% by default)."""
    engine: Literal["auto", "local", "spark"] = "auto"
    """Where to run: `auto` is this process, or Spark if it is given or at hand."""
    branch: str | None = None
    """The branch to load into; the branch of the graph by default."""
    source: str | None = None
    """Create the branch from this one if it does not exist."""
    into: str | None = None
    """Merge the branch into this one once the load was checked as a whole."""
    audit: str | PathLike[str] | None = None
    """A file of queries that must return no rows before the merge."""
    quarantine: str | None = None
    """Where rejected records are written; inside the graph by default."""
    merge_schema: bool = False
    """Whether columns of frames that their types do not have become nullable properties, in the
    same commit."""
    progress: Progress | None = None
    """Receives the progress of the load."""
    storage_options: Mapping[str, str] | None = None
    """Options of the object store of the input; by default those of the graph if it is on a store
    of the same kind, and else the environment."""
