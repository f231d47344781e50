"""Write small inputs in this process: validate, stage and commit them as one operation.

`validate` is the only entry to validation: it checks inputs of any origin by every rule, as one
write.

Invariants:
- A published write was completed from and validated against exactly the pins it was published on.
  After a lost race both are repeated on the new pins; rows that were already staged as an append
  are used again.
- Validation writes nothing and does not raise for invalid rows. The tables may be written if and
  only if the report has no violations. Input that cannot be interpreted, such as an unknown type,
  raises.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from omnigraph_lake import names
from omnigraph_lake.commit.fork_on_write import writable_entry
from omnigraph_lake.commit.phases import Prepared, Unchanged, Verb, WriteRequest
from omnigraph_lake.commit.protocol import commit_write
from omnigraph_lake.commit.sidecar import Touched
from omnigraph_lake.display.pages import Displayed, Page, change_page
from omnigraph_lake.errors import InputTooLargeError, InvalidInputError, ValidationFailedError
from omnigraph_lake.load.fill import check_filled, fill
from omnigraph_lake.notes import NO_NOTE, CommitNote
from omnigraph_lake.runner.memory import rows_bytes_max
from omnigraph_lake.schema.catalog import Catalog, EdgeType
from omnigraph_lake.schema.model import model_hash
from omnigraph_lake.storage.objects.documents import digest_of
from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
from omnigraph_lake.storage.staging.changes import (
    StagedChange,
    restage_append,
    stage_append,
    stage_delete,
    stage_overwrite,
)
from omnigraph_lake.storage.staging.edits import stage_upserts
from omnigraph_lake.storage.staging.tail_merge import merge_tail
from omnigraph_lake.validation.constraints import EndpointExists, WriteMode, rules_of, table_rules
from omnigraph_lake.validation.input.intake import (
    declared_types,
    id_source,
    resolved_types,
    table_key_of,
    take_in,
)
from omnigraph_lake.validation.input.mentions import Mentions
from omnigraph_lake.validation.keyed_checks import check_keyed
from omnigraph_lake.validation.lookups import PinnedTables, SnapshotTables, count_existing
from omnigraph_lake.validation.row_checks import check_rows
from omnigraph_lake.validation.violations import BadRows, ViolationReport, report_of
from omnigraph_lake.validation.write_effects import ProposedWrite

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.commit.sidecar import WriterKind
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.store import Objects

_OFFERED_ROWS_MAX: Final = 256
_COPIES_OF_A_MERGE: Final = 3
"""Rows as they came, what published rows keep, and both together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedWrite:
    """Everything a commit needs to know about a write, by table key.

    `deletions` holds the ids to delete before the rows are written: those named and those of
    cascaded edges, without the ones a merge or an overwrite removes anyway.
    `bad_rows` holds the input positions with at least one violation. `read_set` names the tables
    whose pinned content the result depends on: if one of them changes, validate again.
    """

    tables: Mapping[str, pa.Table]
    mode: WriteMode
    deletions: Mapping[str, pa.StringArray]
    report: ViolationReport
    bad_rows: Mapping[str, pa.Int64Array]
    read_set: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenWrite:
    """A caller's rows in their final shape, and the violations that do not depend on the graph.

    It can be checked against one state of the graph after the other: a caller's stream is read
    once, and generated ids do not change. `partial` has the tables with records that do not mention
    every property; they are completed and checked against the graph.
    """

    proposed: ProposedWrite
    findings: tuple[BadRows, ...]
    partial: Mapping[str, _PartialRecords]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartialRecords:
    """What the records of one table mention, and which of their cells could not be read."""

    mentions: Mentions
    unreadable: Mapping[str, pa.Int64Array]


def validate(
    inputs: Mapping[str, object],
    *,
    mode: WriteMode,
    catalog: Catalog,
    pinned: PinnedTables,
    new_id: Callable[[], str],
    deleted: Mapping[str, object] | None = None,
) -> ValidatedWrite:
    """Check rows and deletes of any number of types against the rules and the pinned graph."""
    taken = take_write(inputs, deleted=deleted or {}, mode=mode, catalog=catalog, new_id=new_id)
    return check_write(taken, catalog, pinned)


