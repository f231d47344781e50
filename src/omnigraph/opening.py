"""Creating a graph, and opening one.

Invariant: opening for writing verifies that the store is safe, upgrades the format and recovers
unfinished writes; opening for reading writes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.api.handle import Handle, OpenMode
from omnigraph.api.system_clock import SYSTEM_CLOCK, new_id
from omnigraph.arguments import checked_actor, flag
from omnigraph.commit.recovery import Swept, sweep
from omnigraph.creation.initialise import (
    apply_initialise,
    existing_graph,
    plan_initialise,
    stored_at,
)
from omnigraph.creation.lost_manifest import require_newest
from omnigraph.errors import InvalidInputError
from omnigraph.graph import Graph
from omnigraph.language.diagnostics import shown
from omnigraph.maintenance.context import MigrationContext
from omnigraph.maintenance.migrations import migrate
from omnigraph.storage.manifest.branch_identity import BranchRef
from omnigraph.storage.manifest.history import Recovery, record_recovery
from omnigraph.storage.manifest.swap import is_whole
from omnigraph.storage.objects.location import is_durability_given, parse_root
from omnigraph.storage.objects.paths import checked_path
from omnigraph.storage.objects.power_cuts import SetAside, mark_boot, set_aside_torn_files
from omnigraph.storage.objects.processes import use_storage
from omnigraph.storage.objects.store import Objects, StoredObjects
from omnigraph.storage.refs.branches import claim_branch
from omnigraph.validation.schema_contract import Contracts, contract_for, read_contract

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.api.options import Durability, Verify
    from omnigraph.maintenance.rebuild.rebuild import RebuildReport
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.validation.schema_contract import SchemaContract

SCHEMA_SUFFIX: Final = ".pg"


def init(  # noqa: PLR0913 - each is a question of the caller's own
    root: str,
    *,
    schema: str | PathLike[str],
    actor: str | None = None,
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
        force: Take over a root where an earlier initialisation did not finish.
        storage_options: Options of the object store.
        durability: Whether acknowledged writes on a local disk survive a power failure
            ("commit") or only a crash of the process ("os"). It becomes the default of the graph.
        verify: Which files are compared with their checksums, as for `open`.
    """
    from omnigraph.schema.compile import compile_schema  # costs 120 ms that a reader need not pay

    use_storage()
    text, filename = _schema_text(schema)
    flag(force, argument="force")
    location = parse_root(
        root, storage_options=storage_options, durability=durability, verify=verify
    )
    by = None if actor is None else checked_actor(actor)
    catalog = compile_schema(text, filename=filename, identity_domain=new_id())
    contract = contract_for(text, catalog)
    plan = plan_initialise(contract, actor=by, now=SYSTEM_CLOCK.timestamp(), new_id=new_id)
    objects = StoredObjects(location, create=True)
    apply_initialise(plan, objects, force=force)
    mark_boot(location)
    return _graph(objects, contract, OpenMode.READ_WRITE)


def open(  # noqa: A001 - read as omnigraph.open(...)
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


def recover(root: str, *, force: bool = False) -> Swept:
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
    return _made_writable(objects, state, set_aside, force=force)


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
    from omnigraph.maintenance.rebuild.rebuild import rebuild  # opening a graph does not need it

    flag(dry_run, argument="dry_run")
    objects = stored_at(parse_root(root, storage_options=storage_options))
    return rebuild(objects, SYSTEM_CLOCK, confirm=not dry_run)


def _made_writable(
    objects: Objects, state: ManifestState, set_aside: SetAside, *, force: bool = False
) -> Swept:
    require_newest(objects, state)
    _prepare_for_writing(objects, state)
    torn = _recorded(set_aside, objects)
    swept = sweep(objects, SYSTEM_CLOCK, force=force)
    return replace(swept, settled=(*torn, *swept.settled))


def _recorded(set_aside: SetAside, objects: Objects) -> tuple[Recovery, ...]:
    if not set_aside.files:
        return ()
    recovery = Recovery(
        operation_id=new_id(),
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
        BranchRef(branch=names.MAIN, incarnation=new_id(), claimed_at=SYSTEM_CLOCK.timestamp()),
    )
    if state.stamp < names.STAMP:
        migrate(
            MigrationContext(
                objects=objects,
                operation_id=new_id(),
                now=SYSTEM_CLOCK.timestamp(),
                schema_hash=read_contract(objects).model_hash,
                new_id=new_id,
            )
        )
