"""The rows of `__manifest` as frozen values, and their one shape in Arrow.

Invariant: encoding is a bijection. Decoding reads columns, never the spelling of `object_id`, so
rows written in an older spelling decode too and are written back in ours.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, assert_never

import pyarrow as pa

from omnigraph_lake import names
from omnigraph_lake.derived import remember_derived
from omnigraph_lake.display.cells import Moment, short_id
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import DamagedGraphError, OtherFormatError
from omnigraph_lake.notes import NO_NOTE, CommitNote
from omnigraph_lake.storage.objects.documents import MALFORMED, digest_of, digest_of_values, parsed
from omnigraph_lake.storage.objects.location import Durability, stored_path
from omnigraph_lake.storage.objects.lru_cache import LruCache

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

KEY_COLUMN: Final = "object_id"
_COLUMNS: Final = [
    pa.field(KEY_COLUMN, pa.string(), nullable=False, metadata={names.PRIMARY_KEY_KEY: "true"}),
    pa.field("object_type", pa.string(), nullable=False),
    pa.field("location", pa.string()),
    pa.field("metadata", pa.string()),
    pa.field("base_objects", pa.list_(pa.string())),
    pa.field("table_key", pa.string()),
    pa.field("table_version", pa.uint64()),
    pa.field("table_branch", pa.string()),
    pa.field("row_count", pa.uint64()),
]
_DECODED: Final = tuple(field.name for field in _COLUMNS if field.name != "base_objects")
_STAMP: Final = re.compile("[1-9][0-9]{0,8}")
_RESTORE: Final = (
    "Restore its files from a backup, or run `omnigraph repair GRAPH --rebuild-manifest` to see "
    "what can be recovered."
)
_CHANGES_CHARACTERS_MAX: Final = 1 << 15
_INDEXES_KEPT: Final = 8
# Between two publishes almost every row stays the same: converting it once is enough.
_REMEMBERED_ROWS: Final = 16_384


class ObjectType(StrEnum):
    """What a manifest row describes."""

    TABLE = "table"
    TABLE_VERSION = "table_version"
    TABLE_TOMBSTONE = "table_tombstone"
    GRAPH_HEAD = "graph_head"
    GRAPH_COMMIT = "graph_commit"
    OPERATION = "operation"


class Outcome(StrEnum):
    """How an attempt to write ended, for ever."""

    PUBLISHED = "published"
    ROLLED_BACK = "rolled_back"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A path that a table of this key has, or had: the first one, unless an operation made it.

    A version that lies elsewhere than at the first path says so itself.
    """

    table_key: str
    location: str
    type_number: int | None = None
    made_by: str | None = None
    """The schema change that gave the key this path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableVersion:
    """The published version of one table on one branch (None = main).

    `fork` is the table's Lance branch that holds the version; None is the table's own main line.
    `made_at` distinguishes it from a version that reused its number after a cleanup; old rows lack
    it. `location` is where it lies if that is not the first path of the key. `checksums` is the
    digest of the list of its files' checksums; rows before format 7 lack it.
    """

    table_key: str
    version: int
    branch: str | None = None
    row_count: int
    fork: str | None = None
    made_at: str | None = None
    location: str | None = None
    checksums: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """Hides every version of the table on that branch up to and including its own."""

    table_key: str
    version: int
    branch: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphHead(Displayed):
    """The total order of one branch: rewritten by every publish."""

    branch: str | None
    sequence: int
    commit_id: str
    incarnation: str
    schema_hash: str
    parent_branch: str | None = None
    folded_operation: str | None = None
    """The greatest published operation that moved to the history; greater ones are not there."""
    pruned_operation: str | None = None
    """Operations up to this one without a row, here or in the history, were never published."""
    initial_schema: str | None = None
    """The schema that the graph was made with, once another has taken its place."""

    @property
    def first_schema(self) -> str:
        """The schema of every commit that no schema change precedes."""
        return self.initial_schema or self.schema_hash


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChange:
    """What a commit did to the schema: the hashes, and every table as it left them.

    A table is its key, location, version, and the fork that holds it. `values` tells, as JSON, what
    the change wrote into rows that were there; None if that is not known, as of older commits.
    `edited` are tables, by their keys after it, whose rows it changed besides.
    """

    before: str
    after: str
    tables: tuple[tuple[str, str, int, str | None], ...]
    values: str | None = None
    edited: tuple[str, ...] = ()

    @property
    def paths(self) -> Iterator[str]:
        """What it says that becomes a part of a path."""
        yield from (self.before, self.after)
        for _, location, _, fork in self.tables:
            yield from (location,) if fork is None else (location, fork)

    def to_json(self) -> str:
        fields = asdict(self)
        for name in ("values", "edited"):
            if not fields[name]:
                del fields[name]  # as older programs wrote it
        return json.dumps(fields, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> SchemaChange:
        fields = parsed(text)
        tables = tuple(tuple(table) for table in fields["tables"])
        edited = tuple(fields.get("edited", ()))
        return cls(**{**fields, "tables": tables, "edited": edited})


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCommit(Displayed):
    """One commit of the graph; times are ISO 8601 in UTC.

    `tables` lists what it moved: table key, version, and the fork that holds it. `resolution` is
    how a merge decided conflicts, as JSON.
    """

    commit_id: str
    branch: str | None
    operation_id: str
    actor: str
    created_at: str
    parent_id: str | None = None
    merged_parent_id: str | None = None
    resolution: str | None = None
    manifest_version: int = 1
    tables: tuple[tuple[str, int, str | None], ...] = ()
    schema_change: SchemaChange | None = None
    note: CommitNote = NO_NOTE

    @property
    def message(self) -> str | None:
        """What its author says about it."""
        return self.note.message

    @property
    def metadata(self) -> Mapping[str, str]:
        """Metadata that its author gave."""
        return self.note.metadata

    def _page(self) -> Page:
        what = self.note.subject or ", ".join(table_key for table_key, _, _ in self.tables)
        return Page(
            summary=f"commit {short_id(self.commit_id)} by {self.actor} at {self.created_at[:16]}: "
            + (what or "no tables"),
            facts=[
                ("commit", self.commit_id),
                ("branch", self.branch or names.MAIN),
                ("actor", self.actor),
                ("when", Moment(self.created_at)),
                *self.note.facts(),
            ],
            tables=[
                TableView(
                    header=("table", "version"),
                    rows=[(table_key, str(version)) for table_key, version, _ in self.tables],
                    numbers=(1,),
                    empty="no tables",
                )
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The decision about one attempt: the fence a late writer runs into."""

    operation_id: str
    branch: str | None
    outcome: Outcome
    decided_by: str
    decided_at: str
    commit_id: str | None = None


