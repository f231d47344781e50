"""Updating indexes: what the schema declares, built over every row, as one commit.

Invariant: an index affects speed, never results. What cannot be built is reported as pending with
its reason, and the next run tries again; nothing else fails because of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from omnigraph.commit.maintenance import MAINTENANCE_ACTOR
from omnigraph.commit.protocol import Prepared, WriteRequest, commit_write
from omnigraph.commit.sidecar import WriterKind
from omnigraph.display.pages import Displayed
from omnigraph.errors import (
    DamagedGraphError,
    IndexPendingError,
    OmnigraphError,
    StorageUnavailableError,
)
from omnigraph.maintenance.workers import Workers, by_table
from omnigraph.schema.indexes import DeclaredIndex, IndexKind, declared_indexes
from omnigraph.storage.indexes.segments import (
    IndexPlan,
    IndexTask,
    IndexWish,
    Organisation,
    Segment,
    plan_indexes,
    stage_indexes,
)
from omnigraph.storage.manifest.swap import read_manifest

if TYPE_CHECKING:
    from omnigraph.clock import Clock
    from omnigraph.schema.catalog import Catalog
    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.store import Objects
    from omnigraph.storage.snapshot import TableEntry

_UNTRAINABLE = "no vectors to train on yet"

_Built = tuple[str, str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingIndex(Displayed):
    """A declared index that could not be built this time, and why."""

    table_key: str
    column: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """What came of it: the tables whose indexes moved, what is pending, and what went wrong."""

    moved: frozenset[str] = frozenset()
    pending: tuple[PendingIndex, ...] = ()
    errors: Mapping[str, OmnigraphError] = field(default_factory=dict)


def wished_indexes(catalog: Catalog) -> Mapping[str, tuple[IndexWish, ...]]:
    """The declared indexes of every table, in the words of storage."""
    return {
        key: tuple(_wish(index) for index in declared_indexes(entity))
        for key, entity in catalog.tables().items()
    }


def plan_all(
    objects: Objects,
    state: ManifestState,
    wishes: Mapping[str, tuple[IndexWish, ...]],
    tables: Iterable[str],
) -> tuple[tuple[IndexPlan, ...], dict[str, OmnigraphError]]:
    """What the indexes of these tables need in one state of the graph, and the failures."""
    published = state.snapshot().tables
    plans, failed = by_table(
        lambda entry: plan_indexes(objects.root, entry, wishes.get(entry.table_key, ())),
        [published[key] for key in sorted(tables) if key in published],
    )
    return tuple(plans.values()), failed


def untrainable(plans: Iterable[IndexPlan]) -> tuple[PendingIndex, ...]:
    """The declared indexes that no row can be found for yet."""
    return tuple(
        _pending(plan.entry, wish, _UNTRAINABLE) for plan in plans for wish in plan.untrainable
    )


def update_indexes(
    objects: Objects,
    wishes: Mapping[str, tuple[IndexWish, ...]],
    tables: frozenset[str],
    workers: Workers,
    clock: Clock,
    *,
    schema_hash: str,
) -> Indexed:
    """Build what is missing or behind in these tables; no commit if nothing is."""
    builds = _Builds(objects=objects, wishes=wishes, tables=tables, workers=workers)
    committed = commit_write(
        objects,
        WriteRequest(
            operation_id=clock.new_id(),
            kind=WriterKind.INDEX,
            actor=MAINTENANCE_ACTOR,
            branch=None,
            commit_id=clock.new_id(),
            prepare=builds.prepare,
            is_long=True,
            schema_hash=schema_hash,
        ),
        clock,
    )
    return Indexed(
        moved=frozenset(
            () if committed is None else (change.table_key for change in committed.changes)
        ),
        pending=tuple(builds.pending.values()),
        errors=dict(builds.errors),
    )


@dataclass(slots=True, kw_only=True)
class _Builds:
    """Segments built so far; a lost race builds only what the new state lacks."""

    objects: Objects
    wishes: Mapping[str, tuple[IndexWish, ...]]
    tables: frozenset[str]
    workers: Workers
    built: dict[_Built, Segment | OmnigraphError] = field(default_factory=dict)
    pending: dict[tuple[str, str], PendingIndex] = field(default_factory=dict)
    errors: dict[str, OmnigraphError] = field(default_factory=dict)

    def prepare(self, state: ManifestState) -> Prepared:
        plans, self.errors = plan_all(self.objects, state, self.wishes, self.tables)
        self._raise_if_stale(state)
        self.pending = {(each.table_key, each.column): each for each in untrainable(plans)}
        tasks = [task for plan in plans for task in plan.tasks]
        missing = [task for task in tasks if _key(task) not in self.built]
        for task, segment in zip(missing, self.workers.index(missing), strict=True):
            self.built[_key(task)] = segment
        segments = {plan.entry.table_key: self._segments(plan) for plan in plans}
        unwanted = {plan.entry.table_key: plan.unwanted for plan in plans}
        changes, failed = by_table(
            lambda entry: stage_indexes(
                self.objects.root, entry, segments[entry.table_key], unwanted[entry.table_key]
            ),
            [plan.entry for plan in plans if segments[plan.entry.table_key] or plan.unwanted],
        )
        self.errors.update(failed)
        return Prepared(changes=tuple(changes.values()), read_set=frozenset())

    def _raise_if_stale(self, state: ManifestState) -> None:
        """Let the protocol try again on a newer state: a cleanup may have removed older pins."""
        lost = (DamagedGraphError, StorageUnavailableError)
        errors = [error for error in self.errors.values() if isinstance(error, lost)]
        if errors and read_manifest(self.objects.root).version != state.version:
            raise errors[0]

    def _segments(self, plan: IndexPlan) -> list[Segment]:
        found = [self._segment(task) for task in plan.tasks]
        return [segment for segment in found if segment is not None]

    def _segment(self, task: IndexTask) -> Segment | None:
        segment = self.built[_key(task)]
        if not isinstance(segment, OmnigraphError):
            return segment
        table_key = task.entry.table_key
        if isinstance(segment, IndexPendingError):
            self.pending[table_key, task.wish.column] = _pending(
                task.entry, task.wish, segment.what
            )
        else:
            self.errors[table_key] = segment
        return None


def _key(task: IndexTask) -> _Built:
    return task.entry.table_key, task.wish.name, task.fragments


def _pending(entry: TableEntry, wish: IndexWish, reason: str) -> PendingIndex:
    return PendingIndex(table_key=entry.table_key, column=wish.column, reason=reason)


def _wish(index: DeclaredIndex) -> IndexWish:
    match index.kind:
        case IndexKind.BTREE:
            organisation = Organisation.BTREE
        case IndexKind.INVERTED:
            organisation = Organisation.INVERTED
        case IndexKind.VECTOR:
            organisation = Organisation.IVF_FLAT
        case _:
            assert_never(index.kind)
    return IndexWish(
        name=index.name,
        column=index.column,
        organisation=organisation,
        metric=None if index.metric is None else index.metric.value,
    )
