"""The changes of a schema change to the rows of the manifest, besides the tables it moves.

Invariant: the rows depend on the state they are made from and on the move alone, so they are the
same for the writer and for recovery. A key never loses a path: a version that lies elsewhere than
at its key's first path says where.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from omnigraph_lake.storage import manifest_rows
from omnigraph_lake.storage.lance.datasets import creator_of, open_dataset
from omnigraph_lake.storage.snapshot import TableEntry, take_snapshot

if TYPE_CHECKING:
    from omnigraph_lake.names import OperationId
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.location import Root


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTable:
    """The table of a new type, at a path that only this operation uses; empty but after a merge."""

    table_key: str
    location: str
    type_number: int
    row_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptedTable:
    """The table of a type that another branch made: a branch reads a version of main in place."""

    table_key: str
    location: str
    type_number: int
    version: int
    row_count: int
    made_at: str | None = None
    checksums: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaMove:
    """From one accepted schema to another, both by their hashes, and the tables that come and go.

    `renamed` pairs a table's key with its new one. `values` is what the commit records of values
    that are written into rows, and `edited` of tables whose rows change besides.
    """

    before: str
    after: str
    created: tuple[CreatedTable, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    adopted: tuple[AdoptedTable, ...] = ()
    values: str | None = None
    edited: tuple[str, ...] = ()

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> SchemaMove:
        """The move that a sidecar has written down."""
        return cls(
            before=fields["before"],
            after=fields["after"],
            created=tuple(CreatedTable(**table_fields) for table_fields in fields["created"]),
            renamed=tuple((old, new) for old, new in fields["renamed"]),
            dropped=tuple(fields["dropped"]),
            adopted=tuple(AdoptedTable(**table) for table in fields.get("adopted", ())),
            values=fields.get("values"),
            edited=tuple(fields.get("edited", ())),
        )


def all_created(root: Root, move: SchemaMove, *, operation_id: OperationId) -> bool:
    """Whether every new table exists, created by the operation and unchanged since."""
    for table in move.created:
        dataset = open_dataset(root, table.location)
        if dataset is None or dataset.version != 1 or creator_of(dataset) != operation_id:
            return False
    return True


def with_locations(
    state: ManifestState, moved: Iterable[manifest_rows.TableVersion]
) -> tuple[manifest_rows.TableVersion, ...]:
    """The new versions of tables, each with the path of the table it is a version of."""
    if not any(
        isinstance(row, manifest_rows.Table) and row.made_by is not None for row in state.rows
    ):
        return tuple(moved)
    tables = state.snapshot().tables
    first = {
        row.table_key: row.location
        for row in state.rows
        if isinstance(row, manifest_rows.Table) and row.made_by is None
    }
    return tuple(
        replace(row, location=tables[row.table_key].location)
        if row.table_key in tables and tables[row.table_key].location != first.get(row.table_key)
        else row
        for row in moved
    )


def rows_after(
    state: ManifestState,
    rows: Sequence[manifest_rows.ManifestRow],
    move: SchemaMove,
    *,
    operation_id: OperationId,
) -> list[manifest_rows.ManifestRow]:
    """The rows of a state with its tables moved, after what the schema change adds and hides."""
    branch = state.branch
    tables = take_snapshot(rows, branch=branch, manifest_version=state.version).tables
    removed_keys = {*(old for old, _ in move.renamed), *move.dropped}
    added_keys = {new for _, new in move.renamed}
    added_keys |= {table.table_key for table in move.created}
    added_keys |= {table.table_key for table in move.adopted}
    hidden = [
        manifest_rows.Tombstone(table_key=key, version=tables[key].version, branch=branch)
        for key in sorted(removed_keys - added_keys)
    ]
    return [
        *(row for row in rows if not _is_of(row, removed_keys | added_keys, branch)),
        *hidden,
        *_created(move, branch, operation_id),
        *_adoption_rows(move, branch, operation_id),
        *_renamed(state, tables, move, operation_id),
    ]


def _created(
    move: SchemaMove, branch: str | None, operation_id: OperationId
) -> Iterator[manifest_rows.ManifestRow]:
    for table in move.created:
        key, location = table.table_key, table.location
        yield manifest_rows.Table(
            table_key=key,
            location=location,
            type_number=table.type_number,
            made_by=operation_id,
        )
        yield manifest_rows.TableVersion(
            table_key=key, version=1, branch=branch, row_count=table.row_count, location=location
        )


def _adoption_rows(
    move: SchemaMove, branch: str | None, operation_id: OperationId
) -> Iterator[manifest_rows.ManifestRow]:
    for table in move.adopted:
        yield manifest_rows.Table(
            table_key=table.table_key,
            location=table.location,
            type_number=table.type_number,
            made_by=operation_id,
        )
        yield manifest_rows.TableVersion(
            table_key=table.table_key,
            version=table.version,
            branch=branch,
            row_count=table.row_count,
            made_at=table.made_at,
            checksums=table.checksums,
            location=table.location,
        )


def _renamed(
    state: ManifestState,
    tables: Mapping[str, TableEntry],
    move: SchemaMove,
    operation_id: OperationId,
) -> Iterator[manifest_rows.ManifestRow]:
    numbers = {
        row.table_key: row.type_number for row in state.rows if isinstance(row, manifest_rows.Table)
    }
    for old, new in move.renamed:
        entry = tables[old]
        yield manifest_rows.Table(
            table_key=new,
            location=entry.location,
            type_number=numbers.get(old),
            made_by=operation_id,
        )
        yield manifest_rows.TableVersion(
            table_key=new,
            version=entry.version,
            branch=state.branch,
            row_count=entry.row_count,
            fork=entry.fork,
            made_at=entry.made_at,
            checksums=None if entry.checksums is None else entry.checksums.digest,
            location=entry.location,
        )


def recorded(
    state: ManifestState, rows: Sequence[manifest_rows.ManifestRow], move: SchemaMove
) -> manifest_rows.SchemaChange:
    """What the commit of a schema change records: all tables after it."""
    tables = take_snapshot(rows, branch=state.branch, manifest_version=state.version).tables
    return manifest_rows.SchemaChange(
        before=move.before,
        after=move.after,
        tables=tuple(
            (entry.table_key, entry.location, entry.version, entry.fork)
            for entry in tables.values()
        ),
        values=move.values,
        edited=move.edited,
    )


def _is_of(row: manifest_rows.ManifestRow, keys: set[str], branch: str | None) -> bool:
    return (
        isinstance(row, manifest_rows.TableVersion | manifest_rows.Tombstone)
        and row.table_key in keys
        and row.branch == branch
    )
