"""Small writes in this process: validate, stage and commit as one operation.

Invariant: what is published was validated against exactly the pins it was published on. A lost race
validates again on the new pins; rows that were already staged as an append are used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import pyarrow as pa

from omnigraph import names
from omnigraph.commit.fork_on_write import writable_entry
from omnigraph.commit.history_compaction import fold_if_due
from omnigraph.commit.protocol import Prepared, WriteRequest, commit_write
from omnigraph.display.pages import Displayed, Page, change_page
from omnigraph.errors import OmnigraphError, ValidationFailedError
from omnigraph.load.validate import TakenWrite, ValidatedWrite, check_write, take_write
from omnigraph.schema.model import model_hash
from omnigraph.storage.snapshot import Snapshot
from omnigraph.storage.staging.changes import (
    StagedChange,
    restage_append,
    stage_append,
    stage_delete,
    stage_merge,
    stage_overwrite,
)
from omnigraph.validation.modes import WriteMode
from omnigraph.validation.pinned import SnapshotTables

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.commit.sidecar import WriterKind
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest.branch_identity import BranchRef
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import TableEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A request: rows per type, ids to delete per type, and the author."""

    inputs: Mapping[str, object]
    deleted: Mapping[str, object]
    mode: WriteMode
    kind: WriterKind
    actor: str
    branch: BranchRef | None
    operation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts(Displayed):
    """Rows one commit changed in one table."""

    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult(Displayed):
    """A published write. `commit_id` is None if there was nothing to change.

    `tables` is empty when an earlier call with the same operation id had published it.
    """

    operation_id: str
    commit_id: str | None
    tables: Mapping[str, TableCounts]

    def _page(self) -> Page:
        return change_page(self.tables, self.commit_id)


def write_graph(objects: Objects, catalog: Catalog, write: Write, clock: Clock) -> WriteResult:
    """Run one write as one commit."""
    preparation = _Preparation(objects, catalog, write, clock)
    committed = commit_write(
        objects,
        WriteRequest(
            operation_id=write.operation_id,
            kind=write.kind,
            actor=write.actor,
            branch=write.branch,
            commit_id=clock.new_id(),
            prepare=preparation.prepare,
            look_ahead=preparation.look_ahead,
            schema_hash=model_hash(catalog),
        ),
        clock,
    )
    if committed is None:
        return WriteResult(operation_id=write.operation_id, commit_id=None, tables={})
    with suppress(OmnigraphError):
        # The write is published; maintenance that fails now is due again at the next one.
        fold_if_due(objects.root, committed.state)
    return WriteResult(
        operation_id=committed.operation_id,
        commit_id=committed.commit_id,
        tables={change.table_key: counts_of(change) for change in committed.changes},
    )


class _Preparation:
    """Validates and stages one write, again after every lost race."""

    def __init__(self, objects: Objects, catalog: Catalog, write: Write, clock: Clock) -> None:
        self._root = objects.root
        self._catalog = catalog
        self._write = write
        self._clock = clock
        self._taken: TakenWrite | None = None
        self._validated_on: tuple[ManifestState, ValidatedWrite] | None = None
        self._appended: dict[str, StagedChange] = {}

    def look_ahead(self, state: ManifestState) -> None:
        self._validated_on = (state, self._validated(state.snapshot()))

    def prepare(self, state: ManifestState) -> Prepared:
        if self._validated_on is None or self._validated_on[0] is not state:
            self.look_ahead(state)
        assert self._validated_on is not None
        _, validated = self._validated_on
        snapshot = state.snapshot()
        changes = [
            self._staged(self._writable(snapshot, table_key), rows)
            for table_key, rows in validated.tables.items()
            if rows.num_rows or self._write.mode is WriteMode.OVERWRITE
        ]
        deletions = [
            stage_delete(self._root, self._writable(snapshot, table_key), _id_table(ids))
            for table_key, ids in validated.deletions.items()
        ]
        changes += [deletion for deletion in deletions if deletion.rows_deleted]
        return Prepared(changes=tuple(changes), read_set=validated.read_set)

    def _validated(self, snapshot: Snapshot) -> ValidatedWrite:
        if self._taken is None:
            self._taken = take_write(
                self._write.inputs,
                deleted=self._write.deleted,
                mode=self._write.mode,
                catalog=self._catalog,
                new_id=self._clock.new_id,
            )
        pinned = SnapshotTables(root=self._root, snapshot=snapshot)
        validated = check_write(self._taken, self._catalog, pinned)
        if not validated.report.ok:
            raise ValidationFailedError(validated.report.summary(), report=validated.report)
        return validated

    def _writable(self, snapshot: Snapshot, table_key: str) -> TableEntry:
        return writable_entry(
            self._root,
            snapshot.tables[table_key],
            branch=self._write.branch,
            operation_id=self._write.operation_id,
        )

    def _staged(self, entry: TableEntry, rows: pa.Table) -> StagedChange:
        match self._write.mode:
            case WriteMode.APPEND:
                earlier = self._appended.get(entry.table_key)
                staged = (
                    restage_append(self._root, earlier, entry)
                    if earlier is not None and earlier.entry.fork == entry.fork
                    else stage_append(self._root, entry, rows)
                )
                self._appended[entry.table_key] = staged
                return staged
            case WriteMode.MERGE:
                return stage_merge(self._root, entry, rows)
            case WriteMode.OVERWRITE:
                return stage_overwrite(self._root, entry, rows)
            case _:
                assert_never(self._write.mode)


def counts_of(change: StagedChange) -> TableCounts:
    """What a published change did."""
    return TableCounts(
        inserted=change.rows_inserted, updated=change.rows_updated, deleted=change.rows_deleted
    )


def _id_table(ids: pa.Array) -> pa.Table:
    return pa.table({names.ID_COLUMN: ids})
