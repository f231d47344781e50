"""Stores the long history beside the manifest: commits, their actors, recoveries.

A manifest before stamp 4 has no head and no commits: these are only in the history, and branches
only in Lance. Its readers are given the rows that the migration to stamp 4 would write. These rows
are never stored: reading writes nothing, and the migration writes rows of its own.

Invariant: the history is derived, and only ever added to. A commit arrives here from the manifest
before it leaves the manifest. Adding it twice adds nothing, unless two writers do so at once or the
first time was long ago; readers ignore what is there twice.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from lance import LanceDataset
from lance.commit import CommitConflictError
from lance.fragment import write_fragments

from omnigraph_lake import names
from omnigraph_lake.display.cells import Moment
from omnigraph_lake.display.pages import Displayed, Listing, Page, page_of
from omnigraph_lake.display.tables import TableView
from omnigraph_lake.errors import ConflictError, DamagedGraphError, StorageUnavailableError
from omnigraph_lake.notes import CommitNote
from omnigraph_lake.storage import manifest_rows
from omnigraph_lake.storage.lance import datasets
from omnigraph_lake.storage.manifest import legacy_history
from omnigraph_lake.storage.manifest.retention import Line, Removal, remove_versions, versions_of
from omnigraph_lake.storage.objects.documents import MALFORMED, digest_of_values, parsed
from omnigraph_lake.storage.objects.location import Root, stored_path
from omnigraph_lake.storage.objects.store import stored_objects

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_UTC_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")
_DIGEST: Final = pa.field("digest", pa.string())
"""Of the other columns; rows that were added before format 7 have none."""

_SHAPES: Final[Mapping[str, pa.Schema]] = {
    names.COMMITS: pa.schema(
        [
            pa.field("graph_commit_id", pa.string(), nullable=False),
            pa.field("graph_branch", pa.string()),
            pa.field("manifest_version", pa.uint64(), nullable=False),
            pa.field("parent_commit_id", pa.string()),
            pa.field("merged_parent_commit_id", pa.string()),
            pa.field("created_at", _UTC_MICROSECONDS, nullable=False),
            pa.field("operation_id", pa.string()),
            pa.field("tables", pa.string()),
            pa.field("resolution", pa.string()),
            pa.field("schema_change", pa.string()),
            pa.field("message", pa.string()),
            pa.field("metadata", pa.string()),
            _DIGEST,
        ]
    ),
    names.COMMIT_ACTORS: pa.schema(
        [
            pa.field("graph_commit_id", pa.string(), nullable=False),
            pa.field("actor_id", pa.string(), nullable=False),
            _DIGEST,
        ]
    ),
    names.RECOVERIES: pa.schema(
        [
            pa.field("operation_id", pa.string(), nullable=False),
            pa.field("graph_commit_id", pa.string()),
            pa.field("recovery_kind", pa.string(), nullable=False),
            pa.field("original_actor", pa.string()),
            pa.field("writer_kind", pa.string(), nullable=False),
            pa.field("tables", pa.string(), nullable=False),
            pa.field("recovered_at", _UTC_MICROSECONDS, nullable=False),
            _DIGEST,
        ]
    ),
}

HISTORY: Final = tuple(_SHAPES)
_SHAPE_ATTEMPTS: Final = 5
_FRAGMENTS_WORTH_COMPACTING: Final = 8
_FILES_LOOKED_AT: Final = 8
_VERSIONS_KEPT: Final = 100
"""An addition may be based on any of these; a decision about a later one would not be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery(Displayed):
    """What became of one unfinished write; `commit_id` is the commit that says so, if any."""

    operation_id: str
    commit_id: str | None
    kind: str
    original_actor: str
    writer_kind: str
    tables: tuple[str, ...]
    recovered_at: str

    def _page(self) -> Page:
        return page_of(RecoveryListing([self]))


class RecoveryListing(Listing[Recovery]):
    """Recoveries, as a table."""

    __slots__ = ()

    def _page(self) -> Page:
        rows = [
            (
                recovery.operation_id,
                recovery.kind,
                recovery.writer_kind,
                recovery.original_actor,
                Moment(recovery.recovered_at),
                ", ".join(recovery.tables),
            )
            for recovery in self
        ]
        header = ("operation", "kind", "writer", "of", "when", "tables")
        return Page(tables=[TableView(header=header, rows=rows, empty="no recoveries")])


