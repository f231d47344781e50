"""The public facade of a graph: wires operations to one root.

Invariant: each method calls one operation; clocks and ids come from here and nowhere below.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph.branching import Branching, checked_operation
from omnigraph.commit.recover import Swept, sweep
from omnigraph.commit.sidecar import WriterKind
from omnigraph.errors import InvalidInputError, OmnigraphError, ReadOnlyError
from omnigraph.operations.arguments import acting, flag, one_of, plain_text
from omnigraph.operations.branches import checked_lifetime, create_branch
from omnigraph.operations.notebook import graph_html
from omnigraph.operations.references import Reference, branch_ref
from omnigraph.operations.references import resolve as found_reference
from omnigraph.operations.schema_contract import Contracts, SchemaContract
from omnigraph.operations.status import GraphStatus, graph_status
from omnigraph.rules.modes import WriteMode
from omnigraph.storage.objects import Objects
from omnigraph.syntax import shown
from omnigraph.system_clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from os import PathLike

    from pyspark.sql import SparkSession

    from omnigraph.load.ledger import LoadReport
    from omnigraph.load.progress import Progress
    from omnigraph.operations.apply_schema import SchemaResult
    from omnigraph.operations.check import CheckReport
    from omnigraph.operations.load import LoadRequest
    from omnigraph.operations.mutate import MutationResult
    from omnigraph.operations.query_text import ChosenQuery
    from omnigraph.operations.write import WriteResult


class OpenMode(StrEnum):
    """What a handle may do. Opening for reading writes nothing, not even repairs."""

    READ_WRITE = "rw"
    READ_ONLY = "r"


class Graph(Branching):
    """An open graph on one of its branches. Cheap to hold; every call reads the latest state."""

    def __init__(
        self,
        objects: Objects,
        *,
        mode: OpenMode,
        contract: SchemaContract,
        branch: str | None = None,
        contracts: Contracts | None = None,
    ) -> None:
        contracts = contracts or Contracts(objects, contract)
        super().__init__(objects, contracts, contract, branch)
        self.mode = mode

    def branch(self, name: str) -> Graph:
        """The same graph on another branch."""
        ref = branch_ref(self._objects, name)
        return self._on_branch(None if ref is None else ref.branch)

    def create_branch(
        self,
        name: str,
        *,
        from_: Reference | None = None,
        owner: str | None = None,
        expires: str | timedelta | None = None,
    ) -> Graph:
        """Create a branch from this one, or from another reference. No rows are copied.

        Args:
            name: Name of the branch.
            from_: The reference to start from.
            owner: Owner of the branch; shown by `branches`.
            expires: After which time it is considered abandoned unless it is still written to,
                such as `"7d"`. Nothing is removed because of that unless a policy of `maintain`
                says so.
        """
        self._require_writable("create a branch")
        lifetime = checked_lifetime(owner, expires)
        source = found_reference(
            self._objects, self.branch_name if from_ is None else from_, branch=self._branch
        )
        ref = create_branch(self._objects, name, source, SYSTEM_CLOCK, lifetime)
        return self._on_branch(ref.branch)

    def status(self) -> GraphStatus:
        """Tables with versions, rows, fragments and index coverage, and pending writes."""
        state = self._manifest()
        catalog = self._contract_of(state).catalog
        return graph_status(self._objects, catalog, state.snapshot(), stamp=state.stamp)

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
            actor: Author of the commit; the user of this process by default.
            operation_id: A ULID that makes the call idempotent: the same id writes only once.

        Raises:
            ValidationFailedError: rows violate the schema; nothing was written.
            OutcomeUnknownError: call `outcome(error.operation_id)` later.
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
        from_: str | None = None,
        merge_into: str | None = None,
        audit: str | PathLike[str] | None = None,
        quarantine: str | None = None,
        progress: Progress | None = None,
    ) -> LoadReport:
        """Load files, or frames by type name, as one commit. Every record is accounted for.

        A source is a path, a pattern, a directory or a list of these, or a mapping from type name
        to frame: Arrow, pandas, polars, Spark. Small inputs run in this process, large ones on
        Spark. `on_error="quarantine"` quarantines up to `max_bad` rejected records (20, or "0.1%")
        and publishes the rest. `from_` creates the branch if it does not exist; with `merge_into`
        it is checked as a whole, also by the queries of `audit`, and merged. See the reference.

        Raises:
            LoadRefusedError: more records are invalid than allowed; nothing was written.
            OutcomeUnknownError: call `outcome(error.operation_id)` later.
        """
        from omnigraph.load.progress import Progress  # parsers and Parquet: 150 ms, as below
        from omnigraph.operations.load import LoadRequest

        if not flag(dry_run, argument="dry_run"):
            self._require_writable("load")
        watcher: object = progress
        if watcher is not None and not isinstance(watcher, Progress):
            raise InvalidInputError(f"progress is {shown(watcher)}, expected a Progress")
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
            branch=self._branch if branch is None else branch,
            actor=acting(actor),
            operation_id=checked_operation(operation_id),
            quarantine=quarantine,
            progress=progress or Progress(),
        )
        return self._loaded(request, base=from_, into=merge_into, audit=audit)

    def _loaded(
        self, request: LoadRequest, *, base: str | None, into: str | None, audit: object
    ) -> LoadReport:
        from omnigraph.operations.audited_load import Route, load_through_branch  # as in `load`

        def load(contract: SchemaContract) -> LoadReport:
            route = Route(base=base, into=into, checks=_checks(audit, contract))
            return load_through_branch(
                self._objects, contract.catalog, request, route, SYSTEM_CLOCK
            )

        self._view()
        return self._under_schema(load)

    def delete(
        self,
        ids: Mapping[str, object],
        *,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> WriteResult:
        """Delete nodes and edges by id as one commit. The edges of a node are deleted with it."""
        return self._commit({}, ids, WriteMode.APPEND, WriterKind.DELETE, actor, operation_id)

    def mutate(
        self,
        text: object,
        params: Mapping[str, object] | None = None,
        *,
        name: object = None,
        expect_head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
        **parameters: object,
    ) -> MutationResult:
        """Run a mutation. All its statements are one commit.

        Args:
            text: The text of one or more queries, or the path of a file with them.
            params: The parameters by name.
            name: The query of the text to run, if there are several.
            expect_head: The expected head of the branch, as in `snapshot().commit_id`.
            actor: Author of the commit; the user of this process by default.
            operation_id: A ULID that makes the call idempotent: the same id writes only once.
            parameters: Parameters as keyword arguments.

        Raises:
            QueryInvalidError: the text has errors.
            ValidationFailedError: the result would violate the schema; nothing was written.
            ConflictError: the branch is at another commit than expected.
            OutcomeUnknownError: call `outcome(error.operation_id)` later.
        """
        from omnigraph.operations.mutate import (
            MutationRequest,
            mutate_graph,
        )  # DuckDB, as in `check`
        from omnigraph.operations.query_text import all_parameters, choose_query, query_text

        self._require_writable("mutate")
        given = all_parameters(params, parameters)
        ref, operation = self._ref(), checked_operation(operation_id)

        def mutate(contract: SchemaContract) -> MutationResult:
            request = MutationRequest(
                chosen=choose_query(query_text(text, contract), given, name=name),
                expect_head=expect_head,
                actor=acting(actor),
                branch=ref,
                operation_id=operation,
            )
            return mutate_graph(self._objects, contract.catalog, request, SYSTEM_CLOCK)

        return self._under_schema(mutate)

    def apply_schema(  # noqa: PLR0913 - every word of a change is one
        self,
        text: str,
        *,
        filename: str = "schema.pg",
        hard: bool = False,
        allow_parting: bool = False,
        spark: object | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> SchemaResult:
        """Apply a schema to this branch as one commit, without blocking readers.

        Args:
            text: The new schema, with hints such as `@rename_from` and `@backfill`.
            filename: The file name to show in diagnostics.
            hard: Whether to also remove dropped data from history (irreversible).
            allow_parting: Whether to change main although branches have commits that could then no
                longer be merged.
            spark: A Spark session or target that computes and checks rows. Without one, tables of
                up to 2,000,000 rows are processed here, larger ones on Spark where it is
                installed; the result is the same.
            actor: Author of the commit.
            operation_id: A ULID that makes the call idempotent: the same id applies only once.

        Raises:
            SchemaInvalidError: the text, or a hint in it, is invalid.
            SchemaRefusedError: a step is not supported, or rows violate it.
            ConflictError: another change is running, or branches could no longer be merged.
        """
        from omnigraph.operations.apply_schema import SchemaRequest, apply_schema  # the compiler

        self._require_writable("change the schema")
        request = SchemaRequest(
            text=plain_text(text, argument="text"),
            filename=plain_text(filename, argument="filename"),
            hard=flag(hard, argument="hard"),
            allow_parting=flag(allow_parting, argument="allow_parting"),
            branch=self._ref(),
            actor=acting(actor),
            operation_id=checked_operation(operation_id),
            spark=spark,
        )
        changed = apply_schema(self._objects, self._contracts, request, SYSTEM_CLOCK)
        return self._without_older_versions(changed) if hard and changed.emptied else changed

    def _without_older_versions(self, changed: SchemaResult) -> SchemaResult:
        # Few changes of a schema are hard.
        from omnigraph.maintenance.cleanup import forget_older_versions

        with suppress(OmnigraphError):
            # The change is made; what stays behind is removed by the next `cleanup`.
            removed = forget_older_versions(self._objects, changed.emptied, SYSTEM_CLOCK)
            return replace(changed, bytes_removed=removed.bytes)
        return changed

    def recover(self, *, also_living: bool = False) -> Swept:
        """Settle unfinished writes of dead writers; with `also_living`, of all."""
        self._require_writable("recover")
        flag(also_living, argument="also_living")
        self._manifest()  # settling some writes asks no manifest whose format would be refused
        return sweep(self._objects, SYSTEM_CLOCK, also_living=also_living)

    def check(self, *, deep: bool = False, spark: SparkSession | None = None) -> CheckReport:
        """Verify the integrity of the graph. Reads everything, writes nothing.

        Args:
            deep: Also compare every stored file of every branch, tag and retained version with its
                checksum, and look rows up through every index.
            spark: A Spark session whose tasks read the rows; without one, this process does. If the
                graph was opened for writing, what they read is held meanwhile.
        """
        from omnigraph.operations.check import check_graph  # DuckDB: 100 ms few readers need

        flag(deep, argument="deep")
        state = self._manifest()
        catalog = self._contract_of(state).catalog
        held = (
            nullcontext() if spark is None else self._held_while(state.snapshot(), purpose="check")
        )
        with held:
            report = check_graph(self._objects, catalog, state, spark=spark)
        if not deep:
            return report
        from omnigraph.operations.deep_check import deep_findings

        stored, findings = deep_findings(self._objects, SYSTEM_CLOCK.now())
        return replace(
            report,
            findings=(*report.findings, *findings),
            files_compared=len(stored.files),
            files_unrecorded=len(stored.unrecorded),
        )

    def _on_branch(self, branch: str | None) -> Graph:
        return Graph(
            self._objects,
            mode=self.mode,
            contract=self._contract,
            branch=branch,
            contracts=self._contracts,
        )

    def __repr__(self) -> str:
        catalog = self._contract.catalog
        types = f"{len(catalog.nodes)} node types, {len(catalog.edges)} edge types"
        return f"<Graph {self.root} ({types}, mode={self.mode.value!r})>"

    def _repr_html_(self) -> str:
        snapshot, contract = self._view()
        return graph_html(self.root, contract.catalog, snapshot)

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
            actor=acting(actor),
            branch=self._ref(),
            operation_id=checked_operation(operation_id),
        )
        return self._under_schema(
            lambda contract: write_graph(self._objects, contract.catalog, write, SYSTEM_CLOCK)
        )

    @property
    def _is_writable(self) -> bool:
        return self.mode is not OpenMode.READ_ONLY

    def _require_writable(self, verb: str) -> None:
        if not self._is_writable:
            raise ReadOnlyError(
                f"cannot {verb}: {self.root} was opened for reading",
                next_step=f"Open it with `omnigraph.open({self.root!r})`.",
            )


def _checks(audit: object, contract: SchemaContract) -> tuple[ChosenQuery, ...]:
    if audit is None:
        return ()
    from omnigraph.operations.audit_queries import audit_checks  # the compiler

    return audit_checks(audit, contract)
