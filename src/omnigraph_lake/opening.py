"""Creates, imports, opens, recovers, backs up, restores, clones and verifies whole graphs.

Invariants:
- Opening for writing verifies that the store is safe, upgrades the format and recovers unfinished
  writes; opening for reading writes nothing.
- Copies are a thin facade: one operation makes backups, which are incremental, restores and clones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Final, Literal

from omnigraph_lake import names
from omnigraph_lake.api.handle import Handle, OpenMode
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import checked_actor, flag, one_of, text_or_none
from omnigraph_lake.creation.initialise import (
    apply_initialise,
    existing_graph,
    plan_initialise,
    stored_at,
)
from omnigraph_lake.display.cells import Cell, counted
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.graph import Graph
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.notes import commit_note
from omnigraph_lake.storage.manifest.history import Recovery, record_recovery
from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
from omnigraph_lake.storage.manifest.swap import is_whole, read_manifest
from omnigraph_lake.storage.objects.durability import with_reserve
from omnigraph_lake.storage.objects.location import is_durability_given, parse_root
from omnigraph_lake.storage.objects.paths import checked_path
from omnigraph_lake.storage.objects.power_cuts import SetAside, mark_boot, set_aside_torn_files
from omnigraph_lake.storage.objects.processes import use_storage
from omnigraph_lake.storage.objects.store import Objects, StoredObjects
from omnigraph_lake.storage.refs.branches import claim_branch
from omnigraph_lake.ulids import new_ulid
from omnigraph_lake.validation.schema_contract import Contracts, contract_for, read_contract

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph_lake.api.options import Durability, ImportedInput, ImportOptions, Spark, Verify
    from omnigraph_lake.commit.recovery import RecoveryReport
    from omnigraph_lake.creation.copying import CopyKind, CopyReport
    from omnigraph_lake.importer.import_report import ImportReport
    from omnigraph_lake.load.report import ImportPolicy
    from omnigraph_lake.maintenance.rebuild.rebuild import RebuildReport
    from omnigraph_lake.validation.check import Finding
    from omnigraph_lake.validation.schema_contract import SchemaContract


SCHEMA_SUFFIX: Final = ".pg"


def init(  # noqa: PLR0913 - each is a question of the caller's own
    root: str,
    *,
    schema: str | PathLike[str],
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    force: bool = False,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability | None = None,
    verify: Verify | None = None,
) -> Graph:
    """Create a graph with a schema at an empty root.

    Args:
        root: A local path, `file://` or `s3://` URL.
        schema: The schema as `.pg` text, or the path of a file with it.
        actor: Author of the first commit.
        message: Message of the first commit.
        metadata: Further texts by name to store with it.
        force: Take over a root where an earlier initialisation did not finish.
        storage_options: Options of the object store.
        durability: Whether acknowledged writes on a local disk survive a power failure
            ("commit") or only a crash of the process ("os"). It becomes the default of the graph.
        verify: Which files are compared with their checksums, as for `open`.
    """
    from omnigraph_lake.schema.compile import (
        compile_schema,  # costs 120 ms that a reader need not pay
    )

    use_storage()
    text, filename = _schema_text(schema)
    flag(force, argument="force")
    location = parse_root(
        root, storage_options=storage_options, durability=durability, verify=verify
    )
    by = None if actor is None else checked_actor(actor)
    note = commit_note(message, metadata)
    catalog = compile_schema(text, filename=filename, identity_domain=new_ulid())
    contract = contract_for(text, catalog)
    plan = plan_initialise(
        contract, actor=by, note=note, now=SYSTEM_CLOCK.timestamp(), new_id=new_ulid
    )
    objects = StoredObjects(location, create=True)
    apply_initialise(plan, objects, force=force)
    mark_boot(location)
    return _graph(objects, contract, OpenMode.READ_WRITE)


def open(  # noqa: A001 - read as og.open(...)
    root: str,
    *,
    branch: str = names.MAIN,
    read_only: bool = False,
    storage_options: Mapping[str, str] | None = None,
    durability: Durability | None = None,
    verify: Verify | None = None,
) -> Graph:
    """Open a graph.

    Opening for writing verifies that the store honours put-if-absent, upgrades the internal format,
    quarantines files damaged by a power failure and recovers unfinished writes. Opening for reading
    changes nothing.

    Args:
        root: A local path, `file://` or `s3://` URL.
        branch: The branch to read and write.
        read_only: Open it for reading only; writes nothing.
        storage_options: Options of the object store.
        durability: Whether acknowledged writes on a local disk survive a power failure
            ("commit") or only a crash of the process ("os"); by default the setting of the graph.
        verify: Which files are compared with their checksums before they are read, each once per
            process: "metadata" (the default) or "first-read", which includes all data.
    """
    location = parse_root(
        root, storage_options=storage_options, durability=durability, verify=verify
    )
    open_mode = OpenMode.READ_ONLY if flag(read_only, argument="read_only") else OpenMode.READ_WRITE
    state = existing_graph(location)
    set_aside = SetAside()
    if open_mode is OpenMode.READ_WRITE:
        set_aside = set_aside_torn_files(location, is_whole)
    if not is_durability_given(durability):
        location = replace(location, durability=state.facts.durability)
    objects = StoredObjects(location)
    if open_mode is OpenMode.READ_WRITE:
        _made_writable(objects, state, set_aside)
    contract = read_contract(objects, state.schema_hash)
    graph = _graph(objects, contract, open_mode)
    return graph if branch == names.MAIN else graph.checkout(branch)


def _graph(objects: Objects, contract: SchemaContract, mode: OpenMode) -> Graph:
    return Graph(Handle(objects, Contracts(objects, contract), contract, mode=mode))


def _schema_text(schema: object) -> tuple[str, str]:
    """The text of a schema, and how diagnostics call it."""
    if isinstance(schema, str):
        if schema.endswith(SCHEMA_SUFFIX):
            raise InvalidInputError(
                f"schema is {shown(schema)}, the path of a file, expected a text",
                next_step=f"Give `pathlib.Path({shown(schema)})`.",
            )
        return schema, "schema"
    if not isinstance(schema, PathLike):
        raise InvalidInputError(f"schema is {shown(schema)}, expected its text or a path")
    path = checked_path(schema, argument="schema")
    try:
        return path.read_text(encoding="utf-8"), str(path)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(
            f"cannot read {path}: {error}", next_step="Give the path of a UTF-8 text file."
        ) from error


def import_data(  # noqa: PLR0913 - every word of an import is one
    root: str,
    sources: ImportedInput,
    *,
    mapping: str | PathLike[str] | None = None,
    schema: str | PathLike[str] | None = None,
    on_error: Literal["fail", "quarantine"] = "quarantine",
    on_duplicate: Literal["last", "first", "fail"] = "last",
    new_rows: bool = False,
    spark: Spark | None = None,
    dry_run: bool = False,
    actor: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, str] | None = None,
    options: ImportOptions | None = None,
) -> ImportReport:
    """Create a graph from raw data, or import more of it, as one commit.

    Without a mapping, a schema and a mapping are inferred and written beside the graph; later
    imports use them, or the mapping given. Importing the same data twice changes nothing.

    Args:
        root: A local path, `file://` or `s3://` URL.
        sources: Paths, patterns and directories; frames and lists of dicts by name; or a networkx
            graph.
        mapping: The path of a mapping file (`.map.toml`), or its text.
        schema: The schema of a new graph, as text or path; by default what the mapping names.
        on_error: `quarantine` sets rejected records aside, `fail` writes nothing if there is one.
        on_duplicate: Of records with one key the `last` or `first` stands; `fail` rejects others.
        new_rows: Records without a key are new rows, also if equal ones were imported before.
        spark: A Spark session or target, as for `Graph.load`.
        dry_run: Infer, and validate if the graph exists; nothing is written.
        actor: Author of the commit; the user of this process by default.
        message: Message of the commit; the names of the inputs by default.
        metadata: Further texts by name to store with the commit.
        options: Rarer options.

    Raises:
        InvalidInputError: an input or the mapping cannot be used; nothing was written.
        LoadRefusedError: too many records are invalid; a new graph on a local disk is removed.
    """
    from omnigraph_lake.api.importing import ImportRequest, run_import  # inference and parsers

    stored = (chosen := _import_options(options)).storage_options
    request = ImportRequest(
        root=parse_root(root, storage_options=stored),
        sources=sources,
        mapping=mapping,
        schema=schema,
        on_error=on_error,
        spark=spark,
        dry_run=flag(dry_run, argument="dry_run"),
        actor=actor,
        note=commit_note(message, metadata),
        policy=_import_policy(on_duplicate, new_rows),
        options=chosen,
        create=lambda text: init(root, schema=text, actor=actor, storage_options=stored),
        reopen=lambda: open(root, read_only=dry_run, storage_options=stored),
    )
    return run_import(request)


def _import_policy(on_duplicate: object, new_rows: object) -> ImportPolicy:
    from omnigraph_lake.load.report import ImportPolicy, OnDuplicate  # parsers

    return ImportPolicy(
        new_rows=flag(new_rows, argument="new_rows"),
        on_duplicate=one_of(OnDuplicate, on_duplicate, argument="on_duplicate"),
    )


def _import_options(options: object) -> ImportOptions:
    from omnigraph_lake.api.options import ImportOptions  # inference and parsers

    if options is None:
        return ImportOptions()
    if isinstance(options, ImportOptions):
        return options
    raise InvalidInputError(f"options is {shown(options)}, expected ImportOptions")


def recover(root: str, *, force: bool = False) -> RecoveryReport:
    """Recover unfinished writes, as opening for writing does, and report them.

    Args:
        root: A local path, `file://` or `s3://` URL.
        force: Also recover writes of writers that may still be running.
    """
    flag(force, argument="force")
    location = parse_root(root)
    state = existing_graph(location)
    set_aside = set_aside_torn_files(location, is_whole)
    objects = StoredObjects(replace(location, durability=state.facts.durability))
    return with_reserve(location, partial(_made_writable, objects, state, set_aside, force=force))


def rebuild_manifest(
    root: str,
    *,
    dry_run: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> RebuildReport:
    """Show what can be recovered of a graph whose manifest is lost, or recover it.

    Args:
        root: A local path, `file://` or `s3://` URL.
        dry_run: Only show it; nothing is written. Otherwise damaged files are moved to the
            quarantine; nothing is deleted.
        storage_options: Options of the object store.

    Raises:
        ConflictError: the manifest is intact, or another process rebuilds it.
        DamagedGraphError: a table or the schema cannot be recovered.
        NotFoundError: there is no graph.
    """
    from omnigraph_lake.maintenance.rebuild.rebuild import (
        rebuild,  # opening a graph does not need it
    )

    flag(dry_run, argument="dry_run")
    objects = stored_at(parse_root(root, storage_options=storage_options))
    return rebuild(objects, SYSTEM_CLOCK, confirm=not dry_run)


def _made_writable(
    objects: Objects, state: ManifestState, set_aside: SetAside, *, force: bool = False
) -> RecoveryReport:
    # Readers need none.
    from omnigraph_lake.commit.protocol import rewrite_legacy_tables
    from omnigraph_lake.commit.recovery import sweep
    from omnigraph_lake.creation.lost_manifest import require_newest

    require_newest(objects, state)
    _prepare_for_writing(objects, state)
    torn = _recorded(set_aside, objects)
    swept = sweep(objects, SYSTEM_CLOCK, force=force)
    if state.stamp < names.STAMP:
        state = read_manifest(objects.root)
    rewrite_legacy_tables(objects, SYSTEM_CLOCK, state)
    return replace(swept, settled=(*torn, *swept.settled))


def _recorded(set_aside: SetAside, objects: Objects) -> tuple[Recovery, ...]:
    if not set_aside.files:
        return ()
    recovery = Recovery(
        operation_id=new_ulid(),
        commit_id=None,
        kind="power_cut",
        original_actor="",
        writer_kind="",
        tables=set_aside.files,
        recovered_at=SYSTEM_CLOCK.timestamp(),
    )
    record_recovery(objects.root, recovery)
    return (recovery,)


def _prepare_for_writing(objects: Objects, state: ManifestState) -> None:
    claim_branch(
        objects,
        BranchRef(branch=names.MAIN, incarnation=new_ulid(), claimed_at=SYSTEM_CLOCK.timestamp()),
    )
    if state.stamp < names.STAMP:
        # A graph of this format does not need it.
        from omnigraph_lake.maintenance.migrations import MigrationContext, migrate

        migrate(
            MigrationContext(
                objects=objects,
                operation_id=new_ulid(),
                now=SYSTEM_CLOCK.timestamp(),
                new_id=new_ulid,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport(Displayed):
    """Whether a backup, or any graph, is complete and undamaged."""

    root: str
    taken_at: str | None
    """When the backup was taken; None if the root is not a backup."""
    is_published: bool
    """False if a decided backup is not in place yet: the next one completes it."""
    branches: tuple[str, ...]
    files_compared: int
    files_unrecorded: int
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return self.is_published and not self.findings

    def _page(self) -> Page:
        verdict = "ok" if self.ok else counted(len(self.findings), "integrity violation")
        facts: list[tuple[str, Cell]] = [("backup", self.root)]
        if self.taken_at is not None:
            facts.append(("taken at", self.taken_at))
        files = (
            f"{self.files_compared:,} compared with their checksums, "
            f"{self.files_unrecorded:,} without one"
        )
        return Page(
            summary=f"{verdict}: {files}",
            facts=[*facts, ("branches", ", ".join(self.branches)), ("files", files)],
            lines=[*(f"BROKEN    {finding}" for finding in self.findings), verdict],
        )


def backup(
    root: str,
    target: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    target_storage_options: Mapping[str, str] | None = None,
) -> CopyReport:
    """Copy a consistent state of a graph, with branches, tags and history, while it is in use.

    The first backup copies everything; later ones at the same location copy only new files. The
    target is itself a graph that can be read and checked. Until the new backup is complete, and if
    this process dies before, the target is the previous backup.

    Args:
        root: The graph: a local path, `file://` or `s3://` address.
        target: Location of the backup: empty, or a backup of the same graph.
        storage_options: Options of the graph's object store.
        target_storage_options: Options of the target's object store.

    Raises:
        ConflictError: the target contains something else, was written to, or is newer.
        DamagedGraphError: a file of the graph is not what was published.
    """
    from omnigraph_lake.creation.copying import CopyKind  # opening a graph does not need it

    return _copy(root, target, CopyKind.BACKUP, storage_options, target_storage_options)


def restore(
    backup: str,
    root: str,
    *,
    storage_options: Mapping[str, str] | None = None,
    target_storage_options: Mapping[str, str] | None = None,
) -> CopyReport:
    """Restore a backup to an empty location. An interrupted restore is continued.

    Args:
        backup: The backup.
        root: Location of the new graph.
        storage_options: Options of the backup's object store.
        target_storage_options: Options of the new graph's object store.
    """
    from omnigraph_lake.creation.copying import CopyKind  # opening a graph does not need it

    return _copy(backup, root, CopyKind.RESTORE, storage_options, target_storage_options)


def clone(
    root: str,
    target: str,
    *,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_storage_options: Mapping[str, str] | None = None,
) -> CopyReport:
    """Copy a graph, even while it is in use, to an empty location.

    Args:
        root: The graph.
        target: Location of the new graph.
        branch: Copy only main and this branch, with their tags; everything by default.
        storage_options: Options of the graph's object store.
        target_storage_options: Options of the new graph's object store.
    """
    from omnigraph_lake.creation.copying import CopyKind  # opening a graph does not need it

    name = text_or_none(branch, argument="branch")
    wanted = None if name is None else frozenset({name})
    return _copy(root, target, CopyKind.CLONE, storage_options, target_storage_options, wanted)


def verify(root: str, *, storage_options: Mapping[str, str] | None = None) -> VerifyReport:
    """Compare every file of a backup with its checksum and check every branch; writes nothing."""
    # Opening a graph does not need it.
    from omnigraph_lake.creation.copying import is_claimed, last_record

    objects = stored_at(parse_root(root, storage_options=storage_options))
    record = last_record(objects) if is_claimed(objects) else None
    graph = open(root, read_only=True, storage_options=storage_options)
    deep = graph.maintenance.check(deep=True)
    branches = [branch.name for branch in graph.branches.list()]
    others = [graph.checkout(name).maintenance.check() for name in branches if name != names.MAIN]
    return VerifyReport(
        root=objects.root.uri,
        taken_at=None if record is None else record.taken_at,
        is_published=record is None or not record.files,
        branches=tuple(branches),
        files_compared=deep.files_compared,
        files_unrecorded=deep.files_unrecorded,
        findings=(*deep.findings, *(finding for report in others for finding in report.findings)),
    )


def _copy(
    root: str,
    target: str,
    kind: CopyKind,
    storage_options: Mapping[str, str] | None,
    target_storage_options: Mapping[str, str] | None,
    branches: frozenset[str] | None = None,
) -> CopyReport:
    # Opening a graph does not need it.
    from omnigraph_lake.creation.copying import copy_graph, require_apart

    source = stored_at(parse_root(root, storage_options=storage_options))
    place = parse_root(target, storage_options=target_storage_options)
    require_apart(source.root, place)
    return copy_graph(
        source, StoredObjects(place, create=True), SYSTEM_CLOCK, kind, branches=branches
    )