def create_history(root: Root, *, operation_id: str) -> None:
    """Create the empty history tables."""
    for location, schema in _SHAPES.items():
        datasets.create_dataset(root, location, schema.empty_table(), operation_id=operation_id)


def ensure_history(root: Root, *, operation_id: str) -> None:
    """Give older history tables the shape of today, and create missing ones.

    Several processes may do so at once: who loses a race finds what the other one has done.
    """
    for location in _SHAPES:
        for _ in range(_SHAPE_ATTEMPTS - 1):
            with suppress(ConflictError, StorageUnavailableError, CommitConflictError):
                _ensure_table(root, location, operation_id)
                break
        else:
            _ensure_table(root, location, operation_id)


def _ensure_table(root: Root, location: str, operation_id: str) -> None:
    schema = _SHAPES[location]
    dataset = datasets.open_dataset(root, location)
    if dataset is None:
        datasets.create_dataset(root, location, schema.empty_table(), operation_id=operation_id)
        return
    if legacy_history.is_legacy(dataset):
        dataset = _rewrite(root, location, dataset)
    missing = [field for field in schema if field.name not in dataset.schema.names]
    if missing:
        with datasets.translated(root, f"add columns to {location}"):
            dataset.add_columns(pa.schema(missing))
    if datasets.cleans_by_itself(dataset):
        with datasets.translated(root, f"switch off the automatic cleanup of {location}"):
            LanceDataset.commit(
                dataset, datasets.without_cleanup(dataset), read_version=dataset.version
            )


def _rewrite(root: Root, location: str, dataset: LanceDataset) -> LanceDataset:
    """Write the rows of Omnigraph 0.3 to 0.7 as those of today."""
    rows = [
        {**row, _DIGEST.name: _digest(row)}
        for row in legacy_history.read_records(root, location, dataset)
    ]
    table = pa.Table.from_pylist(rows, schema=_SHAPES[location])
    with datasets.translated(root, f"rewrite {location}"):
        change = write_fragments(table, dataset, mode="overwrite", return_transaction=True)
        return LanceDataset.commit(dataset, change)


def record_commits(root: Root, commits: Sequence[manifest_rows.GraphCommit]) -> None:
    """Add commits and their actors; those already there stay as they are, see `_add`."""
    _add(
        root,
        names.COMMITS,
        "graph_commit_id",
        [
            {
                "graph_commit_id": commit.commit_id,
                "graph_branch": commit.branch,
                "manifest_version": commit.manifest_version,
                "parent_commit_id": commit.parent_id,
                "merged_parent_commit_id": commit.merged_parent_id,
                "created_at": datetime.fromisoformat(commit.created_at),
                "operation_id": commit.operation_id,
                "tables": json.dumps(commit.tables),
                "resolution": commit.resolution,
                "schema_change": None
                if commit.schema_change is None
                else commit.schema_change.to_json(),
                "message": commit.message,
                "metadata": commit.note.metadata_json,
            }
            for commit in commits
        ],
    )
    actors = [{"graph_commit_id": commit.commit_id, "actor_id": commit.actor} for commit in commits]
    _add(root, names.COMMIT_ACTORS, "graph_commit_id", actors)


def record_recovery(root: Root, recovery: Recovery) -> None:
    row = {
        "operation_id": recovery.operation_id,
        "graph_commit_id": recovery.commit_id,
        "recovery_kind": recovery.kind,
        "original_actor": recovery.original_actor,
        "writer_kind": recovery.writer_kind,
        "tables": json.dumps(recovery.tables),
        "recovered_at": datetime.fromisoformat(recovery.recovered_at),
    }
    _add(root, names.RECOVERIES, "operation_id", [row])


def find_published(root: Root, operation_id: str) -> tuple[manifest_rows.Operation, ...]:
    """The decisions about an operation whose commits moved here, one per branch that made it."""
    return _find_published(root, f"operation_id = {_quote(operation_id)}")


def find_published_with_key(
    root: Root, key: names.OperationKey
) -> tuple[manifest_rows.Operation, ...]:
    """The same of the operations that were attempted with an idempotency key."""
    return _find_published(root, f"operation_id LIKE {_quote(key.prefix + '%')}")


