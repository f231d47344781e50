"""The change of the target's schema that a merge publishes together with its rows.

Invariants:
- The new schema is kept under its hash before any manifest can name it.
- New tables have paths of the operation's own, and are made after its sidecar names them.
- Only one change of a schema prepares at a time; the lock only fails early, the publish decides.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from omnigraph_lake import errors, names
from omnigraph_lake.commit.schema_commit import free_schema_lock, take_schema_lock
from omnigraph_lake.commit.schema_move import AdoptedTable, CreatedTable, SchemaMove
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.manifest.accepted_schemas import keep_schema
from omnigraph_lake.validation.schema_contract import stored_form

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnigraph_lake.clock import Clock
    from omnigraph_lake.merge.decide import DecidedTable
    from omnigraph_lake.merge.plan import MergePlan
    from omnigraph_lake.merge.row_merge import RowMerge
    from omnigraph_lake.merge.schemas import TableSides
    from omnigraph_lake.storage.objects.store import Objects


class SchemaMoves:
    """Changes the schema of one target, again after every lost race; a context, for the lock."""

    def __init__(self, objects: Objects, operation_id: str, clock: Clock) -> None:
        self._objects = objects
        self._operation_id = operation_id
        self._clock = clock
        self._has_lock = False

    def __enter__(self) -> SchemaMoves:
        return self

    def __exit__(self, *_: object) -> None:
        if self._has_lock:
            with suppress(errors.OmnigraphError):
                # A lock whose operation has no sidecar blocks nothing.
                free_schema_lock(self._objects, self._operation_id)

    def take_lock(self, plan: MergePlan) -> None:
        """Take the lock of schema changes if the target gets another schema."""
        if plan.moves_schema:
            take_schema_lock(
                self._objects,
                self._operation_id,
                now=self._clock.now(),
                impatient=self._has_lock,
            )
            self._has_lock = True

    def move(
        self,
        plan: MergePlan,
        *,
        adopted: Iterable[str] = (),
        created: Iterable[DecidedTable],
        edited: Iterable[str],
    ) -> SchemaMove | None:
        """The change to publish, after the new schema is kept; None if the schema stays.

        `adopted` are tables that are read in place, `created` the rows of other new ones, `edited`
        the tables whose rows change.
        """
        schemas = plan.schemas
        if schemas is None or not schemas.moves_ours:
            return None
        for contract in (schemas.ours, schemas.merged):
            keep_schema(self._objects, contract.model_hash, stored_form(contract))
        reach("schema.post_contract")
        adopted_keys = list(adopted)
        rows = {table.table_key: table.upserted for table in created}
        kept = {sides.ours.table_key for sides in plan.tables.values() if sides.ours}
        declared = schemas.merged.catalog.tables()
        return SchemaMove(
            before=schemas.ours.model_hash,
            after=schemas.merged.model_hash,
            created=tuple(
                CreatedTable(
                    table_key=key,
                    location=names.table_location(key, self._operation_id),
                    type_number=declared[key].number,
                    row_count=rows.get(key, 0),
                )
                for key, sides in plan.tables.items()
                if sides.ours is None and key not in adopted_keys
            ),
            renamed=tuple(
                (sides.ours.table_key, key)
                for key, sides in plan.tables.items()
                if sides.ours and sides.ours.table_key != key
            ),
            dropped=tuple(key for key in plan.ours.tables if key not in kept),
            adopted=tuple(
                _adoption(plan.tables[key], declared[key].number) for key in adopted_keys
            ),
            values=schemas.values,
            edited=tuple(sorted(edited)),
        )


def create_tables(
    rows: RowMerge, plan: MergePlan, move: SchemaMove, created: Iterable[DecidedTable]
) -> None:
    """Make the tables of new types with their rows."""
    tables = {table.table_key: table for table in created}
    for table in move.created:
        rows.create(
            table.location,
            tables.get(table.table_key),
            schema=rows.schema(plan, table.table_key),
        )
        reach("schema.post_create")


def _adoption(sides: TableSides, number: int) -> AdoptedTable:
    theirs = sides.theirs
    assert theirs is not None
    return AdoptedTable(
        table_key=sides.key,
        location=theirs.location,
        type_number=number,
        version=theirs.version,
        row_count=theirs.row_count,
        made_at=theirs.made_at,
        checksums=None if theirs.checksums is None else theirs.checksums.digest,
    )
