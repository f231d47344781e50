"""The public facade of a graph: reads, writes and namespaces over one handle.

Invariant: each method calls one operation.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

from omnigraph_lake.api.handle import Handle, newest_kept
from omnigraph_lake.api.options import Key, LoadOptions, Mode, Resolve, Rows, Source, Spark
from omnigraph_lake.api.reads import Reads, table_key_of
from omnigraph_lake.api.schema import Schema, SchemaView
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import (
    acting,
    count_from,
    flag,
    one_of,
    parse_operation_id,
)
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.language.diagnostics import shown
from omnigraph_lake.notes import commit_note
from omnigraph_lake.storage.objects.processes import use_storage
from omnigraph_lake.storage.refs.references import Reference, branch_ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta
    from os import PathLike
    from typing import IO, Self

    from pyspark.sql import SparkSession

    from omnigraph_lake.api.algorithms import Algorithms
    from omnigraph_lake.api.blame import RowHistory
    from omnigraph_lake.api.branch_history import BranchHistory
    from omnigraph_lake.api.branches import Branches
    from omnigraph_lake.api.commit_log import CommitLog
    from omnigraph_lake.api.holds import Holds
    from omnigraph_lake.api.maintenance import Maintenance
    from omnigraph_lake.api.spark_graph import SparkGraph
    from omnigraph_lake.api.tags import Tags
    from omnigraph_lake.commit.publish import OperationStatus
    from omnigraph_lake.commit.sidecar import WriterKind
    from omnigraph_lake.diff.change_feed import Baseline, ChangeFeed
    from omnigraph_lake.diff.diff import GraphDiff
    from omnigraph_lake.display.pages import Listing
    from omnigraph_lake.engine.query_text import ChosenQuery
    from omnigraph_lake.load.export import ExportReport
    from omnigraph_lake.load.load import LoadRequest, MappedInput, SchemaMerging
    from omnigraph_lake.load.report import LoadReport
    from omnigraph_lake.load.write import WriteResult
    from omnigraph_lake.merge.merge import MergeResult
    from omnigraph_lake.merge.undo import UndoResult
    from omnigraph_lake.mutate.mutate import MutationRequest, MutationResult
    from omnigraph_lake.notes import CommitNote
    from omnigraph_lake.storage.manifest_rows import GraphCommit, GraphHead
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.refs.holds import Holding, LiveHold
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry
    from omnigraph_lake.validation.constraints import WriteMode
    from omnigraph_lake.validation.schema_contract import SchemaContract
    from omnigraph_lake.view.drawing import View


class Graph(Reads):
    """An open graph on one of its branches. Cheap to hold; every call reads the latest state."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._schema = Schema(handle)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """A graph holds nothing that must be closed."""

    @property
    def root(self) -> str:
        """The URL or path of the graph."""
        return self._handle.root

    @property
    def branch(self) -> str:
        """The name of the branch that is read and written."""
        return self._handle.branch_name

    @property
    def schema(self) -> Schema:
        """Read, plan and change the schema."""
        return self._schema

    @cached_property
    def branches(self) -> Branches[Graph]:
        """Create, list and delete branches."""
        from omnigraph_lake.api.branches import Branches  # a reader of rows needs none

        return Branches(self._handle, self._on_branch)

    @cached_property
    def tags(self) -> Tags:
        """Create, list and delete tags."""
        from omnigraph_lake.api.tags import Tags  # as above

        return Tags(self._handle)

    @cached_property
    def maintenance(self) -> Maintenance:
        """Compaction, cleanup, verification and repair."""
        from omnigraph_lake.api.maintenance import Maintenance  # as above

        return Maintenance(self._handle)

    @cached_property
    def holds(self) -> Holds:
        """List and release the holds of readers."""
        from omnigraph_lake.api.holds import Holds  # as above

        return Holds(self._handle)

    @cached_property
    def _history(self) -> BranchHistory:
        from omnigraph_lake.api.branch_history import BranchHistory  # as above

        return BranchHistory(self._handle)

    @property
    def is_read_only(self) -> bool:
        """Whether the graph was opened for reading only."""
        return not self._handle.is_writable

    def checkout(self, branch: str) -> Graph:
        """The same graph on another branch."""
        ref = branch_ref(self._objects, branch)
        return self._on_branch(None if ref is None else ref.branch)

    def at(self, reference: Reference, *, hold: str | timedelta | None = None) -> GraphView:
        """The graph at a branch, tag, commit, manifest version or point in time, pinned.

        Args:
            reference: The state to read.
            hold: How long to keep it although a cleanup may run, such as `"1h"`; until
                `release()` is called, or a `with` block over it ends, if that is earlier.

        Raises:
            NoLongerKeptError: its data has been cleaned up.
            ReadOnlyError: a hold was requested, and the graph was opened for reading.
        """
        resolved = self._handle.resolve(reference)
        schema = resolved.snapshot.schema_hash or resolved.state.head.first_schema
        contract = self._handle.contracts.of(schema)
        snapshot = replace(resolved.snapshot, schema_hash=contract.model_hash)
        return GraphView(
            self._objects,
            contract,
            resolved.name,
            snapshot,
            self._handle.hold(snapshot, hold, thing=resolved.name),
        )

    def snapshot(self, *, hold: str | timedelta | None = None) -> GraphView:
        """The current state, pinned: several reads through it see the same commit.

        Args:
            hold: How long to keep it, as in `at`.
        """

        def pin() -> GraphView:
            snapshot, contract = self._handle.view()
            name = snapshot.commit_id or snapshot.branch_name
            live_hold = self._handle.hold(snapshot, hold, thing=name)
            return GraphView(self._objects, contract, name, snapshot, live_hold)

        return newest_kept(pin)

    def write(  # noqa: PLR0913 - every word of a write is one
        self,
        tables: Mapping[str, Rows],
        *,
        mode: Mode = "append",
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        operation_id: str | None = None,
    ) -> WriteResult:
        """Write rows of any number of types as one commit.

        Args:
            tables: Rows by type name: Arrow, pandas, polars, or a list of dicts.
            mode: `append` refuses ids that exist. `merge` updates their rows and keeps what a
                record does not mention; None clears. `replace` replaces their whole rows,
                `overwrite` the whole content of the types named.
            dry_run: Validate and count what would change; nothing is written.
            actor: Author of the commit; the user of this process by default.
            message: Message of the commit.
            metadata: Further texts by name to store with the commit.
            operation_id: Any text that makes the call idempotent: the same one writes only once.

        Raises:
            ValidationFailedError: rows violate the schema; nothing was written.
            OutcomeUnknownError: call `outcome(error.operation_id)` later.
        """
        # Readers need none.
        from omnigraph_lake.commit.sidecar import WriterKind
        from omnigraph_lake.validation.constraints import WriteMode

        checked = one_of(WriteMode, mode, argument="mode")
        return self._commit(
            WriterKind.WRITE,
            actor,
            commit_note(message, metadata),
            operation_id,
            tables=tables,
            mode=checked,
            dry_run=dry_run,
        )

    def delete(
        self,
        ids: Mapping[str, Iterable[str]],
        *,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        operation_id: str | None = None,
    ) -> WriteResult:
        """Delete nodes and edges by id as one commit. The edges of a node are deleted with it.

        Args:
            ids: Ids by type name, as lists or Arrow arrays.
            dry_run: Count what would be deleted; nothing is written.
            actor: Author of the commit; the user of this process by default.
            message: Message of the commit.
            metadata: Further texts by name to store with the commit.
            operation_id: Any text that makes the call idempotent: the same one deletes only once.
        """
        # Readers need none.
        from omnigraph_lake.commit.sidecar import WriterKind
        from omnigraph_lake.validation.constraints import WriteMode

        return self._commit(
            WriterKind.DELETE,
            actor,
            commit_note(message, metadata),
            operation_id,
            deleted=ids,
            mode=WriteMode.APPEND,
            dry_run=dry_run,
        )

    def load(  # noqa: PLR0913 - every word of a load is one
        self,
        source: Source | MappedInput,
        *,
        mode: Mode = "append",
        type: str | None = None,  # noqa: A002 - the conventional name
        on_error: Literal["fail", "quarantine"] = "fail",
        spark: Spark | None = None,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        operation_id: str | None = None,
        options: LoadOptions | None = None,
    ) -> LoadReport:
        """Load files, or frames by type name, as one commit. Every record is accounted for.

        Args:
            source: A path, a pattern, a directory or a list of these, or a mapping from type name
                to frame: Arrow, pandas, polars, Spark.
            mode: As in `write`. Several records of one id are applied one after the other.
            type: The type of all records, for inputs that do not name it.
            on_error: `fail` writes nothing if a record is rejected; `quarantine` sets rejected
                records aside and publishes the others.
            spark: A Spark session or target. Without one, inputs run in this process; those
                above 64 MiB on the Spark session of this process if it has one, and what does not
                fit into memory on Spark where it is installed.
            dry_run: Validate only; nothing is written.
            actor: Author of the commit; the user of this process by default.
            message: Message of the commit.
            metadata: Further texts by name to store with the commit.
            operation_id: Any text that makes the call idempotent: the same one loads only once.
            options: Rarer options: names of columns, limits, a branch to load through, audits.

        Raises:
            LoadRefusedError: more records are invalid than allowed; nothing was written.
            OutcomeUnknownError: call `outcome(error.operation_id)` later.
        """
        self._require_mode("load", dry_run=dry_run)
        chosen, request_for = _load_options(options, self._handle)
        branch = self._handle.branch if chosen.branch is None else chosen.branch
        request = request_for(
            source=source,
            type_name=type,
            mode=mode,
            on_error=on_error,
            spark=spark,
            dry_run=dry_run,
            branch=branch,
            actor=acting(actor),
            note=commit_note(message, metadata),
            operation_id=self._load_operation(operation_id, branch),
        )
        return self._load(request, chosen)

    def _load_operation(self, operation_id: str | None, branch: str | None) -> str:
        """The operation of a load; a branch that it creates starts with the history of main."""
        ref = None
        if operation_id is not None:
            with suppress(NotFoundError):
                ref = branch_ref(self._objects, branch)
        return self._handle.operation(operation_id, branch=ref)

    def _load(self, request: LoadRequest, options: LoadOptions) -> LoadReport:
        from omnigraph_lake.api.audited_load import (  # parsers and Parquet
            Route,
            load_through_branch,
        )

        def load(contract: SchemaContract) -> LoadReport:
            checks = _checks(options.audit, contract)
            route = Route(base=options.source, into=options.into, checks=checks)
            return load_through_branch(
                self._objects, contract.catalog, request, route, SYSTEM_CLOCK
            )

        self._handle.view()
        return self._handle.under_schema(load)

    @property
    def algorithms(self) -> Algorithms:
        """PageRank, components, label propagation, triangles and distances."""
        return self._algorithms(load=self.load)

    def mutate(  # noqa: PLR0913 - every word of a mutation is one
        self,
        text: str | PathLike[str],
        params: Mapping[str, object] | None = None,
        *,
        name: object = None,
        expect_head: str | None = None,
        spark: Spark | None = None,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        operation_id: str | None = None,
        **parameters: object,
    ) -> MutationResult:
        """Run a mutation. All its statements are one commit.

        Args:
            text: The text of one or more queries, or the path of a file with them.
            params: The parameters by name.
            name: The query of the text to run, if there are several.
            expect_head: The expected head of the branch, as in `snapshot().commit_id`.
            spark: A Spark session or target that runs the match of a single statement; this
                process by default, in parts if memory cannot hold the rows.
            dry_run: Run the statements and count what would change; nothing is written.
            actor: Author of the commit; the user of this process by default.
            message: Message of the commit.
            metadata: Further texts by name to store with the commit.
            operation_id: Any text that makes the call idempotent: the same one writes only once.
            parameters: Parameters as keyword arguments.

        Raises:
            QueryInvalidError: the text has errors.
            ValidationFailedError: the result would violate the schema; nothing was written.
            ConflictError: the branch is at another commit than expected.
            OutcomeUnknownError: call `outcome(error.operation_id)` later.
        """
        from omnigraph_lake.engine.query_text import all_parameters, choose_query, query_text
        from omnigraph_lake.mutate.mutate import MutationRequest  # DuckDB

        self._require_mode("mutate", dry_run=dry_run)
        parameter_values = all_parameters(params, parameters)
        note, expected = commit_note(message, metadata), self._resolve_head(expect_head)
        ref = self._handle.ref()
        operation = self._handle.operation(operation_id, branch=ref)

        def request(contract: SchemaContract) -> MutationRequest:
            return MutationRequest(
                chosen=choose_query(query_text(text, contract), parameter_values, name=name),
                expect_head=expected,
                actor=acting(actor),
                note=note,
                branch=ref,
                operation_id=operation,
                spark=spark,
            )

        if dry_run:
            return newest_kept(lambda: self._preview_mutation(request))
        return self._run_mutation(request, spark)

    def _run_mutation(
        self, request: Callable[[SchemaContract], MutationRequest], spark: Spark | None
    ) -> MutationResult:
        from omnigraph_lake.mutate.mutate import mutate_graph  # DuckDB

        held_snapshots = () if spark is None else (self._handle.view()[0],)
        with self._handle.held_while(*held_snapshots, purpose="mutate"):
            return self._handle.under_schema(
                lambda contract: mutate_graph(
                    self._objects, contract.catalog, request(contract), SYSTEM_CLOCK
                )
            )

    def _resolve_head(self, expect_head: str | None) -> str | None:
        return None if expect_head is None else self._handle.resolve_commit(expect_head)

    def _preview_mutation(
        self, request: Callable[[SchemaContract], MutationRequest]
    ) -> MutationResult:
        from omnigraph_lake.mutate.mutate import preview_mutation  # DuckDB

        state = self._handle.manifest()
        contract = self._handle.contract_of(state)
        catalog = contract.catalog
        return preview_mutation(self._objects, catalog, request(contract), SYSTEM_CLOCK, state)

    def merge(  # noqa: PLR0913 - every word of a merge is one
        self,
        source: Reference,
        *,
        into: str | None = None,
        resolve: Resolve | None = None,
        column_level: bool = True,
        spark: Spark | None = None,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        operation_id: str | None = None,
    ) -> MergeResult:
        """Merge a branch, tag or commit into a branch, this one by default, as one commit.

        Args:
            source: The branch, tag or commit to merge.
            into: The branch to merge into.
            resolve: How to resolve conflicts: `"ours"` (the target), `"theirs"`, `"newest"`, a
                mapping by type and column, or the path of a JSON file with one.
            column_level: Whether changes to different properties of one row are combined.
            spark: A Spark session or target whose tasks decide and write rows. Without one, threads
                of this process do. The result is the same.
            dry_run: Only show the result or raise the conflicts.
            actor: Author of the commit; the user of this process by default.
            message: Message of the commit.
            metadata: Further texts by name to store with the commit.
            operation_id: Any text that makes the call idempotent: the same one merges only once.

        Raises:
            MergeConflictError: `conflicts` has all conflicts and violations; nothing was written.
        """
        from omnigraph_lake.api.merging import MergeCall, merge  # DuckDB

        call = MergeCall(
            resolve=resolve,
            column_level=column_level,
            spark=spark,
            dry_run=dry_run,
            actor=actor,
            message=message,
            metadata=metadata,
            operation_id=operation_id,
        )
        return merge(self._handle, source, into, call)

    def revert(  # noqa: PLR0913 - every word of a merge is one
        self,
        commit: Reference,
        *,
        resolve: Resolve | None = None,
        column_level: bool = True,
        allow_data_loss: bool = False,
        allow_diverged: bool = False,
        spark: Spark | None = None,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        operation_id: str | None = None,
    ) -> UndoResult:
        """Take back what a commit changed, as a new commit on this branch.

        What later commits changed stays. A merge is taken back to its first parent. If the commit
        changed the schema, that is taken back, too.

        Args:
            commit: The commit, by id, prefix or any reference.
            resolve: How to resolve conflicts with later commits, as in `merge`: `"ours"` keeps what
                the branch has now, `"theirs"` takes what was before the commit.
            column_level: Whether changes to different properties of one row are combined.
            allow_data_loss: Drop types and properties that the commit added although later commits
                wrote values of them.
            allow_diverged: Change main although the schemas of branches would conflict with it.
            spark: A Spark session or target, as in `merge`.
            dry_run: Only show the result or raise the conflicts.
            actor: Author of the commit; the user of this process by default.
            message: Message of the commit; by default it names the commit that is reverted.
            metadata: Further texts by name to store with the commit.
            operation_id: Any text that makes the call idempotent: the same one reverts only once.

        Raises:
            MergeConflictError: later commits changed the same rows, or the same parts of the
                schema; nothing was written.
            ConflictError: values would be lost, or the schemas of branches would conflict; nothing
                was written.
        """
        from omnigraph_lake.api.merging import MergeCall, revert  # DuckDB

        call = MergeCall(
            resolve=resolve,
            column_level=column_level,
            allow_data_loss=allow_data_loss,
            allow_diverged=allow_diverged,
            spark=spark,
            dry_run=dry_run,
            actor=actor,
            message=message,
            metadata=metadata,
            operation_id=operation_id,
        )
        return revert(self._handle, self.commit(commit), call)

    def restore(  # noqa: PLR0913 - every word of a write is one
        self,
        reference: Reference,
        *,
        allow_data_loss: bool = False,
        allow_diverged: bool = False,
        spark: Spark | None = None,
        dry_run: bool = False,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        operation_id: str | None = None,
    ) -> UndoResult:
        """Give this branch the schema and the rows of an earlier state, as a new commit.

        The history stays.

        Args:
            reference: The state: a commit, a tag, a branch or a point in time.
            allow_data_loss: Drop types and properties that the schema of the state does not have
                although rows have values of them.
            allow_diverged: Change main although the schemas of branches would conflict with it.
            spark: A Spark session or target, as in `merge`.
            dry_run: Count what would change; nothing is written.
            actor: Author of the commit; the user of this process by default.
            message: Message of the commit; by default it names the state that is restored.
            metadata: Further texts by name to store with the commit.
            operation_id: Any text that makes the call idempotent: the same one restores only once.

        Raises:
            ConflictError: values would be lost, or the schemas of branches would conflict; nothing
                was written.
        """
        from omnigraph_lake.api.merging import MergeCall, restore  # DuckDB

        call = MergeCall(
            allow_data_loss=allow_data_loss,
            allow_diverged=allow_diverged,
            spark=spark,
            dry_run=dry_run,
            actor=actor,
            message=message,
            metadata=metadata,
            operation_id=operation_id,
        )
        return restore(self._handle, reference, call)

    def diff(
        self,
        before: Reference,
        after: Reference | None = None,
        *,
        types: Sequence[str] | None = None,
        spark: Spark | None = None,
    ) -> GraphDiff:
        """Compare two references; the second is this branch by default.

        Counts are available immediately; rows with their images before and after are streamed on
        demand. With a Spark session or target its tasks compare, and write the files of
        `to_parquet`; without one, threads of this process. The result is the same.
        """
        return self._history.diff(before, after, types=types, spark=spark)

    def changes(
        self,
        *,
        start: str = "now",
        cursor: str | None = None,
        types: Sequence[str] | None = None,
        limit_commits: int | None = None,
    ) -> ChangeFeed:
        """Read the commits of this branch after a cursor, or after `start`, with their changes.

        `start` is `"now"`, `"beginning"` or a reference to a commit. Store the cursor of a commit
        when its changes are processed; otherwise that commit is delivered again. Where the graph
        was opened for writing, what the feed still has to read is held while it is in use, until
        its end or `close()`.
        """
        return self._history.changes(
            start=start, cursor=cursor, types=types, limit_commits=limit_commits
        )

    def baseline(self, *, types: Sequence[str] | None = None) -> Baseline:
        """Read all rows of this branch as inserts, table by table; the last element has the cursor.

        They are held until then, as for a feed.
        """
        return self._history.baseline(types=types)

    def commits(
        self, *, actor: str | None = None, limit: int | None = None
    ) -> Listing[GraphCommit]:
        """List the commits of this branch, newest first."""
        return self._history.commits(actor=actor, limit=limit)

    def commit(self, reference: Reference) -> GraphCommit:
        """One commit: by its id or any unique prefix of it, or by a reference such as `HEAD~2`."""
        return self._history.commit(reference)

    def log(self, *, all_branches: bool = False, limit: int = 20) -> CommitLog:
        """The newest commits with the branches and tags on them; printed, it draws the history.

        Args:
            all_branches: The commits of all branches instead of this one.
            limit: The maximum number of commits.
        """
        from omnigraph_lake.api.commit_log import read_log  # as in `view_commits`

        return read_log(
            self._objects,
            self._handle.branch,
            all_branches=flag(all_branches, argument="all_branches"),
            limit=count_from(1, limit, argument="limit"),
        )

    def blame(
        self,
        type: str,  # noqa: A002 - the conventional name
        key: Key | None = None,
        *,
        id: str | None = None,  # noqa: A002 - the conventional name
        limit: int = 20,
    ) -> RowHistory:
        """The commits that changed a row, newest first, back to its insert.

        Args:
            type: The name of a node or edge type.
            key: The value of the key; a tuple if the key has several properties.
            id: The id instead of a key.
            limit: The maximum number of changes.
        """
        from omnigraph_lake.api.blame import RowAddress, read_blame  # as in `view_commits`

        catalog = self._handle.view()[1].catalog
        table_key = table_key_of(catalog, self._objects.root, type)
        row = RowAddress(type=type, key=key, id=id, table_key=table_key)
        return read_blame(self, row, limit=count_from(1, limit, argument="limit"))

    def view_commits(self, *, limit: int = 200) -> View:
        """Draw the history of all branches: commits, merges, and the branches and tags on them.

        Args:
            limit: The maximum number of commits, the newest first.
        """
        return self._history.view_commits(limit=limit)

    def outcome(self, operation_id: str) -> OperationStatus:
        """The outcome of an operation: published, rolled back, pending, or unknown.

        Args:
            operation_id: That of a result or an error, or the text that was given to the call.
        """
        from omnigraph_lake.commit.publish import operation_status  # readers need none

        named = parse_operation_id(operation_id, now=SYSTEM_CLOCK.now())
        return operation_status(self._objects, named)

    def spark(self, spark: SparkSession | None = None) -> SparkGraph:
        """The graph as DataFrames and views, pinned to the current state.

        Where the graph was opened for writing, what is read is held while the result is in use.

        Args:
            spark: The session to use; by default that of this process, or a new one on this
                machine.

        Raises:
            SparkUnavailableError: Spark or Java is not installed.
        """
        return newest_kept(lambda: self._on_spark(spark, *self._handle.view(), self.load))

    def _holding(self) -> Holding | None:
        return self._handle.holding()

    def export(
        self,
        path: str | PathLike[str] | IO[bytes],
        *,
        type: str | None = None,  # noqa: A002 - the conventional name
        format: Literal["jsonl", "parquet"] = "jsonl",  # noqa: A002 - the conventional name
    ) -> ExportReport:
        """Export the rows to files that `load` can read, nodes before edges.

        Where the graph was opened for writing, they are held meanwhile.

        Args:
            path: A file or an open binary stream for `jsonl`, a directory for `parquet`.
            type: Export only this type.
            format: `jsonl`, or `parquet`, which also supports values that JSON cannot represent.
        """
        snapshot, contract, reading = self._handle.held_now(purpose="export")
        try:
            view = GraphView(self._objects, contract, self.branch, snapshot)
            return view.export(path, type=type, format=format)
        finally:
            reading.release()

    def _require_mode(self, verb: str, *, dry_run: bool) -> None:
        if not flag(dry_run, argument="dry_run"):
            self._handle.require_mode(verb)

    @property
    def _objects(self) -> Objects:
        return self._handle.objects

    def _view(self) -> tuple[Snapshot, SchemaContract]:
        return self._handle.view()

    def _on_branch(self, branch: str | None) -> Graph:
        return Graph(self._handle.on_branch(branch))

    def _commit(  # noqa: PLR0913 - every word of a write is one
        self,
        kind: WriterKind,
        actor: str | None,
        note: CommitNote,
        operation_id: str | None,
        *,
        tables: Mapping[str, object] | None = None,
        deleted: Mapping[str, object] | None = None,
        mode: WriteMode,
        dry_run: bool,
    ) -> WriteResult:
        from omnigraph_lake.load.write import Write, preview_write, write_graph  # DuckDB

        self._require_mode(kind.value, dry_run=dry_run)
        ref = self._handle.ref()
        write = Write(
            inputs={} if tables is None else tables,
            deleted={} if deleted is None else deleted,
            mode=mode,
            kind=kind,
            actor=acting(actor),
            note=note,
            branch=ref,
            operation_id=self._handle.operation(operation_id, branch=ref),
        )

        def preview() -> WriteResult:
            snapshot, contract = self._handle.view()
            return preview_write(self._objects, contract.catalog, write, SYSTEM_CLOCK, snapshot)

        if dry_run:
            return newest_kept(preview)
        return self._handle.under_schema(
            lambda contract: write_graph(self._objects, contract.catalog, write, SYSTEM_CLOCK)
        )

    def __repr__(self) -> str:
        catalog = self._handle.contract.catalog
        types = f"{len(catalog.nodes)} node types, {len(catalog.edges)} edge types"
        mode = "read-only, " if self.is_read_only else ""
        return f"<Graph {self._handle.root} ({mode}branch {self.branch}, {types})>"


class GraphView(Reads):
    """A read-only graph, pinned to a past state. Two are equal if they pin the same versions.

    With a hold, what it reads is kept until the hold ends, or the `with` block does.
    """

    def __init__(
        self,
        objects: Objects,
        contract: SchemaContract,
        name: str,
        snapshot: Snapshot,
        hold: LiveHold | None = None,
    ) -> None:
        self._stored = objects
        self._contract = contract
        self._schema = SchemaView(lambda: contract)
        self._name = name
        self._snapshot = snapshot
        self._hold = hold

    @property
    def _objects(self) -> Objects:
        use_storage()
        return self._stored

    @property
    def root(self) -> str:
        """The URL or path of the graph."""
        return self._stored.root.uri

    @property
    def pinned(self) -> Snapshot:
        """The version of every table that is read."""
        return self._snapshot

    @property
    def contract(self) -> SchemaContract:
        """The schema of the pinned state."""
        return self._contract

    @property
    def hold(self) -> LiveHold | None:
        """The hold that keeps it readable; None without a hold."""
        return self._hold

    @property
    def branch(self) -> str:
        """The name of the branch that is read."""
        return self._snapshot.branch_name

    @property
    def schema(self) -> SchemaView:
        """The schema of what is read."""
        return self._schema

    def snapshot(self) -> GraphView:
        """This view: it is pinned already."""
        return self

    @property
    def head(self) -> GraphHead | None:
        """The head of the branch, if this was its newest state when it was read."""
        return self._snapshot.head

    @property
    def manifest_version(self) -> int:
        """The version of the manifest that is read."""
        return self._snapshot.manifest_version

    @property
    def schema_hash(self) -> str | None:
        """The hash of the schema that the commit recorded."""
        return self._snapshot.schema_hash

    @property
    def tables(self) -> Mapping[str, TableEntry]:
        """The entries of the tables that are read, by key."""
        return self._snapshot.tables

    @property
    def commit_id(self) -> str | None:
        """The commit of this state."""
        return self._snapshot.commit_id

    def _view(self) -> tuple[Snapshot, SchemaContract]:
        return self._snapshot, self._contract

    def _holding(self) -> None:
        """What it reads is held by its own hold, if at all."""

    def release(self) -> None:
        """Release the hold; the data may be cleaned up from now on."""
        if self._hold is not None:
            self._hold.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphView):
            return NotImplemented
        return (self.root, self._snapshot) == (other.root, other._snapshot)

    def __hash__(self) -> int:
        return hash((self.root, self._snapshot.branch, self._snapshot.manifest_version))

    def __repr__(self) -> str:
        expiry = f" until {self._hold.expires_at:%Y-%m-%d %H:%M:%S}" if self._hold else ""
        return f"<GraphView {self.root} at {self._name!r}{expiry}>"


def _load_options(
    options: LoadOptions | None, handle: Handle
) -> tuple[LoadOptions, partial[LoadRequest]]:
    """The rarer options of a load, and the request that has them."""
    from omnigraph_lake.load.load import LoadRequest  # parsers and Parquet: 150 ms
    from omnigraph_lake.runner.progress import require_progress

    value: object = options
    if value is not None and not isinstance(value, LoadOptions):
        raise InvalidInputError(f"options is {shown(value)}, expected LoadOptions")
    chosen = options or LoadOptions()
    return chosen, partial(
        LoadRequest,
        columns=chosen.columns,
        dialect=chosen.dialect,
        end_type=chosen.end_type,
        order_by=chosen.order_by,
        max_bad=chosen.max_rejected,
        engine=chosen.engine,
        quarantine=chosen.quarantine,
        progress=require_progress(chosen.progress),
        source_options=chosen.storage_options,
        schema_merging=_schema_merging(handle)
        if flag(chosen.merge_schema, argument="merge_schema")
        else None,
    )


def _schema_merging(handle: Handle) -> SchemaMerging:
    from omnigraph_lake.evolution.widening import widen  # the compiler
    from omnigraph_lake.load.load import SchemaMerging
    from omnigraph_lake.merge.schema_outlook import branches_after_widening

    return SchemaMerging(
        widen=widen, diverged=partial(branches_after_widening, handle.objects, handle.contracts)
    )


def _checks(audit: object, contract: SchemaContract) -> tuple[ChosenQuery, ...]:
    if audit is None:
        return ()
    from omnigraph_lake.api.audit_queries import audit_checks  # the compiler

    return audit_checks(audit, contract)
