"""The graph as its users hold it: a thin facade that wires operations to one root.

Invariant: methods hand over to one operation each; clocks and ids come from here and nowhere below.
"""

from __future__ import annotations

import getpass
import random
import time
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.commit.clock import Clock
from omnigraph.commit.recover import Swept, sweep
from omnigraph.commit.sidecar import WriterKind
from omnigraph.errors import (
    FormatTooNewError,
    InitialisationClaimedError,
    InvalidInputError,
    NotFoundError,
    ReadOnlyError,
    StorageUnavailableError,
)
from omnigraph.maintenance.migrate import migrate
from omnigraph.maintenance.migrations.context import MigrationContext
from omnigraph.operations.commits import list_commits
from omnigraph.operations.initialise import apply_initialise, plan_initialise
from omnigraph.operations.notebook import graph_html
from omnigraph.operations.outcome import OperationStatus, operation_status
from omnigraph.operations.read import read_type
from omnigraph.operations.schema_contract import SchemaContract, contract_for, read_contract
from omnigraph.operations.status import GraphStatus, graph_status
from omnigraph.rules.modes import WriteMode
from omnigraph.storage.branch_refs import BranchRef, claim_branch, read_branch_ref
from omnigraph.storage.history import Recovery, recorded_recoveries
from omnigraph.storage.location import Root, parse_root
from omnigraph.storage.manifest import ManifestState, read_manifest
from omnigraph.storage.objects import Objects, StoredObjects
from omnigraph.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from omnigraph.operations.check import CheckReport
    from omnigraph.operations.write import WriteResult
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest_rows import GraphCommit


_ACTOR_BYTES_MAX: Final = 1024
_FUTURE_MAX: Final = timedelta(days=1)


class OpenMode(StrEnum):
    """What a handle may do. Opening for reading writes nothing, not even repairs."""

    READ_WRITE = "rw"
    READ_ONLY = "r"


