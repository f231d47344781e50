"""The graph as its users hold it: a thin facade that wires operations to one root.

Invariant: methods hand over to one operation each; clocks and ids come from here and nowhere below.
"""

from __future__ import annotations

import getpass
import random
import time
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.commit.clock import Clock
from omnigraph.commit.recover import Swept, sweep
from omnigraph.commit.sidecar import WriterKind
from omnigraph.errors import (
    InvalidInputError,
    ReadOnlyError,
)
from omnigraph.maintenance.migrate import migrate
from omnigraph.maintenance.migrations.context import MigrationContext
from omnigraph.operations.arguments import checked_actor, checked_id, one_of
from omnigraph.operations.commits import list_commits
from omnigraph.operations.initialise import (
    apply_initialise,
    existing_graph,
    plan_initialise,
)
from omnigraph.operations.notebook import graph_html
from omnigraph.operations.outcome import OperationStatus, operation_status
from omnigraph.operations.read import read_type
from omnigraph.operations.schema_contract import SchemaContract, contract_for, read_contract
from omnigraph.operations.status import GraphStatus, graph_status
from omnigraph.rules.modes import WriteMode
from omnigraph.storage.branch_refs import BranchRef, claim_branch
from omnigraph.storage.history import Recovery, recorded_recoveries
from omnigraph.storage.location import parse_root
from omnigraph.storage.manifest import ManifestState, read_manifest
from omnigraph.storage.objects import Objects, StoredObjects
from omnigraph.storage.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike
    from typing import IO

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from omnigraph.load.ledger import LoadReport
    from omnigraph.load.progress import Progress
    from omnigraph.operations.check import CheckReport
    from omnigraph.operations.export import ExportReport
    from omnigraph.operations.write import WriteResult
    from omnigraph.schema.catalog import Catalog
    from omnigraph.spark.scan import SparkGraph
    from omnigraph.storage.manifest_rows import GraphCommit


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
        return self._manifest().snapshot()

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

    def spark(self, spark: SparkSession | None = None) -> SparkGraph:
        """The graph as DataFrames and views, pinned to what is published now.

        Args:
            spark: The session to work on; the one this process has, or a new one on this machine,
                if left out.

        Raises:
            SparkUnavailableError: Spark or Java is not installed.
        """
        from omnigraph.spark.session import spark_session  # few graphs are read with Spark

        session = spark_session(spark)
        from omnigraph.spark.scan import SparkGraph  # needs pyspark, which a session proves

        return SparkGraph(session, self._objects.root, self.snapshot())

    def status(self) -> GraphStatus:
        """Types, versions, rows, fragments, index coverage and pending work."""
        state = self._manifest()
        return graph_status(self._objects, self.catalog, state.snapshot(), stamp=state.stamp)

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
        return self._commit(
            tables,
            {},
            one_of(WriteMode, mode, argument="mode"),
            WriterKind.WRITE,
            actor,
            operation_id,
        )

    def load(  # noqa: PLR0913 - every word of a load is one
        self,
        source: object,
        *,
        mode: str = "append",
        type_name: str | None = None,
        columns: Mapping[str, str] | None = None,
        order_by: str | None = None,
        on_error: str = "fail",
        max_bad: int | str | None = None,
        engine: str = "auto",
        spark: object | None = None,
        dry_run: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
        branch: str | None = None,
        quarantine: str | None = None,
        progress: Progress | None = None,
    ) -> LoadReport:
        """Load files, or frames by type name, as one commit that accounts for every record.

        A source is a path, a pattern, a directory or a list of these, or a mapping from type name
        to frame: Arrow, pandas, polars, Spark. `on_error="quarantine"` sets records that are at
        fault aside, up to `max_bad` of them (20, or "0.1%"), and publishes the rest. Small inputs
        run in this process, large ones on Spark. The reference of loading explains every word.

        Raises:
            LoadRefusedError: more records are at fault than allowed; nothing was written.
            OutcomeUnknownError: ask `outcome(error.operation_id)` later.
        """
        from omnigraph.load.progress import Progress  # parsers and Parquet: 150 ms, as below
        from omnigraph.operations.load import LoadRequest, load_graph

        if not dry_run:
            self._require_writable("load")
        request = LoadRequest(
            source=source,
            type_name=type_name,
            columns=columns,
            mode=mode,
            order_by=order_by,
            on_error=on_error,
            max_bad=max_bad,
            engine=engine,
            spark=spark,
            dry_run=dry_run,
            branch=branch,
            actor=_actor(actor),
            operation_id=_operation(operation_id),
            quarantine=quarantine,
            progress=progress or Progress(),
        )
        return load_graph(self._objects, self.catalog, request, _CLOCK)

    def export(
        self,
        path: str | PathLike[str] | IO[bytes],
        *,
        type_name: str | None = None,
        format: str = "jsonl",  # noqa: A002 - what everybody calls it
    ) -> ExportReport:
        """Write the published rows as files that `load` reads back, nodes before edges.

        `jsonl` goes to a file or an open binary stream; `parquet`, which also holds what JSON
        cannot spell, to a directory.
        """
        from omnigraph.operations.export import export_graph, plan_export  # Parquet

        export = plan_export(path, type_name=type_name, format=format)
        return export_graph(self._objects.root, self.catalog, self.snapshot(), export)

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
        return operation_status(self._objects, checked_id(operation_id, now=_CLOCK.now()))

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

    def check(self, *, spark: SparkSession | None = None) -> CheckReport:
        """Prove that the graph keeps its promises; reads everything, writes nothing.

        The rows are read in this process, or by the tasks of a Spark session.
        """
        from omnigraph.operations.check import check_graph  # DuckDB: 100 ms few readers need

        return check_graph(self._objects, self.catalog, self._manifest(), spark=spark)

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
            actor=_actor(actor),
            branch=None,
            operation_id=_operation(operation_id),
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
    by = None if actor is None else checked_actor(actor)
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
    open_mode = one_of(OpenMode, mode, argument="mode", next_step='Open with mode="r" to read.')
    state = existing_graph(location)
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


def _actor(given: str | None) -> str:
    return getpass.getuser() if given is None else checked_actor(given)


def _operation(given: str | None) -> str:
    return _new_id() if given is None else checked_id(given, now=_CLOCK.now())


def _now() -> str:
    return _CLOCK.timestamp()


def _new_id() -> str:
    from ulid import ULID  # costs 80 ms that a reader need not pay

    return str(ULID())


_CLOCK: Final = Clock(
    now=lambda: datetime.now(UTC), sleep=time.sleep, jitter=random.random, new_id=_new_id
)
