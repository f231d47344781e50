"""Creating a graph, and opening one.

Invariant: opening for writing verifies that the store is safe, upgrades the format and recovers
unfinished writes; opening for reading writes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.commit.recover import Swept, sweep
from omnigraph.errors import InvalidInputError
from omnigraph.graph import Graph, OpenMode
from omnigraph.maintenance.migrate import migrate
from omnigraph.maintenance.migrations.context import MigrationContext
from omnigraph.operations.arguments import checked_actor, flag, one_of, plain_text
from omnigraph.operations.initialise import (
    apply_initialise,
    existing_graph,
    plan_initialise,
    stored_at,
)
from omnigraph.operations.lost_manifest import require_newest
from omnigraph.operations.schema_contract import contract_for, read_contract
from omnigraph.storage.branch_identity import BranchRef
from omnigraph.storage.branch_refs import claim_branch
from omnigraph.storage.history import Recovery, record_recovery
from omnigraph.storage.location import is_durability_given, parse_root
from omnigraph.storage.manifest import is_whole
from omnigraph.storage.objects import Objects, StoredObjects
from omnigraph.storage.power_cuts import SetAside, mark_boot, set_aside_torn_files
from omnigraph.storage.processes import use_storage
from omnigraph.system_clock import SYSTEM_CLOCK, new_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.maintenance.rebuild import RebuildReport
    from omnigraph.storage.manifest_state import ManifestState


def init(  # noqa: PLR0913 - each is a question of the caller's own
    root: str,
    *,
    schema: str,
    actor: str | None = None,
    force: bool = False,
    schema_name: str = "schema",
    storage_options: Mapping[str, str] | None = None,
    durability: str | None = None,
    verify: str | None = None,
) -> Graph:
    """Create a graph with a schema at an empty root.

    Args:
        root: A local path, `file://` or `s3://` URL.
        schema: The schema as `.pg` text.
        actor: Author of the first commit.
        force: Take over a root where an earlier initialisation did not finish.
        schema_name: The name of the schema in diagnostics, usually its file name.
        storage_options: Options of the object store.
        durability: Whether acknowledged writes on a local disk survive a power failure
            ("commit") or only a crash of the process ("os"). It becomes the default of the graph.
        verify: Which files are compared with their checksums, as for `open`.
    """
    from omnigraph.schema.compile import compile_schema  # costs 120 ms that a reader need not pay

    use_storage()
    if not isinstance(schema, str):
        raise InvalidInputError(f"schema is {type(schema).__name__}, expected its text")
    plain_text(schema_name, argument="schema_name")
    flag(force, argument="force")
    location = parse_root(
        root, storage_options=storage_options, durability=durability, verify=verify
    )
    by = None if actor is None else checked_actor(actor)
    catalog = compile_schema(schema, filename=schema_name, identity_domain=new_id())
    contract = contract_for(schema, catalog)
    plan = plan_initialise(contract, actor=by, now=SYSTEM_CLOCK.timestamp(), new_id=new_id)
    objects = StoredObjects(location, create=True)
    apply_initialise(plan, objects, force=force)
    mark_boot(location)
    return Graph(objects, mode=OpenMode.READ_WRITE, contract=contract)


def open(  # noqa: A001 - read as omnigraph.open(...)
    root: str,
    *,
    mode: str = OpenMode.READ_WRITE.value,
    storage_options: Mapping[str, str] | None = None,
    durability: str | None = None,
    verify: str | None = None,
) -> Graph:
    """Open a graph, for reading and writing unless `mode="r"`.

    Opening for writing verifies that the store honours put-if-absent, upgrades the internal format,
    quarantines files damaged by a power failure and recovers unfinished writes. Opening for reading
    changes nothing.

    Args:
        root: A local path, `file://` or `s3://` URL.
        mode: "rw", or "r" to read only.
        storage_options: Options of the object store.
        durability: Whether acknowledged writes on a local disk survive a power failure
            ("commit") or only a crash of the process ("os"); by default the setting of the graph.
        verify: Which files are compared with their checksums before they are read, each once per
            process: "metadata" (the default) or "first-read", which includes all data.
    """
    location = parse_root(
        root, storage_options=storage_options, durability=durability, verify=verify
    )
    open_mode = one_of(OpenMode, mode, argument="mode", next_step='Open with mode="r" to read.')
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
    return Graph(objects, mode=open_mode, contract=contract)


def recover(root: str, *, also_living: bool = False) -> Swept:
    """Recover unfinished writes, as opening for writing does, and report them."""
    location = parse_root(root)
    state = existing_graph(location)
    set_aside = set_aside_torn_files(location, is_whole)
    objects = StoredObjects(replace(location, durability=state.facts.durability))
    return _made_writable(objects, state, set_aside, also_living=also_living)


def rebuild_manifest(
    root: str,
    *,
    confirm: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> RebuildReport:
    """Show what can be recovered of a graph whose manifest is lost, or recover it.

    Args:
        root: A local path, `file://` or `s3://` URL.
        confirm: Whether to recover. Without it nothing is written. Damaged files are moved to
            the quarantine; nothing is deleted.
        storage_options: Options of the object store.

    Raises:
        ConflictError: the manifest is intact, or another process rebuilds it.
        DamagedGraphError: a table or the schema cannot be recovered.
        NotFoundError: there is no graph.
    """
    from omnigraph.maintenance.rebuild import rebuild  # opening a graph does not need it

    flag(confirm, argument="confirm")
    objects = stored_at(parse_root(root, storage_options=storage_options))
    return rebuild(objects, SYSTEM_CLOCK, confirm=confirm)


def _made_writable(
    objects: Objects, state: ManifestState, set_aside: SetAside, *, also_living: bool = False
) -> Swept:
    require_newest(objects, state)
    _prepare_for_writing(objects, state)
    torn = _recorded(set_aside, objects)
    swept = sweep(objects, SYSTEM_CLOCK, also_living=also_living)
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