class Graph:
    """An open graph. Cheap to hold; every call reads the latest published state."""

    def __init__(self, objects: Objects, *, mode: OpenMode, contract: SchemaContract) -> None:
        self._objects = objects
        self._contract = contract
        self.mode = mode

    @property
    def root(self) -> str:
        return self._objects.root.uri

    @property
    def catalog(self) -> Catalog:
        """The types, properties and constraints the graph accepts."""
        return self._contract.catalog

    @property
    def schema_text(self) -> str:
        return self._contract.text

    def snapshot(self) -> Snapshot:
        """The published version of every table, as of now."""
        return _snapshot(self._manifest())

    def nodes(
        self, type_name: str, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Stream the nodes of a type, batch by batch."""
        key = names.node_table_key(type_name)
        return read_type(self._objects.root, self.snapshot(), key, columns=columns)

    def edges(
        self, type_name: str, *, columns: Sequence[str] | None = None
    ) -> pa.RecordBatchReader:
        """Stream the edges of a type, batch by batch."""
        key = names.edge_table_key(type_name)
        return read_type(self._objects.root, self.snapshot(), key, columns=columns)

    def status(self) -> GraphStatus:
        """Types, versions, rows, fragments, index coverage and pending work."""
        state = self._manifest()
        return graph_status(self._objects, self.catalog, _snapshot(state), stamp=state.stamp)

    def write(
        self,
        tables: Mapping[str, object],
        *,
        mode: str = "append",
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> WriteResult:
        """Write rows of any number of types as one commit.

        Args:
            tables: Rows by type name: Arrow, pandas, polars, or a list of dicts.
            mode: `append` refuses ids that exist, `merge` replaces them, `overwrite` replaces the
                whole content of the types named.
            actor: Who the commit is attributed to; the user of this process by default.
            operation_id: A ULID of the caller's; writing twice with the same one writes once.

        Raises:
            ValidationFailedError: rows break the schema's rules; nothing was written.
            OutcomeUnknownError: ask `outcome(error.operation_id)` later.
        """
        return self._commit(tables, {}, _write_mode(mode), WriterKind.WRITE, actor, operation_id)

    def delete(
        self,
        ids: Mapping[str, object],
        *,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> WriteResult:
        """Delete nodes and edges by id as one commit; a node takes its edges with it."""
        return self._commit({}, ids, WriteMode.APPEND, WriterKind.DELETE, actor, operation_id)

    def outcome(self, operation_id: str) -> OperationStatus:
        """How an operation ended: published, rolled back, pending, or unknown."""
        return operation_status(self._objects, _checked_id(operation_id))

    def recover(self, *, also_living: bool = False) -> Swept:
        """Settle unfinished writes of dead writers; with `also_living`, of all."""
        self._require_writable("recover")
        return sweep(self._objects, _CLOCK, also_living=also_living)

    def commits(
        self, *, actor: str | None = None, limit: int | None = None
    ) -> tuple[GraphCommit, ...]:
        """The commits of the graph, newest first."""
        return list_commits(self._objects.root, self._manifest(), actor=actor, limit=limit)

    def recoveries(self) -> tuple[Recovery, ...]:
        """What was finished or undone after writers died, oldest first."""
        return recorded_recoveries(self._objects.root)

    def check(self) -> CheckReport:
        """Prove that the graph keeps its promises; reads everything, writes nothing."""
        from omnigraph.operations.check import check_graph  # DuckDB: 100 ms few readers need

        return check_graph(self._objects, self.catalog, self._manifest())

    def __repr__(self) -> str:
        types = f"{len(self.catalog.nodes)} node types, {len(self.catalog.edges)} edge types"
        return f"<Graph {self.root} ({types}, mode={self.mode.value!r})>"

    def _repr_html_(self) -> str:
        return graph_html(self.root, self.catalog, self.snapshot())

    def _manifest(self) -> ManifestState:
        return read_manifest(self._objects.root)

    def _commit(
        self,
        tables: Mapping[str, object],
        deleted: Mapping[str, object],
        mode: WriteMode,
        kind: WriterKind,
        actor: str | None,
        operation_id: str | None,
    ) -> WriteResult:
        from omnigraph.operations.write import Write, write_graph  # DuckDB, as in `check`

        self._require_writable(kind.value)
        write = Write(
            inputs=tables,
            deleted=deleted,
            mode=mode,
            kind=kind,
            actor=getpass.getuser() if actor is None else _checked_actor(actor),
            branch=None,
            operation_id=_new_id() if operation_id is None else _checked_id(operation_id),
        )
        return write_graph(self._objects, self.catalog, write, _CLOCK)

    def _require_writable(self, verb: str) -> None:
        if self.mode is OpenMode.READ_ONLY:
            raise ReadOnlyError(
                f"cannot {verb}: {self.root} was opened for reading",
                next_step=f"Open it with `omnigraph.open({self.root!r})`.",
            )


def init(
    root: str,
    *,
    schema: str,
    actor: str | None = None,
    force: bool = False,
    schema_name: str = "schema",
    storage_options: Mapping[str, str] | None = None,
) -> Graph:
    """Create a graph with this schema at an empty root.

    Args:
        root: A local path, `file://` or `s3://` address.
        schema: The schema as `.pg` text.
        actor: Who the first commit is attributed to.
        force: Take over a root whose earlier initialisation died before it finished.
        schema_name: How diagnostics call the schema, usually its file name.
        storage_options: Options of the object store.
    """
    from omnigraph.schema.compile import compile_schema  # costs 120 ms that a reader need not pay

    if not isinstance(schema, str):
        raise InvalidInputError(f"schema is {type(schema).__name__}, expected its text")
    location = parse_root(root, storage_options=storage_options)
    by = None if actor is None else _checked_actor(actor)
    catalog = compile_schema(schema, filename=schema_name, identity_domain=_new_id())
    contract = contract_for(schema, catalog)
    plan = plan_initialise(contract, actor=by, now=_now(), new_id=_new_id)
    objects = StoredObjects(location, create=True)
    apply_initialise(plan, objects, force=force)
    return Graph(objects, mode=OpenMode.READ_WRITE, contract=contract)


def open(  # noqa: A001 - read as omnigraph.open(...)
    root: str,
    *,
    mode: str = OpenMode.READ_WRITE.value,
    storage_options: Mapping[str, str] | None = None,
) -> Graph:
    """Open a graph, for reading and writing unless `mode="r"`.

    Opening for writing proves that the store honours put-if-absent, brings the graph's internal
    format up to date and settles what dead writers left. Opening for reading changes nothing.
    """
    location = parse_root(root, storage_options=storage_options)
    open_mode = _mode(mode)
    state = _existing(location)
    objects = StoredObjects(location)
    if open_mode is OpenMode.READ_WRITE:
        _prepare_for_writing(objects, state)
        sweep(objects, _CLOCK)
    return Graph(objects, mode=open_mode, contract=read_contract(objects))


def _prepare_for_writing(objects: Objects, state: ManifestState) -> None:
    claim_branch(objects, BranchRef(branch=names.MAIN, incarnation=_new_id(), claimed_at=_now()))
    if state.stamp < names.STAMP:
        migrate(
            MigrationContext(
                objects=objects,
                operation_id=_new_id(),
                now=_now(),
                schema_hash=read_contract(objects).model_hash,
                new_id=_new_id,
            )
        )


def _existing(location: Root) -> ManifestState:
    try:
        state = read_manifest(location)
    except NotFoundError:
        _refuse_unfinished(location)
        raise
    if state.stamp > names.STAMP:
        raise FormatTooNewError(location.uri, found=state.stamp, supported=names.STAMP)
    return state


def _refuse_unfinished(location: Root) -> None:
    try:
        claim = read_branch_ref(StoredObjects(location), names.MAIN)
    except StorageUnavailableError:
        return
    if claim is not None:
        raise InitialisationClaimedError(location.uri, claimed_at=claim.claimed_at)


def _snapshot(state: ManifestState) -> Snapshot:
    return state.snapshot()


def _mode(text: str) -> OpenMode:
    try:
        return OpenMode(text)
    except ValueError:
        raise InvalidInputError(
            f'mode is {text!r}, expected "rw" or "r"',
            next_step='Open with mode="r" to read, or leave it out to read and write.',
        ) from None


def _write_mode(text: str) -> WriteMode:
    try:
        return WriteMode(text)
    except ValueError:
        raise InvalidInputError(
            f'mode is {text!r}, expected "append", "merge" or "overwrite"',
            next_step="See the reference of `Graph.write`.",
        ) from None


def _checked_id(operation_id: str) -> str:
    from ulid import ULID  # costs 80 ms that a reader need not pay

    try:
        given = ULID.from_str(operation_id)
        if given.datetime - _CLOCK.now() < _FUTURE_MAX:
            return str(given)
        raise InvalidInputError(
            f"operation id {operation_id} is dated {given.datetime:%Y-%m-%d}, in the future",
            next_step="Make one with `str(ulid.ULID())`, or leave it out.",
        )
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(
            f"operation id {operation_id!r:.80} is not a ULID",
            next_step="Make one with `str(ulid.ULID())`, or leave it out.",
        ) from None


def _checked_actor(actor: object) -> str:
    if (
        isinstance(actor, str)
        and actor.strip()
        and actor.isprintable()
        and len(actor.encode(errors="replace")) <= _ACTOR_BYTES_MAX
    ):
        return actor
    raise InvalidInputError(
        f"actor is {actor!r:.80}, expected a printable name of at most {_ACTOR_BYTES_MAX} bytes",
        next_step="Name the person or the program that writes.",
    )


def _now() -> str:
    return _CLOCK.timestamp()


def _new_id() -> str:
    from ulid import ULID  # costs 80 ms that a reader need not pay

    return str(ULID())


_CLOCK: Final = Clock(
    now=lambda: datetime.now(UTC), sleep=time.sleep, jitter=random.random, new_id=_new_id
)