ManifestRow = Table | TableVersion | Tombstone | GraphHead | GraphCommit | Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestFacts:
    """What a manifest says beside its rows."""

    stamp: int = names.STAMP
    durability: Durability = Durability.COMMIT
    """The default durability of writers of the graph."""
    unsynced_boot: str | None = None
    """The boot of the machine that put it without a sync of what it names; None if synced."""

    def metadata(self) -> dict[str, str]:
        entries = {names.STAMP_KEY: str(self.stamp)}
        if self.durability is not Durability.COMMIT:
            entries[names.DURABILITY_KEY] = self.durability.value
        if self.unsynced_boot is not None:
            entries[names.UNSYNCED_KEY] = self.unsynced_boot
        return entries


class _Encoded(NamedTuple):
    """The cells of a row, by the columns of `_DECODED`, and each of them in JSON."""

    cells: tuple[Any, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> _Encoded:
        cells = tuple(record.get(name) for name in _DECODED)
        return cls(cells, tuple(map(json.dumps, cells)))


_CELLS: Final = attrgetter("cells")
_TEXTS: Final = attrgetter("texts")


def encode(
    rows: Iterable[ManifestRow],
    facts: ManifestFacts,
    *,
    before: tuple[ManifestRow, ...] | None = None,
) -> pa.Table:
    """All rows as one Arrow table that carries the format stamp.

    `before` are the rows of the version below: what differs from them is told as well, for readers
    that know these.
    """
    known = None if before is None else _index_of(before)
    by_identity = {} if known is None else {id(row): encoded for row, encoded in known.values()}
    rows = tuple(rows)
    by_row = [by_identity.get(id(row)) or _encode_row(row) for row in rows]
    encoded = _in_order(by_row, facts.stamp)
    metadata = facts.metadata()
    if facts.stamp >= names.STAMP_OF_DIGESTS:
        index = None if known is None else _index(rows, by_row)
        changes = None if known is None or index is None else _changes(known, index)
        if changes is not None:
            metadata[names.CHANGES_KEY] = changes
        metadata[names.DIGEST_KEY] = _digest_of_texts(_columns(map(_TEXTS, encoded)), metadata)
    cells = dict(zip(_DECODED, _columns(map(_CELLS, encoded)), strict=True))
    return pa.Table.from_arrays(
        [
            pa.array(cells[field.name], field.type)
            if field.name in cells
            else pa.nulls(len(encoded), field.type)
            for field in _COLUMNS
        ],
        schema=pa.schema(_COLUMNS, metadata=metadata),
    )


_Index: TypeAlias = "dict[str, tuple[ManifestRow, _Encoded]]"
"""The rows of a manifest, and what they are encoded as, by their ids."""
_INDEXES: Final[LruCache[tuple[tuple[ManifestRow, ...], _Index]]] = LruCache(_INDEXES_KEPT)
"""By the identity of the rows, which are kept with them."""


def _index_of(rows: tuple[ManifestRow, ...]) -> _Index | None:
    """The index of rows; None if two of them have the same id."""
    kept = _INDEXES.get(id(rows))
    if kept is not None and kept[0] is rows:
        return kept[1]
    return _index(rows, [*map(_encode_row, rows)])


def _index(rows: tuple[ManifestRow, ...], encoded: Sequence[_Encoded]) -> _Index | None:
    index = {cells.cells[0]: (row, cells) for row, cells in zip(rows, encoded, strict=True)}
    if len(index) < len(rows):
        return None
    _INDEXES.keep(id(rows), (rows, index))
    return index


def _in_order(rows: Iterable[_Encoded], stamp: int) -> list[_Encoded]:
    """The rows and those of the format, in the order in which they are stored."""
    encoded = [*rows, *map(_encode_marker, _markers(stamp))]
    encoded.sort(key=lambda row: row.cells[0])
    return encoded


def _changes(before: _Index, after: _Index) -> str | None:
    """The ids of rows that are gone, and the cells of those that are new; None if that is a lot."""
    removed = [object_id for object_id in before if object_id not in after]
    added = [
        encoded.cells
        for object_id, (_, encoded) in after.items()
        if object_id not in before or before[object_id][1] != encoded
    ]
    text = json.dumps([removed, added], separators=(",", ":"))
    return text if len(text) <= _CHANGES_CHARACTERS_MAX else None


def rows_by_changes(
    rows: tuple[ManifestRow, ...], schemas: Sequence[pa.Schema]
) -> tuple[ManifestRow, ...] | None:
    """The rows of a version, from those of an earlier one and what each version since changed.

    The schemas are those of the versions since, the last one of the version itself. None unless all
    of them tell, and the digest of the last is that of the rows.
    """
    known = _index_of(rows)
    if known is None:
        return None
    index, metadata = dict(known), dict[str, str]()
    try:
        for schema in schemas:
            metadata = _texts(schema)
            removed, added = parsed(metadata[names.CHANGES_KEY])
            for object_id in removed:
                index.pop(object_id, None)
            for cells in added:
                encoded = _Encoded(tuple(cells), tuple(map(json.dumps, cells)))
                index[cells[0]] = (_row(*cells), encoded)
    except (*MALFORMED, DamagedGraphError):
        return None
    encoded_rows = _in_order((encoded for _, encoded in index.values()), _stamp(metadata))
    digest = _digest_of_texts(_columns(map(_TEXTS, encoded_rows)), metadata)
    if digest != metadata.get(names.DIGEST_KEY):
        return None
    changed_rows = tuple(row for row, _ in index.values())
    _INDEXES.keep(id(changed_rows), (changed_rows, index))
    return changed_rows


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The columns of `_DECODED`, of rows with a cell for each."""
    return [*zip(*rows, strict=True)] or [()] * len(_DECODED)


def decode(table: pa.Table) -> tuple[ManifestRow, ...]:
    """The rows of a manifest whose format is not newer than this program."""
    missing = set(_DECODED) - set(table.schema.names)
    if missing:
        raise DamagedGraphError(
            f"{names.MANIFEST} has no column {', '.join(sorted(missing))}: its version is damaged",
            next_step=_RESTORE,
        )
    columns = [table[name].to_pylist() for name in _DECODED]
    metadata = _texts(table.schema)
    _require_digest(columns, metadata)
    kinds = table["object_type"].to_pylist()
    markers = _markers(_stamp(metadata))
    missing_markers = sorted(set(markers).difference(kinds))
    if missing_markers:
        raise DamagedGraphError(
            f"{names.MANIFEST} has no row {missing_markers[0]!r}, which its format has",
            next_step=_RESTORE,
        )
    rows = zip(kinds, zip(*columns, strict=True), strict=True)
    return tuple(_row(*values) for kind, values in rows if kind not in markers)


def _markers(stamp: int) -> tuple[str, ...]:
    """The kinds of rows that say nothing but which formats the manifest went through.

    A program that was started before an upgrade does not look at the stamp again, and an earlier
    one replaced it without a look. None decodes a row of a kind that it does not know.
    """
    return tuple(map(names.format_marker, range(names.STAMP_OF_MARKERS, stamp + 1)))


@lru_cache
def _encode_marker(kind: str) -> _Encoded:
    return _Encoded.of({"object_id": kind, "object_type": kind})


def _digest(columns: Sequence[Sequence[object]], metadata: Mapping[str, str]) -> str:
    """Over everything that a manifest says, whichever of its files holds it."""
    return digest_of_values([columns, _without_digest(metadata)])


def _digest_of_texts(columns: Iterable[Sequence[str]], metadata: Mapping[str, str]) -> str:
    """The same for columns whose cells are in JSON: most were so for the version before."""
    lists = ",".join(f"[{','.join(column)}]" for column in columns)
    ours = json.dumps(_without_digest(metadata), sort_keys=True, separators=(",", ":"))
    return digest_of(f"[[{lists}],{ours}]".encode())


def _without_digest(metadata: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in metadata.items() if key != names.DIGEST_KEY}


def _require_digest(columns: Sequence[Sequence[object]], metadata: Mapping[str, str]) -> None:
    stamp, expected = _stamp(metadata), metadata.get(names.DIGEST_KEY)
    if expected is None and stamp < names.STAMP_OF_DIGESTS:
        return
    digest = _digest(columns, metadata)
    if digest != expected:
        raise DamagedGraphError(
            f"the rows of {names.MANIFEST} are damaged: their digest is {digest}, "
            f"expected {expected}",
            next_step=_RESTORE,
        )


def _texts(schema: pa.Schema) -> dict[str, str]:
    metadata = schema.metadata or {}
    try:
        return {key.decode(): raw.decode() for key, raw in metadata.items()}
    except UnicodeDecodeError as error:
        raise DamagedGraphError(f"the metadata of {names.MANIFEST} is damaged: {error}") from error


def _stamp(metadata: Mapping[str, str]) -> int:
    stamp = metadata.get(names.STAMP_KEY, "1")
    if _STAMP.fullmatch(stamp) is None:
        raise DamagedGraphError(
            f"the format stamp of {names.MANIFEST} is {stamp!r:.80}, expected a number from 1",
            next_step=_RESTORE,
        )
    return int(stamp)


def facts_of(schema: pa.Schema) -> ManifestFacts:
    """What a manifest says beside its rows; one without a stamp has the first format."""
    metadata = _texts(schema)
    durability = metadata.get(names.DURABILITY_KEY, Durability.COMMIT)
    if durability not in set(Durability):
        raise DamagedGraphError(f"the manifest's durability is {durability!r:.80}")
    return ManifestFacts(
        stamp=_stamp(metadata),
        durability=Durability(durability),
        unsynced_boot=metadata.get(names.UNSYNCED_KEY),
    )


@remember_derived(most=_REMEMBERED_ROWS)
def _encode_row(row: ManifestRow) -> _Encoded:
    if isinstance(row, Table | TableVersion | Tombstone):
        return _Encoded.of(_table_record(row))
    return _Encoded.of(_graph_record(row))


def _table_record(row: Table | TableVersion | Tombstone) -> dict[str, Any]:
    match row:
        case Table():
            return _fields(
                ObjectType.TABLE,
                row.table_key if row.made_by is None else f"{row.table_key}@{row.made_by}",
                location=row.location,
                table_key=row.table_key,
                metadata={"type_number": row.type_number, "made_by": row.made_by},
            )
        case TableVersion():
            return _fields(
                ObjectType.TABLE_VERSION,
                f"{row.branch or names.MAIN}:{row.table_key}:{row.version}",
                table_key=row.table_key,
                table_version=row.version,
                table_branch=row.branch,
                row_count=row.row_count,
                location=row.location,
                metadata={
                    "fork": row.fork,
                    "made_at": row.made_at,
                    "checksums": row.checksums,
                },
            )
        case Tombstone():
            return _fields(
                ObjectType.TABLE_TOMBSTONE,
                f"{row.branch or names.MAIN}:{row.table_key}:{row.version}",
                table_key=row.table_key,
                table_version=row.version,
                table_branch=row.branch,
            )
        case _:
            assert_never(row)


def _graph_record(row: GraphHead | GraphCommit | Operation) -> dict[str, Any]:
    match row:
        case GraphHead():
            return _fields(
                ObjectType.GRAPH_HEAD,
                row.branch or names.MAIN,
                table_branch=row.branch,
                metadata={
                    "sequence": row.sequence,
                    "commit_id": row.commit_id,
                    "incarnation": row.incarnation,
                    "schema_hash": row.schema_hash,
                    "parent_branch": row.parent_branch,
                    "folded_operation": row.folded_operation,
                    "pruned_operation": row.pruned_operation,
                    "initial_schema": row.initial_schema,
                },
            )
        case GraphCommit():
            return _fields(
                ObjectType.GRAPH_COMMIT,
                row.commit_id,
                table_branch=row.branch,
                metadata={
                    "operation_id": row.operation_id,
                    "actor": row.actor,
                    "created_at": row.created_at,
                    "parent_id": row.parent_id,
                    "merged_parent_id": row.merged_parent_id,
                    "resolution": row.resolution,
                    "manifest_version": row.manifest_version,
                    "tables": row.tables or None,
                    "schema_change": None
                    if row.schema_change is None
                    else row.schema_change.to_json(),
                    "message": row.message,
                    "metadata": row.note.metadata or None,
                },
            )
        case Operation():
            return _fields(
                ObjectType.OPERATION,
                row.operation_id,
                table_branch=row.branch,
                metadata={
                    "outcome": row.outcome,
                    "decided_by": row.decided_by,
                    "decided_at": row.decided_at,
                    "commit_id": row.commit_id,
                },
            )
        case _:
            assert_never(row)


def _fields(
    object_type: ObjectType,
    identity: str,
    *,
    metadata: Mapping[str, object] | None = None,
    **columns: object,
) -> dict[str, Any]:
    present = {key: value for key, value in (metadata or {}).items() if value is not None}
    return {
        "object_id": f"{object_type}:{identity}",
        "object_type": object_type.value,
        "metadata": json.dumps(present, sort_keys=True) if present else None,
        **columns,
    }


@lru_cache(_REMEMBERED_ROWS)
def _row(*values: object) -> ManifestRow:
    record = dict(zip(_DECODED, values, strict=True))
    try:
        object_type = ObjectType(record["object_type"])
        metadata = parsed(str(record["metadata"] or "{}"))
        row = _typed_row(object_type, record, metadata)
        paths = tuple(paths_in(row))
    except MALFORMED as error:
        raise DamagedGraphError(
            f"manifest row {record.get('object_id')!r} cannot be parsed: {error!r}",
            next_step="Run `omnigraph check` on the graph.",
        ) from error
    for path in paths:
        stored_path(path, said_by=f"{names.MANIFEST} row {record['object_id']!r:.200}")
    return row


def _typed_row(
    object_type: ObjectType, record: Mapping[str, Any], metadata: Mapping[str, Any]
) -> ManifestRow:
    match object_type:
        case ObjectType.TABLE:
            return Table(
                table_key=_text(record, "table_key"),
                location=_text(record, "location"),
                type_number=metadata.get("type_number"),
                made_by=metadata.get("made_by"),
            )
        case ObjectType.TABLE_VERSION:
            return TableVersion(
                table_key=_text(record, "table_key"),
                version=int(record["table_version"]),
                branch=record["table_branch"],
                row_count=int(record["row_count"] or 0),
                fork=metadata.get("fork"),
                made_at=metadata.get("made_at"),
                location=record["location"],
                checksums=metadata.get("checksums"),
            )
        case ObjectType.TABLE_TOMBSTONE:
            return Tombstone(
                table_key=_text(record, "table_key"),
                version=int(record["table_version"]),
                branch=record["table_branch"],
            )
        case ObjectType.GRAPH_HEAD:
            return GraphHead(branch=record["table_branch"], **metadata)
        case ObjectType.GRAPH_COMMIT:
            object_id = _text(record, "object_id")
            identity = object_id.removeprefix(f"{object_type}:")
            if identity == object_id and "operation_id" not in metadata:
                # It has stamps of its own from 4 on, the first that meant something else here.
                raise OtherFormatError(names.MANIFEST, writer="Omnigraph 0.8 or later")
            moved = tuple(tuple(table) for table in metadata.get("tables", ()))
            change = metadata.get("schema_change")
            changed = None if change is None else SchemaChange.from_json(change)
            fields = {**metadata, "tables": moved, "schema_change": changed}
            note = CommitNote.parse(fields.pop("message", None), fields.pop("metadata", None))
            return GraphCommit(
                commit_id=identity, branch=record["table_branch"], note=note, **fields
            )
        case ObjectType.OPERATION:
            identity = _text(record, "object_id").removeprefix(f"{object_type}:")
            return Operation(
                operation_id=identity,
                branch=record["table_branch"],
                outcome=Outcome(metadata["outcome"]),
                decided_by=metadata["decided_by"],
                decided_at=metadata["decided_at"],
                commit_id=metadata.get("commit_id"),
            )
        case _:
            assert_never(object_type)


def paths_in(row: ManifestRow) -> Iterator[str]:
    """What a row says that becomes a part of a path."""
    match row:
        case Table():
            yield row.location
            yield from _present(row.made_by)
        case TableVersion():
            yield from _present(row.location, row.fork, row.checksums, row.branch)
        case Tombstone():
            yield from _present(row.branch)
        case GraphHead():
            yield from _present(row.branch, row.incarnation, row.schema_hash)
            yield from _present(row.parent_branch, row.initial_schema)
        case GraphCommit():
            yield from _present(row.branch, *(fork for _, _, fork in row.tables))
            if row.schema_change is not None:
                yield from row.schema_change.paths
        case Operation():
            yield from _present(row.branch)
        case _:
            assert_never(row)


def _present(*paths: str | None) -> Iterator[str]:
    return (path for path in paths if path)


def _text(record: Mapping[str, Any], column: str) -> str:
    value = record[column]
    if not isinstance(value, str):
        raise TypeError(f"{column} is {value!r}, expected text")
    return value
