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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from os import PathLike

    from omnigraph_lake.api.options import Spark
    from omnigraph_lake.evolution.apply_schema import SchemaResult
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
        return self._without_older_versions(changed) if hard and changed.emptied else changed

    def _without_older_versions(self, changed: SchemaResult) -> SchemaResult:
        # Few changes of a schema are hard.
        from omnigraph_lake.maintenance.cleanup import forget_older_versions

        with suppress(OmnigraphError):
            # The change is made; what stays behind is removed by the next `cleanup`.
            removed = forget_older_versions(self._handle.objects, changed.emptied, SYSTEM_CLOCK)
            return replace(changed, bytes_removed=removed.bytes)
        return changed