def take_write(
    inputs: Mapping[str, object],
    *,
    deleted: Mapping[str, object],
    mode: WriteMode,
    catalog: Catalog,
    new_id: Callable[[], str],
) -> TakenWrite:
    """Read the caller's input, once, and make the checks that do not need the graph.

    `deleted` maps types to ids; deleting a node deletes its edges, and an id that does not exist is
    no fault. Types are named as in the schema, or by table key (`node:X`, `edge:X`) where a node
    type and an edge type share a name.
    """
    rules = table_rules(catalog)
    findings: list[BadRows] = []
    tables: dict[str, pa.Table] = {}
    partial: dict[str, _PartialRecords] = {}
    new_ids: set[str] = set()
    merges = mode is WriteMode.MERGE
    for declared, source in resolved_types(inputs, catalog):
        taken = take_in(declared, source, new_ids=id_source(new_id), partial=merges)
        key = taken.table_key
        tables[key] = taken.table
        if not taken.has_given_ids:
            new_ids.add(key)
        findings += taken.findings
        if taken.mentions is None:
            findings += check_rows(taken.table, rules[key], unreadable=taken.unreadable)
        else:
            partial[key] = _PartialRecords(mentions=taken.mentions, unreadable=taken.unreadable)
    write = ProposedWrite(
        tables=tables,
        mode=mode,
        new_ids=frozenset(new_ids),
        deleted={
            table_key_of(declared): _id_array(ids, declared.name)
            for declared, ids in resolved_types(deleted, catalog)
        },
    )
    return TakenWrite(proposed=write, findings=tuple(findings), partial=partial)


def check_write(taken: TakenWrite, catalog: Catalog, pinned: PinnedTables) -> ValidatedWrite:
    """Complete the input from the pinned graph, and check it against that graph."""
    rules = table_rules(catalog)
    declared = declared_types(catalog)
    tables = dict(taken.proposed.tables)
    findings = list(taken.findings)
    for key, records in taken.partial.items():
        deleted = taken.proposed.deleted.get(key)
        published = _published(key, tables[key], records.mentions, pinned, deleted=deleted)
        tables[key] = fill(declared[key], tables[key], records.mentions, published)
        findings += check_filled(
            declared[key], rules[key], tables[key], unreadable=records.unreadable
        )
    write = replace(taken.proposed, tables=tables)
    keyed = check_keyed(write, rules, pinned, invalid=_bad_rows(findings))
    findings += keyed.findings
    return ValidatedWrite(
        tables=tables,
        mode=write.mode,
        deletions=keyed.deletions,
        report=report_of(findings),
        bad_rows=_bad_rows(findings),
        read_set=keyed.read_set,
    )


def _published(
    table_key: str,
    rows: pa.Table,
    mentions: Mentions,
    pinned: PinnedTables,
    *,
    deleted: pa.StringArray | None,
) -> pa.Table | None:
    """What the rows do not mention, of the pinned rows that the write does not delete.

    Raises:
        InputTooLargeError: what is kept does not fit into memory.
    """
    ids = rows.column(names.ID_COLUMN).filter(mentions.incomplete(len(rows)))
    ids = pc.unique(ids.drop_null())
    if deleted is not None:
        ids = ids.filter(pc.invert(pc.is_in(ids, deleted)))
    if not len(ids) or not pinned.row_count(table_key):
        return None
    columns = [name for name in rows.column_names if name in mentions.open_columns]
    size, size_max = rows.nbytes, rows_bytes_max(copies=_COPIES_OF_A_MERGE)
    batches: list[pa.RecordBatch] = []
    for batch in pinned.take(table_key, ids, [names.ID_COLUMN, *columns]):
        size += batch.nbytes
        if size > size_max:
            what = f"rows of {table_key} with what they keep"
            raise InputTooLargeError(what, needed=size, allowed=size_max)
        batches.append(batch)
    return pa.Table.from_batches(batches) if batches else None


def _id_array(ids: object, type_name: str) -> pa.StringArray:
    if isinstance(ids, str | bytes | Mapping) or not isinstance(ids, Iterable):
        raise _unreadable_ids(type_name, f"found {type(ids).__name__}")
    try:
        id_texts = _texts(ids)
    except Exception as error:  # a caller's iterable may raise anything
        raise _unreadable_ids(type_name, f"{error!s:.200}") from error
    return pc.unique(id_texts).drop_null()


