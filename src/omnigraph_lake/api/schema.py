"""`graph.schema`: read, plan and change the schema."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from omnigraph_lake.api.handle import Handle
from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import acting, flag, plain_text
from omnigraph_lake.errors import OmnigraphError
from omnigraph_lake.notes import commit_note
from omnigraph_lake.storage.manifest.swap import read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from omnigraph_lake.api.options import Spark
    from omnigraph_lake.evolution.apply_schema import SchemaResult
    from omnigraph_lake.evolution.plan.plan import Remains
    from omnigraph_lake.evolution.plan.planning import Evolution
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.validation.schema_contract import SchemaContract


class SchemaView:
    """The schema of the state that is read."""

    def __init__(self, contract: Callable[[], SchemaContract]) -> None:
        self._contract = contract

    @property
    def text(self) -> str:
        """The schema as `.pg` text."""
        return self._contract().text

    @property
    def catalog(self) -> Catalog:
        """The types, properties and constraints."""
        return self._contract().catalog

    def _remains(self, plan: Evolution) -> tuple[Remains, ...]:  # noqa: ARG002 - see `Schema`
        return ()

    def plan(
        self,
        text: str,
        *,
        filename: str = "schema.pg",
        hard: bool = False,
        queries: str | PathLike[str] | None = None,
    ) -> Evolution:
        """Plan the application of a schema. Changes nothing.

        Args:
            text: The new schema, with hints such as `@rename_from` and `@backfill`.
            filename: The file name to show in diagnostics.
            hard: Plan to remove dropped data from history, too.
            queries: A directory of `.gq` files, to name the queries that the change would refuse.

        Raises:
            SchemaInvalidError: the text, or a hint in it, is invalid.
            NotFoundError: there is no such directory.
        """
        from omnigraph_lake.evolution.plan.planning import evolve  # the compiler: 120 ms

        plain_text(text, argument="text")
        plain_text(filename, argument="filename")
        flag(hard, argument="hard")
        evolution = evolve(self._contract().catalog, text, filename=filename, hard=hard)
        evolution = replace(evolution, remains=self._remains(evolution) if hard else ())
        if queries is None:
            return evolution
        from omnigraph_lake.engine.query_text import find_refused_queries
        from omnigraph_lake.evolution.plan.planning import RefusedQuery

        refused = tuple(
            RefusedQuery(file=file, name=name, message=error.message, hint=error.hint)
            for file, name, error in find_refused_queries(
                queries, accepted=evolution.accepted, target=evolution.target
            )
        )
        return replace(evolution, refused_queries=refused)


class Schema(SchemaView):
    """The schema of a branch."""

    def __init__(self, handle: Handle) -> None:
        super().__init__(lambda: handle.view()[1])
        self._handle = handle

    def apply(  # noqa: PLR0913 - every word of a change is one
        self,
        text: str,
        *,
        filename: str = "schema.pg",
        hard: bool = False,
        allow_diverged: bool = False,
        spark: Spark | None = None,
        actor: str | None = None,
        message: str | None = None,
        metadata: Mapping[str, str] | None = None,
        operation_id: str | None = None,
    ) -> SchemaResult:
        """Apply a schema to this branch as one commit, without blocking readers.

        Args:
            text: The new schema, with hints such as `@rename_from` and `@backfill`.
            filename: The file name to show in diagnostics.
            hard: Also remove dropped data from history (irreversible).
            allow_diverged: Change main although the schemas of branches would conflict with it.
            spark: A Spark session or target that computes and checks rows. Without one, threads of
                this process do, whatever the number of rows. The result is the same.
            actor: Author of the commit; the user of this process by default.
            message: Message of the commit.
            metadata: Further texts by name to store with the commit.
            operation_id: Any text that makes the call idempotent: the same one applies only once.

        Raises:
            SchemaInvalidError: the text, or a hint in it, is invalid.
            SchemaRefusedError: a step is not supported, or rows violate it.
            ConflictError: another change is running, or the schema of a branch would conflict.
        """
        from omnigraph_lake.evolution.apply_schema import (  # the compiler
            SchemaRequest,
            apply_schema,
        )
        from omnigraph_lake.merge.schema_outlook import branches_after

        handle = self._handle
        handle.require_writable("change the schema")
        ref = handle.ref()
        request = SchemaRequest(
            text=plain_text(text, argument="text"),
            filename=plain_text(filename, argument="filename"),
            hard=flag(hard, argument="hard"),
            allow_diverged=flag(allow_diverged, argument="allow_diverged"),
            branch=ref,
            actor=acting(actor),
            note=commit_note(message, metadata),
            operation_id=handle.operation(operation_id, branch=ref),
            diverged=partial(branches_after, handle.objects, handle.contracts),
            spark=spark,
        )
        changed = apply_schema(handle.objects, handle.contracts, request, SYSTEM_CLOCK)
        return self._erase(changed) if hard and changed.emptied else changed

    def _erase(self, changed: SchemaResult) -> SchemaResult:
        """Remove what was dropped from files and older versions, as far as nothing needs it."""
        # Few changes of a schema are hard.
        from omnigraph_lake.maintenance.cleanup import find_remains, forget_older_versions

        objects = self._handle.objects
        # The change is made; what stays behind is named, and removed by the next `cleanup`.
        with suppress(OmnigraphError):
            self._rewrite(changed.emptied)
        with suppress(OmnigraphError):
            removed = forget_older_versions(objects, changed.emptied, SYSTEM_CLOCK)
            changed = replace(changed, bytes_removed=removed.bytes)
        return replace(changed, remains=find_remains(objects, changed.emptied, removed=True))

    def _rewrite(self, emptied: Mapping[str, frozenset[str]]) -> None:
        """Write the files of tables that lost columns again, without these; on main."""
        from omnigraph_lake.maintenance.optimize import OptimizeOptions, optimize_graph
        from omnigraph_lake.maintenance.workers import Workers, maintenance_concurrency
        from omnigraph_lake.runner.progress import require_progress
        from omnigraph_lake.runner.threads import ThreadRunner

        objects = self._handle.objects
        tables = read_manifest(objects.root).snapshot().tables
        erased = frozenset(key for key, entry in tables.items() if entry.location in emptied)
        observer = require_progress(None)
        with observer:
            threads = ThreadRunner(observer, parallel=maintenance_concurrency())
            workers = Workers(root=objects.root, runner=threads)
            optimize_graph(objects, workers, SYSTEM_CLOCK, options=OptimizeOptions(), erased=erased)

    def _remains(self, plan: Evolution) -> tuple[Remains, ...]:
        """What keeps values that a planned change drops."""
        from omnigraph_lake.evolution.apply_schema import find_emptied
        from omnigraph_lake.maintenance.cleanup import find_remains

        handle = self._handle
        return find_remains(handle.objects, find_emptied(plan, handle.view()[0]), removed=False)
