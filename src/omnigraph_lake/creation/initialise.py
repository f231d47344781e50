"""Creating a graph: claim the root, write schema and empty tables, publish them in one write.

Invariant: the graph exists from the moment its manifest is created, in one write, and not before. A
process that fails earlier removes only what it wrote itself, its claim last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.errors import (
    AlreadyInitialisedError,
    ConflictError,
    DamagedGraphError,
    InitialisationClaimedError,
    NotFoundError,
    NothingWrittenError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from omnigraph_lake.failpoints import reach
from omnigraph_lake.notes import NO_NOTE, CommitNote
from omnigraph_lake.schema.arrow import edge_schema, node_schema
from omnigraph_lake.storage import manifest_rows
from omnigraph_lake.storage.lance.datasets import creator_of, open_dataset, remove_unless_foreign
from omnigraph_lake.storage.lance.tables import create_table
from omnigraph_lake.storage.manifest.history import HISTORY, create_history
from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
from omnigraph_lake.storage.manifest.swap import (
    create_manifest,
    manifest_exists,
    read_manifest,
    swap_manifest,
)
from omnigraph_lake.storage.objects.store import Objects, Put, StoredObjects
from omnigraph_lake.storage.refs.branches import (
    claim_branch,
    read_branch_ref,
    release_branch,
    replace_branch_ref,
)
from omnigraph_lake.validation.schema_contract import SchemaContract, stored_form

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from omnigraph_lake.storage.objects.location import Root

ACTOR: Final = f"{names.SYSTEM_ACTOR_PREFIX}init"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTable:
    """A table that initialisation is about to create."""

    table_key: str
    location: str
    type_number: int
    schema: pa.Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class InitPlan:
    """Everything initialisation will write, decided before it writes anything."""

    contract: SchemaContract
    tables: tuple[NewTable, ...]
    claim: BranchRef
    commit: manifest_rows.GraphCommit


def plan_initialise(
    contract: SchemaContract,
    *,
    actor: str | None,
    note: CommitNote = NO_NOTE,
    now: str,
    new_id: Callable[[], str],
) -> InitPlan:
    tables = tuple(_new_tables(contract))
    incarnation = new_id()
    return InitPlan(
        contract=contract,
        tables=tables,
        claim=BranchRef(
            branch=names.MAIN,
            incarnation=incarnation,
            claimed_at=now,
            creates=tuple(table.location for table in tables),
        ),
        commit=manifest_rows.GraphCommit(
            commit_id=new_id(),
            branch=None,
            operation_id=incarnation,
            actor=actor or ACTOR,
            created_at=now,
            tables=tuple((table.table_key, 1, None) for table in tables),
            note=note,
        ),
    )


def apply_initialise(plan: InitPlan, objects: Objects, *, force: bool) -> None:
    """Create the planned graph, or leave the root as it was found."""
    from omnigraph_lake.creation.lost_manifest import require_manifest  # readers need none

    _refuse_existing_graph(objects)
    require_manifest(objects)
    if force:
        _take_over(plan, objects)
    else:
        _claim_root(plan, objects)
    reach("init.post_claim")
    written: list[str] = []
    try:
        _write_contract(plan, objects, written)
        reach("init.post_contract")
        rows = _create_tables(plan, objects)
        reach("init.post_tables")
        create_history(objects.root, operation_id=plan.claim.incarnation)
        reach("init.post_history")
        _make_visible(plan, objects, rows)
        reach("init.post_manifest")
    except NothingWrittenError:
        _undo(plan, objects, written)
        raise


def _new_tables(contract: SchemaContract) -> Iterator[NewTable]:
    catalog = contract.catalog
    for node in catalog.nodes.values():
        key = names.node_table_key(node.name)
        yield NewTable(
            table_key=key,
            location=names.table_location(key),
            type_number=node.number,
            schema=node_schema(node),
        )
    for edge in catalog.edges.values():
        key = names.edge_table_key(edge.name)
        yield NewTable(
            table_key=key,
            location=names.table_location(key),
            type_number=edge.number,
            schema=edge_schema(edge),
        )


def _refuse_existing_graph(objects: Objects) -> None:
    try:
        exists = manifest_exists(objects.root)
    except (DamagedGraphError, StorageUnavailableError) as error:
        from omnigraph_lake.creation.lost_manifest import (
            refuse_damage,  # an intact graph needs none
        )

        refuse_damage(objects, error)
        raise
    if exists:
        raise AlreadyInitialisedError(objects.root.uri)


def _take_over(plan: InitPlan, objects: Objects) -> None:
    """Replace a dead claim by ours, then remove what its owner wrote.

    In this order: if the other lives after all, either its graph is seen here and nothing is
    touched, or it sees our claim before it would acknowledge.
    """
    deposed = read_branch_ref(objects, names.MAIN)
    replace_branch_ref(objects, plan.claim)
    try:
        _refuse_existing_graph(objects)
    except AlreadyInitialisedError:
        if deposed is not None:
            replace_branch_ref(objects, deposed)
        raise
    if deposed is not None:
        for location in (*deposed.creates, *HISTORY):
            remove_unless_foreign(objects, location, operation_id=deposed.incarnation)
    for path in (names.SCHEMA_SOURCE, names.SCHEMA_MODEL, names.SCHEMA_STATE):
        objects.delete(path)


def _claim_root(plan: InitPlan, objects: Objects) -> None:
    holder = claim_branch(objects, plan.claim)
    if holder.incarnation == plan.claim.incarnation:
        return
    _refuse_existing_graph(objects)
    raise InitialisationClaimedError(objects.root.uri, claimed_at=holder.claimed_at)


def _write_contract(plan: InitPlan, objects: Objects, written: list[str]) -> None:
    for path, content in stored_form(plan.contract).at_root().items():
        if objects.put_if_absent(path, content) is Put.EXISTED and objects.read(path) != content:
            raise ConflictError(
                f"{objects.root} already holds {path}, which does not belong to a graph",
                next_step=f"Remove it, or run `omnigraph init {objects.root} --force`.",
            )
        written.append(path)


def _create_tables(plan: InitPlan, objects: Objects) -> tuple[manifest_rows.ManifestRow, ...]:
    rows: list[manifest_rows.ManifestRow] = []
    for table in plan.tables:
        version = create_table(
            objects.root, table.location, table.schema, operation_id=plan.claim.incarnation
        )
        rows.append(
            manifest_rows.Table(
                table_key=table.table_key,
                location=table.location,
                type_number=table.type_number,
            )
        )
        rows.append(
            manifest_rows.TableVersion(table_key=table.table_key, version=version, row_count=0)
        )
    return tuple(rows)


def _make_visible(
    plan: InitPlan, objects: Objects, rows: tuple[manifest_rows.ManifestRow, ...]
) -> None:
    incarnation = plan.claim.incarnation
    head = manifest_rows.GraphHead(
        branch=None,
        sequence=1,
        commit_id=plan.commit.commit_id,
        incarnation=incarnation,
        schema_hash=plan.contract.model_hash,
    )
    decision = manifest_rows.Operation(
        operation_id=incarnation,
        branch=None,
        outcome=manifest_rows.Outcome.PUBLISHED,
        decided_by=plan.commit.actor,
        decided_at=plan.commit.created_at,
        commit_id=plan.commit.commit_id,
    )
    everything = (*rows, plan.commit, head, decision)
    if not _holds_claim(plan, objects):
        raise ConflictError(f"a forced initialisation has taken over {objects.root}")
    try:
        create_manifest(objects.root, everything, operation_id=incarnation)
    except (ConflictError, StorageUnavailableError) as error:
        _settle(plan, objects, everything, error)
    if not _holds_claim(plan, objects):
        raise OutcomeUnknownError(
            f"{objects.root} was taken over by a forced initialisation",
            next_step=f"Run `omnigraph status {objects.root}` to see the graph there.",
        )


def _holds_claim(plan: InitPlan, objects: Objects) -> bool:
    holder = read_branch_ref(objects, names.MAIN)
    return holder is not None and holder.incarnation == plan.claim.incarnation


def _settle(
    plan: InitPlan,
    objects: Objects,
    everything: tuple[manifest_rows.ManifestRow, ...],
    error: NothingWrittenError,
) -> None:
    """The response of the deciding write is never trusted: read the result."""
    try:
        state = read_manifest(objects.root) if manifest_exists(objects.root) else None
    except (DamagedGraphError, StorageUnavailableError):
        raise OutcomeUnknownError(
            f"the store stopped responding while {objects.root} was being created",
            next_step=f"Run `omnigraph status {objects.root}` to see whether the graph exists.",
        ) from error
    if state is None:
        raise error
    if plan.commit in state.rows:
        return
    if not _holds_claim(plan, objects):
        raise AlreadyInitialisedError(objects.root.uri) from error
    # A manifest of one we deposed; it sees our claim and does not acknowledge, so it goes.
    swap_manifest(state, everything, operation_id=plan.claim.incarnation)
    if plan.commit not in read_manifest(objects.root).rows:
        raise AlreadyInitialisedError(objects.root.uri) from error


def _undo(plan: InitPlan, objects: Objects, written: list[str]) -> None:
    """Remove what this attempt wrote; after a takeover only its tables."""
    for location in (*plan.claim.creates, *HISTORY):
        if _holds_claim(plan, objects) or _is_ours(plan, objects, location):
            remove_unless_foreign(objects, location, operation_id=plan.claim.incarnation)
    if not _holds_claim(plan, objects):
        return
    for path in written:
        objects.delete(path)
    release_branch(objects, names.MAIN)


def _is_ours(plan: InitPlan, objects: Objects, location: str) -> bool:
    dataset = open_dataset(objects.root, location)
    return dataset is not None and creator_of(dataset) == plan.claim.incarnation


def existing_graph(location: Root) -> ManifestState:
    """The manifest of the graph at a root; a root without a graph is an error that says why."""
    try:
        state = read_manifest(location)
    except NotFoundError as error:
        state = _made_meanwhile(location, error)
    except (DamagedGraphError, StorageUnavailableError) as error:
        from omnigraph_lake.creation.lost_manifest import (
            refuse_damage,  # an intact graph needs none
        )

        refuse_damage(StoredObjects(location), error)
        raise
    return state


def stored_at(location: Root) -> StoredObjects:
    """The objects of a root; a root that is not there is an error that says so."""
    try:
        return StoredObjects(location)
    except StorageUnavailableError:
        existing_graph(location)
        raise


def _made_meanwhile(location: Root, error: NotFoundError) -> ManifestState:
    """The manifest after all, or an error that says why there is none."""
    from omnigraph_lake.creation.lost_manifest import (
        manifest_after_all,  # an intact graph needs none
    )

    try:
        objects = StoredObjects(location)
        claim = read_branch_ref(objects, names.MAIN)
    except StorageUnavailableError:
        raise error from None
    try:
        return manifest_after_all(objects)
    except NotFoundError:
        if claim is not None:
            raise InitialisationClaimedError(location.uri, claimed_at=claim.claimed_at) from None
        raise
