"""Which checks of a schema change existing rows fail, how many rows, and the first of them.

Invariant: a row is validated as in a write: by the same kernels where a row is checked alone, by
the same engine and the same equality where rows are compared. Rows are streamed; what is kept is
counts and a few ids. Two runs over the same pins give the same answer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, TypeAlias, TypeGuard, assert_never

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import OmnigraphError, StorageUnavailableError
from omnigraph.evolution.plan import data_checks
from omnigraph.evolution.plan.columns import FutureColumn, LiteralFill
from omnigraph.evolution.table_changes import columns_read, future_values, sources_of
from omnigraph.names import ID_COLUMN, SOURCE_COLUMN
from omnigraph.runner.databases import open_database
from omnigraph.schema.arrow import arrow_type
from omnigraph.storage.lance.tables import find_entry, plan_scan, scan_fragments
from omnigraph.validation.constraints import InEnum, InRange, Matches, RowRule, TypeRules
from omnigraph.validation.row_checks import check_rows

if TYPE_CHECKING:
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.snapshot import Snapshot, TableEntry

EXAMPLES_MAX: Final = 10
"""How many offenders are named; the others are only counted."""

MEMORY_BYTES: Final = 512 << 20
"""Memory for comparing rows before it spills to disk."""

_MEMORY_PER_THREAD: Final = 64 << 20
_THREADS_MAX: Final = 4
_SOURCES: Final = pa.schema([(SOURCE_COLUMN, pa.string())])

ValueCheck: TypeAlias = (
    data_checks.ValuesInRange | data_checks.ValuesMatch | data_checks.ValuesInSet
)
RowCheck: TypeAlias = data_checks.TableIsEmpty | data_checks.NoNulls | ValueCheck
"""A check that looks at one row at a time, so that any part of a table can be checked alone."""

GroupCheck: TypeAlias = data_checks.TupleIsUnique | data_checks.EdgesPerSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Offenders:
    """The rows that fail a check: how many, and the smallest of their ids, ascending.

    Of `TupleIsUnique` they are all rows whose values another row has too. Of `EdgesPerSource` they
    are sources, not edges.
    """

    check: data_checks.DataCheck
    rows: int
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChecks:
    """The row checks of one table, in order."""

    entry: TableEntry
    checks: tuple[RowCheck, ...]


def failed_checks(
    root: Root,
    snapshot: Snapshot,
    checks: Sequence[data_checks.DataCheck],
    *,
    memory_bytes: int = MEMORY_BYTES,
) -> tuple[Offenders, ...]:
    """The checks that the rows of a snapshot fail, in the order given; none if all hold.

    Raises:
        NotFoundError: the snapshot has no table that a check names.
        StorageUnavailableError: rows could not be read, or there is no room to compare them.
    """
    results: list[Offenders] = []
    for row_check in row_checks(root, snapshot, checks):
        results += row_offenders(root, row_check, fragments_of(root, row_check.entry))
    for check in dict.fromkeys(filter(is_group_check, checks)):
        entry = find_entry(root, snapshot, check.table)
        results.append(_group_offenders(root, entry, check, memory_bytes))
    return in_order(checks, results)


def in_order(
    checks: Sequence[data_checks.DataCheck], results: Iterable[Offenders]
) -> tuple[Offenders, ...]:
    """The results, each check once, in the order of the checks, without those that hold."""
    by_check: dict[data_checks.DataCheck, list[Offenders]] = {check: [] for check in checks}
    for result in results:
        by_check[result.check].append(result)
    merged_results = (together(check, parts) for check, parts in by_check.items())
    return tuple(result for result in merged_results if result.rows)


def together(check: data_checks.DataCheck, parts: Sequence[Offenders]) -> Offenders:
    """The results for the parts of a table, combined."""
    examples = (example for part in parts for example in part.examples)
    return Offenders(
        check=check,
        rows=sum(part.rows for part in parts),
        examples=tuple(nsmallest(EXAMPLES_MAX, examples)),
    )


def is_group_check(check: data_checks.DataCheck) -> TypeGuard[GroupCheck]:
    """Whether a check compares rows with each other."""
    return isinstance(check, GroupCheck)


def row_checks(
    root: Root, snapshot: Snapshot, checks: Sequence[data_checks.DataCheck]
) -> tuple[TableChecks, ...]:
    """The checks that look at single rows, each once, by table."""
    by_table: dict[str, dict[RowCheck, None]] = {}
    for check in checks:
        if not isinstance(check, GroupCheck):
            by_table.setdefault(check.table, {})[check] = None
    return tuple(
        TableChecks(entry=find_entry(root, snapshot, table), checks=tuple(of_table))
        for table, of_table in by_table.items()
    )


def fragments_of(root: Root, entry: TableEntry) -> tuple[int, ...]:
    planned = plan_scan(root, entry, columns=(ID_COLUMN,), where=None)
    return tuple(fragment.fragment_id for fragment in planned.fragments)


def row_offenders(
    root: Root, table: TableChecks, fragments: Sequence[int]
) -> tuple[Offenders, ...]:
    """Check the rows of some fragments; one result per check, also where it holds.

    Nulls are found by Lance while it reads, one pass per check; all other checks share one pass.
    """
    tallies = {check: _Tally() for check in table.checks}
    null_checks = [check for check in table.checks if isinstance(check, data_checks.NoNulls)]
    other_checks = [check for check in table.checks if not isinstance(check, data_checks.NoNulls)]
    if other_checks:
        read_columns = columns_read(
            column for other_check in other_checks for column in _columns(other_check)
        )
        for batch in _scan(root, table.entry, fragments, (ID_COLUMN, *read_columns)):
            for other_check in other_checks:
                tallies[other_check].add(_broken(other_check, batch))
    for check in null_checks:
        if not _is_never_null(check):
            where = _null_condition(check)
            for batch in _scan(root, table.entry, fragments, (ID_COLUMN,), where=where):
                tallies[check].add(batch.column(ID_COLUMN))
    return tuple(
        Offenders(check=check, rows=tally.rows, examples=tuple(tally.examples))
        for check, tally in tallies.items()
    )


class _Tally:
    """The number of ids, and the smallest of them."""

    def __init__(self) -> None:
        self.rows = 0
        self.examples: list[str] = []

    def add(self, ids: pa.StringArray) -> None:
        self.rows += len(ids)
        if len(ids):
            first = ids.take(pc.bottom_k_unstable(ids, min(EXAMPLES_MAX, len(ids))))
            self.examples = nsmallest(EXAMPLES_MAX, [*self.examples, *first.to_pylist()])


def _scan(
    root: Root,
    entry: TableEntry,
    fragments: Sequence[int],
    columns: Iterable[str],
    *,
    where: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """Some columns, each once, of the rows of some fragments."""
    if not fragments:
        return iter(())
    wanted = tuple(dict.fromkeys(columns))
    return scan_fragments(root, entry, fragments, columns=wanted, where=where)


def _columns(check: data_checks.TableIsEmpty | ValueCheck) -> tuple[FutureColumn, ...]:
    return () if isinstance(check, data_checks.TableIsEmpty) else (check.column,)


def _broken(check: data_checks.TableIsEmpty | ValueCheck, batch: pa.RecordBatch) -> pa.StringArray:
    """The ids of rows that fail a check."""
    ids = batch.column(ID_COLUMN)
    if isinstance(check, data_checks.TableIsEmpty):
        return ids
    rows = future_values(batch, (check.column,)).add_column(0, ID_COLUMN, ids)
    rules = TypeRules(table_key=check.table, row_rules=(_rule(check),), keyed_rules=())
    bad = check_rows(rows, rules)
    return ids.take(bad[0].rows) if bad else ids.slice(0, 0)


def _rule(check: ValueCheck) -> RowRule:
    """The rule by which a write validates the same values."""
    name = check.column.name
    match check:
        case data_checks.ValuesInRange():
            return InRange(column=name, low=check.low, high=check.high)
        case data_checks.ValuesMatch():
            return Matches(column=name, pattern=check.pattern)
        case data_checks.ValuesInSet():
            return InEnum(column=name, values=check.values)
        case _:
            assert_never(check)


def _is_never_null(check: data_checks.NoNulls) -> bool:
    return any(isinstance(null_column.fill, LiteralFill) for null_column in _null_columns(check))


def _null_condition(check: data_checks.NoNulls) -> str | None:
    """True where no column has a value; None if that is every row."""
    sources = dict.fromkeys(
        name for null_column in _null_columns(check) for name in sources_of(null_column)
    )
    return " AND ".join(f"`{name}` IS NULL" for name in sources) or None


def _null_columns(check: data_checks.NoNulls) -> tuple[FutureColumn, ...]:
    if check.unless_present is None:
        return (check.column,)
    return (check.column, check.unless_present)


def key_names(check: data_checks.TupleIsUnique) -> tuple[str, ...]:
    """Names for the values of a tuple that no column and no keyword has."""
    return tuple(f"k{number}" for number in range(len(check.columns)))


def key_schema(check: data_checks.TupleIsUnique, *, with_id: bool) -> pa.Schema:
    """The schema of the rows of `key_rows`."""
    kinds = [arrow_type(column.type) for column in check.columns]
    keys = [
        pa.field(*name_and_type, nullable=False)
        for name_and_type in zip(key_names(check), kinds, strict=True)
    ]
    return pa.schema([*([pa.field(ID_COLUMN, pa.string(), nullable=False)] * with_id), *keys])


def key_rows(
    root: Root,
    entry: TableEntry,
    fragments: Sequence[int],
    check: data_checks.TupleIsUnique,
    *,
    with_id: bool,
) -> Iterator[pa.RecordBatch]:
    """The tuples that must be unique, of the rows of some fragments that are not exempt."""
    if any(column.is_null for column in check.columns):
        return
    schema = key_schema(check, with_id=with_id)
    read_columns = columns_read(check.columns)
    wanted_columns = (ID_COLUMN, *read_columns) if with_id or not read_columns else read_columns
    for batch in _scan(root, entry, fragments, wanted_columns):
        keys = future_values(batch, check.columns).columns
        ids = [batch.column(ID_COLUMN)] if with_id else []
        complete_rows = pa.RecordBatch.from_arrays([*ids, *keys], names=schema.names).drop_null()
        if complete_rows.num_rows:
            yield pa.RecordBatch.from_arrays(complete_rows.columns, schema=schema)


def _group_offenders(
    root: Root, entry: TableEntry, check: GroupCheck, memory_bytes: int
) -> Offenders:
    fragments = fragments_of(root, entry)
    with _comparing(entry.table_key, memory_bytes) as compared:
        match check:
            case data_checks.TupleIsUnique():
                rows, examples = _repeated(root, entry, fragments, check, compared)
            case data_checks.EdgesPerSource():
                sources = _scan(root, entry, fragments, (SOURCE_COLUMN,))
                rows, examples = compared.summary(
                    f"SELECT src AS id FROM edges GROUP BY src HAVING {_out_of_bounds(check)}",  # noqa: S608
                    edges=(_SOURCES, sources),
                )
            case _:
                assert_never(check)
    return Offenders(check=check, rows=rows, examples=examples)


def _repeated(
    root: Root,
    entry: TableEntry,
    fragments: Sequence[int],
    check: data_checks.TupleIsUnique,
    compared: _Comparison,
) -> tuple[int, tuple[str, ...]]:
    """Usually nothing is repeated, and the ids are not read."""

    def tuples(*, with_id: bool) -> _Stream:
        batches = key_rows(root, entry, fragments, check, with_id=with_id)
        return key_schema(check, with_id=with_id), batches

    keys = ", ".join(key_names(check))
    repeated_count = compared.keep(
        "repeated",
        f"SELECT {keys} FROM tuples GROUP BY {keys} HAVING count(*) > 1",  # noqa: S608
        tuples=tuples(with_id=False),
    )
    if not repeated_count:
        return 0, ()
    return compared.summary(
        f"SELECT id FROM named SEMI JOIN repeated USING ({keys})",  # noqa: S608
        named=tuples(with_id=True),
    )


def _out_of_bounds(check: data_checks.EdgesPerSource) -> str:
    few = f"count(*) < {check.minimum}"
    return few if check.maximum is None else f"{few} OR count(*) > {check.maximum}"


_Stream: TypeAlias = tuple[pa.Schema, Iterator[pa.RecordBatch]]


class _Comparison:
    """A private database that compares streamed rows and spills to disk."""

    def __init__(self, database: duckdb.DuckDBPyConnection) -> None:
        self._database = database
        self.failure: OmnigraphError | None = None

    def keep(self, name: str, query: str, **streams: _Stream) -> int:
        """Keep the rows of a query as a table; how many there are."""
        self._register(streams)
        self._database.sql(f"CREATE TEMP TABLE {name} AS {query}")
        [(rows,)] = self._database.sql(f"SELECT count(*) FROM {name}").fetchall()  # noqa: S608
        return int(rows)

    def summary(self, query: str, **streams: _Stream) -> tuple[int, tuple[str, ...]]:
        """How many ids a query finds, and the smallest of them."""
        self._register(streams)
        [(rows, first)] = self._database.sql(
            f"SELECT count(*), min(id, {EXAMPLES_MAX}) FROM ({query})"  # noqa: S608
        ).fetchall()
        return int(rows), tuple(first or ())

    def _register(self, streams: Mapping[str, _Stream]) -> None:
        for name, (schema, batches) in streams.items():
            reader = pa.RecordBatchReader.from_batches(schema, self._noted(batches))
            self._database.register(name, reader)

    def _noted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """DuckDB converts an error of an input stream to text."""
        try:
            yield from batches
        except OmnigraphError as error:
            self.failure = error
            raise


@contextmanager
def _comparing(table_key: str, memory_bytes: int) -> Iterator[_Comparison]:
    threads = max(1, min(_THREADS_MAX, os.cpu_count() or 1, memory_bytes // _MEMORY_PER_THREAD))
    settings = {
        "memory_limit": f"{memory_bytes}B",
        "threads": str(threads),
        "preserve_insertion_order": "false",
    }
    with open_database(settings=settings) as database:
        compared = _Comparison(database)
        try:
            yield compared
        except duckdb.Error as error:
            if compared.failure is not None:
                raise compared.failure from error
            raise StorageUnavailableError(
                f"could not compare the rows of {table_key}: {str(error).splitlines()[0]}",
                next_step=f"Check the space in {tempfile.gettempdir()}, or set TMPDIR.",
            ) from error