def _find_published(root: Root, where: str) -> tuple[manifest_rows.Operation, ...]:
    rows = _rows(root, names.COMMITS, where=where)
    return tuple(
        manifest_rows.Operation(
            operation_id=row["operation_id"],
            branch=row["graph_branch"],
            outcome=manifest_rows.Outcome.PUBLISHED,
            decided_by=names.COMMITS,
            decided_at=row["created_at"].isoformat(),
            commit_id=row["graph_commit_id"],
        )
        for row in rows
    )


def recorded_commits(root: Root) -> tuple[manifest_rows.GraphCommit, ...]:
    """Every commit that moved here, each once, in the order of manifest versions."""
    actors = {row["graph_commit_id"]: row["actor_id"] for row in _rows(root, names.COMMIT_ACTORS)}
    rows = _rows(root, names.COMMITS)
    try:
        commits = {
            row["graph_commit_id"]: _commit(row, actors.get(row["graph_commit_id"], ""))
            for row in rows
        }
        paths = [
            (commit, path) for commit in commits.values() for path in manifest_rows.paths_in(commit)
        ]
    except MALFORMED as error:
        raise _not_understood(root, names.COMMITS, error) from error
    for commit, path in paths:
        stored_path(path, said_by=f"commit {commit.commit_id} of {names.COMMITS}")
    return tuple(sorted(commits.values(), key=lambda commit: commit.manifest_version))


def recorded_recoveries(root: Root) -> Listing[Recovery]:
    """Every recovery, each once, oldest first."""
    rows = _rows(root, names.RECOVERIES)
    try:
        recoveries = {row["operation_id"]: _recovery(row) for row in rows}
    except MALFORMED as error:
        raise _not_understood(root, names.RECOVERIES, error) from error
    return RecoveryListing(sorted(recoveries.values(), key=lambda recovery: recovery.recovered_at))


def _commit(row: Mapping[str, Any], actor: str) -> manifest_rows.GraphCommit:
    change = row.get("schema_change")
    return manifest_rows.GraphCommit(
        commit_id=row["graph_commit_id"],
        branch=row.get("graph_branch"),
        operation_id=row.get("operation_id") or "",
        actor=actor,
        created_at=row["created_at"].isoformat(timespec="microseconds"),
        parent_id=row.get("parent_commit_id"),
        merged_parent_id=row.get("merged_parent_commit_id"),
        resolution=row.get("resolution"),
        manifest_version=row["manifest_version"],
        tables=tuple(tuple(table) for table in parsed(row.get("tables") or "[]")),
        schema_change=manifest_rows.SchemaChange.from_json(change) if change else None,
        note=CommitNote.parse(row.get("message"), parsed(row.get("metadata") or "{}")),
    )


def _recovery(row: Mapping[str, Any]) -> Recovery:
    return Recovery(
        operation_id=row["operation_id"],
        commit_id=row["graph_commit_id"],
        kind=row["recovery_kind"],
        original_actor=row["original_actor"],
        writer_kind=row["writer_kind"],
        tables=tuple(parsed(row["tables"])),
        recovered_at=row["recovered_at"].isoformat(timespec="microseconds"),
    )


def _not_understood(root: Root, location: str, error: Exception) -> DamagedGraphError:
    return DamagedGraphError(
        f"a row of {location} of {root} cannot be understood: {error!r:.120}",
        next_step="Restore it from a backup of the root.",
    )


def compact_history(root: Root) -> None:
    """Compact the files of the history; a lost race with an addition is ignored."""
    for location in HISTORY:
        dataset = datasets.open_dataset(root, location)
        if dataset is None or len(dataset.get_fragments()) < _FRAGMENTS_WORTH_COMPACTING:
            continue
        with suppress(OSError):
            dataset.optimize.compact_files()


def forget_old_history(root: Root, location: str) -> Removal:
    """Delete old versions of a history table; its rows stay."""
    line = Line(location, None)
    return remove_versions(root, line, versions_of(root, line)[:-_VERSIONS_KEPT])