def _texts(ids: Iterable[object]) -> pa.Array | pa.ChunkedArray:
    if isinstance(ids, pa.Array | pa.ChunkedArray):
        if not _is_text(ids.type):
            raise TypeError(f"ids are text, found {ids.type}")
        texts = ids.cast(pa.string())
        texts.validate(full=True)
        return texts
    listed = list(ids)
    if any(isinstance(value, bytes | bytearray) for value in listed):
        raise TypeError("ids are text, found bytes")
    return pa.array(listed, pa.string())


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if pat.is_dictionary(kind) else kind
    return bool(pat.is_string(plain) or pat.is_large_string(plain) or pat.is_string_view(plain))


def _unreadable_ids(type_name: str, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"cannot read the ids of {type_name} to delete: {why}",
        next_step="Give a list or an Arrow array of strings.",
    )


def _bad_rows(findings: Iterable[BadRows]) -> dict[str, pa.Int64Array]:
    by_table: dict[str, list[pa.Int64Array]] = {}
    for finding in findings:
        if len(finding.rows):
            by_table.setdefault(finding.table_key, []).append(finding.rows)
    merged = {key: pc.unique(pa.chunked_array(rows)) for key, rows in by_table.items()}
    return {key: rows.take(pc.sort_indices(rows)) for key, rows in merged.items()}


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
    note: CommitNote = NO_NOTE


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCounts(Displayed):
    """Rows one commit changed in one table."""

    inserted: int
    updated: int
    deleted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult(Displayed):
    """A published write. `commit_id` is None if there was nothing to change, or for a dry run.

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
    touched = _tables_touched(write, catalog)
    finished = commit_write(
        WriteRequest.of(objects, clock, write.kind, write, schema_hash=model_hash(catalog)),
        Verb(
            prepare=preparation.prepare,
            look_ahead=preparation.look_ahead,
            touched=touched,
            may_be_offered=touched is not None
            and write.mode is WriteMode.APPEND
            and _depends_on_ids_alone(touched.written, catalog),
        ),
    )
    if isinstance(finished, Unchanged):
        return WriteResult(operation_id=write.operation_id, commit_id=None, tables={})
    return WriteResult(
        operation_id=finished.operation_id,
        commit_id=finished.commit_id,
        tables={change.table_key: counts_of(change) for change in finished.changes},
    )


def _depends_on_ids_alone(written: Collection[str], catalog: Catalog) -> bool:
    """Whether nothing in the one table of an append can make it invalid but rows with its ids.

    The nodes at the ends of edges are in other tables, and appends remove none.
    """
    declared = declared_types(catalog)
    return len(written) == 1 and all(
        isinstance(rule, EndpointExists)
        for table_key in written
        for rule in rules_of(declared[table_key]).keyed_rules
    )


def _digests_of_ids(validated: ValidatedWrite, catalog: Catalog) -> frozenset[str] | None:
    """Digests of the ids of an append of few rows that depends on nothing else in its table."""
    if validated.mode is not WriteMode.APPEND or validated.deletions:
        return None
    if not _depends_on_ids_alone(validated.tables.keys(), catalog):
        return None
    (rows,) = validated.tables.values()
    if rows.num_rows > _OFFERED_ROWS_MAX:
        return None
    ids = rows.column(names.ID_COLUMN).to_pylist()
    return frozenset(digest_of(text.encode()) for text in ids)


def _tables_touched(write: Write, catalog: Catalog) -> Touched | None:
    """The tables that a write touches by the types it names; None if deletions may reach others."""
    if write.deleted or write.mode is WriteMode.OVERWRITE:
        return None
    try:
        declared = [kind for kind, _ in resolved_types(write.inputs, catalog)]
    except InvalidInputError:
        return None  # the validation reports it
    edges = [kind for kind in declared if isinstance(kind, EdgeType)]
    ends = {
        names.node_table_key(name)
        for edge in edges
        for name in (*edge.source.names, *edge.target.names)
    }
    written = frozenset(map(table_key_of, declared))
    return Touched(written=written, read=frozenset(ends) - written)


def preview_write(
    objects: Objects, catalog: Catalog, write: Write, clock: Clock, snapshot: Snapshot
) -> WriteResult:
    """Validate one write and count what it would change; nothing is written.

    Raises:
        ValidationFailedError: as the write would.
    """
    counts = _Preparation(objects, catalog, write, clock).count(snapshot)
    return WriteResult(operation_id=write.operation_id, commit_id=None, tables=counts)


class _Preparation:
    """Validates and stages one write, again after every lost race."""

    def __init__(self, objects: Objects, catalog: Catalog, write: Write, clock: Clock) -> None:
        self._objects = objects
        self._root = objects.root
        self._catalog = catalog
        self._write = write
        self._clock = clock
        self._taken: TakenWrite | None = None
        self._validated_on: tuple[ManifestState, ValidatedWrite] | None = None
        self._appended: dict[str, StagedChange] = {}
        self._is_retry = False

    def look_ahead(self, state: ManifestState) -> None:
        self._validated_on = (state, self._validate(state.snapshot()))

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
        # After a lost race others are waiting.
        is_merging = not self._is_retry
        self._is_retry = True
        deletions = [
            stage_delete(self._root, self._writable(snapshot, table_key), _id_table(ids))
            for table_key, ids in validated.deletions.items()
        ]
        changes += [deletion for deletion in deletions if deletion.rows_deleted]
        return Prepared(
            changes=tuple(changes),
            read_set=validated.read_set,
            inserted=_digests_of_ids(validated, self._catalog),
            extend=partial(self._merge_tail, frozenset(validated.deletions))
            if is_merging
            else None,
        )

    def _merge_tail(self, deleted_from: frozenset[str], change: StagedChange) -> StagedChange:
        return change if change.table_key in deleted_from else merge_tail(self._root, change)

    def count(self, snapshot: Snapshot) -> dict[str, TableCounts]:
        """What the write would change, without staging it."""
        validated = self._validate(snapshot)
        pinned = SnapshotTables(root=self._root, snapshot=snapshot)
        counts = {
            table_key: _expected_counts(pinned, table_key, rows, self._write.mode)
            for table_key, rows in validated.tables.items()
            if rows.num_rows or self._write.mode is WriteMode.OVERWRITE
        }
        for table_key, ids in validated.deletions.items():
            if deleted := count_existing(pinned, table_key, ids):
                counts[table_key] = TableCounts(inserted=0, updated=0, deleted=deleted)
        return counts

    def _validate(self, snapshot: Snapshot) -> ValidatedWrite:
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
            case WriteMode.MERGE | WriteMode.REPLACE:
                return stage_upserts(self._objects, entry, rows)
            case WriteMode.OVERWRITE:
                return stage_overwrite(self._root, entry, rows)
            case _:
                assert_never(self._write.mode)


def counts_of(change: StagedChange) -> TableCounts:
    """What a published change did."""
    return TableCounts(
        inserted=change.rows_inserted, updated=change.rows_updated, deleted=change.rows_deleted
    )


def _expected_counts(
    pinned: SnapshotTables, table_key: str, rows: pa.Table, mode: WriteMode
) -> TableCounts:
    match mode:
        case WriteMode.APPEND:
            return TableCounts(inserted=rows.num_rows, updated=0, deleted=0)
        case WriteMode.MERGE | WriteMode.REPLACE:
            ids = rows.column(names.ID_COLUMN).combine_chunks()
            return merged_counts(pinned, table_key, ids)
        case WriteMode.OVERWRITE:
            present = pinned.row_count(table_key)
            return TableCounts(inserted=rows.num_rows, updated=0, deleted=present)
        case _:
            assert_never(mode)


def merged_counts(
    pinned: SnapshotTables, table_key: str, ids: pa.Array, deleted: int = 0
) -> TableCounts:
    """What writing whole rows by id would do."""
    updated = count_existing(pinned, table_key, ids)
    return TableCounts(inserted=len(ids) - updated, updated=updated, deleted=deleted)


def _id_table(ids: pa.Array) -> pa.Table:
    return pa.table({names.ID_COLUMN: ids})