def _add(root: Root, location: str, key: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append the rows that the newest files do not have.

    Whatever is added a second time was added shortly before, by a writer that ended or is still at
    it. A look at all files would cost more with every commit.
    """
    dataset = _existing(root, location)
    with datasets.translated(root, f"add to {location}"):
        known = _newest_keys(dataset, key)
        added = [{**row, _DIGEST.name: _digest(row)} for row in rows if row[key] not in known]
        if added:
            table = pa.Table.from_pylist(added, schema=_SHAPES[location])
            LanceDataset.commit(dataset, write_fragments(table, dataset, return_transaction=True))


def _newest_keys(dataset: LanceDataset, key: str) -> frozenset[str]:
    newest = dataset.get_fragments()[-_FILES_LOOKED_AT:]
    if not newest:
        return frozenset()
    keys = dataset.scanner(columns=[key], fragments=newest).to_table().column(key)
    return frozenset(keys.to_pylist())


def _rows(root: Root, location: str, *, where: str | None = None) -> list[dict[str, Any]]:
    dataset = datasets.open_dataset(root, location)
    if dataset is None:
        return []
    if legacy_history.is_legacy(dataset):
        # No operation of that time has an id in it.
        return [] if where else [*map(dict, legacy_history.read_records(root, location, dataset))]
    _require_columns(root, location, dataset)
    with datasets.translated(root, f"read {location}"):
        rows: list[dict[str, Any]] = dataset.to_table(filter=where).to_pylist()
    for row in rows:
        _require_digest(root, location, row)
    return rows


def _require_columns(root: Root, location: str, dataset: LanceDataset) -> None:
    """Refuse a version file of another table: Lance takes its columns from what the file says."""
    required = {field.name for field in _SHAPES[location] if not field.nullable}
    with datasets.translated(root, f"read {location}"):
        missing = sorted(required.difference(dataset.schema.names))
    if missing:
        raise DamagedGraphError(
            f"the newest version of {location} in {root} is damaged: it has no column {missing[0]}"
            ". Commits older than the manifest are at risk, no table is",
            next_step=f"Restore {location} from a backup of the root.",
        )


def _digest(row: Mapping[str, Any]) -> str:
    return digest_of_values(
        {
            name: value.astimezone(UTC).isoformat() if isinstance(value, datetime) else value
            for name, value in row.items()
            if name != _DIGEST.name and value is not None
        }
    )


def _require_digest(root: Root, location: str, row: Mapping[str, Any]) -> None:
    expected = row.get(_DIGEST.name)
    if expected is None:
        return
    digest = _digest(row)
    if digest != expected:
        raise DamagedGraphError(
            f"a row of {location} in {root} is damaged: its digest is {digest}, "
            f"expected {expected}. Commits older than the manifest are at risk, no table is",
            next_step=f"Restore {location} from a backup of the root.",
        )


def _existing(root: Root, location: str) -> LanceDataset:
    dataset = datasets.open_dataset(root, location)
    if dataset is None:
        ensure_history(root, operation_id=location)
        dataset = datasets.open_dataset(root, location)
    assert dataset is not None
    return dataset


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


UNRECORDED: Final = "0" * 26
"""The substitute commit of a state without a commit in the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldVersion:
    """A version of a manifest without a head, and what Lance knows of it."""

    branch: str | None
    parent_branch: str | None
    version: int
    made_at: str
    schema_hash: str


def assumed_rows(root: Root, old: OldVersion) -> tuple[manifest_rows.ManifestRow, ...]:
    """The head of a version of a manifest that has none, and its commit if none was recorded."""
    commit = _newest(root, old)
    head = manifest_rows.GraphHead(
        branch=old.branch,
        sequence=old.version,
        commit_id=UNRECORDED if commit is None else commit.commit_id,
        incarnation="",
        schema_hash=old.schema_hash,
        parent_branch=old.parent_branch,
    )
    if commit is not None:
        return (head,)
    unrecorded = manifest_rows.GraphCommit(
        commit_id=UNRECORDED,
        branch=old.branch,
        operation_id="",
        actor="",
        created_at=old.made_at,
        manifest_version=old.version,
    )
    return (head, unrecorded)


def schema_hash_at_root(root: Root) -> str:
    """The accepted schema of a graph whose manifest does not name it."""
    content = stored_objects(root).read(names.SCHEMA_STATE)
    try:
        state = parsed(content or b"")
        return str(state.get(names.LEGACY_SCHEMA_HASH) or state["model_hash"])
    except MALFORMED as error:
        raise DamagedGraphError(
            f"{names.SCHEMA_STATE} of {root} is missing or damaged: {error!r:.80}",
            next_step="Restore it from a backup.",
        ) from error


def _newest(root: Root, old: OldVersion) -> manifest_rows.GraphCommit | None:
    """The commit that left the version."""
    wanted = legacy_history.head_commit(root, old.branch, old.version)
    known = (commit for commit in recorded_commits(root) if commit.commit_id == wanted)
    return next(known, None)
