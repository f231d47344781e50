"""The order of phases of maintenance, which changes how tables are stored and never their rows.

    begin      read one manifest state; put the sidecar, before any file exists
    stage      write new files on that state's pins; HEADs do not move
    arm        the sidecar learns the tables, their pins, and every new file by name
    move       each table by itself; one that does not land right above its pin is left out
    publish    one swap for those that moved and whose pins are unchanged
    finish     put the pins of the others back, delete the sidecar

Unlike a write, a part of it is useful: every table is independent, here and when a sweep settles
it. Nothing is retried; the next maintenance run continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.commit.effects import commit_of, moved_by
from omnigraph_lake.commit.phases import Author, abort, new_sidecar, operation_of, put_new_sidecar
from omnigraph_lake.commit.publish import Decided, Decision, publish
from omnigraph_lake.commit.rollback import put_maintenance_back
from omnigraph_lake.commit.sidecar import (
    PlannedTable,
    Sidecar,
    SidecarState,
    WriterKind,
    active_operation,
    beating,
    delete_sidecar,
    replace_sidecar,
)
from omnigraph_lake.errors import ExpectedVersionMismatchError, OmnigraphError, SchemaChangedError
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.lance.compaction import StagedRewrite, commit_rewrite
from omnigraph_lake.storage.manifest_rows import Outcome, TableVersion

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.lance.datasets import NewVersion
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects

MAINTENANCE_ACTOR: Final = f"{names.SYSTEM_ACTOR_PREFIX}maintenance"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceResult:
    """The result of maintenance: the published version of every table that succeeded.

    `errors` has the failures by table; a table that is in neither lost a race.
    """

    moved: Mapping[str, int]
    errors: Mapping[str, OmnigraphError]


NOTHING_DONE: Final = MaintenanceResult(moved={}, errors={})


def commit_maintenance(
    objects: Objects,
    state: ManifestState,
    stage: Callable[[], Sequence[StagedRewrite]],
    clock: Clock,
    *,
    tables_at_once: int,
) -> MaintenanceResult:
    """Carry the compaction of any number of tables through all phases."""
    author = Author(operation_id=clock.new_id(), actor=MAINTENANCE_ACTOR, branch=state.ref)
    sidecar = new_sidecar(state, clock, WriterKind.OPTIMIZE, author)
    with active_operation(sidecar.operation_id):
        put_new_sidecar(objects, sidecar)
        try:
            with beating(objects, sidecar, clock):
                staged = stage()
        except BaseException:
            # What was never armed cannot be published.
            delete_sidecar(objects, sidecar.path)
            raise
        if not staged:
            delete_sidecar(objects, sidecar.path)
            return NOTHING_DONE
        armed = _arm(objects, sidecar, staged, clock)
        moves = _move(objects.root, staged, tables_at_once)
        reach("optimize.post_phase_b_pre_manifest_commit")
        decided = _publish(objects, state, armed, moves.versions, clock)
        put_maintenance_back(objects.root, state.ref, armed, decided.operation, clock)
        delete_sidecar(objects, armed.path)
        reach("mutation.post_sidecar_delete")
    return MaintenanceResult(
        moved=moved_by(objects.root, decided.state, decided.operation),
        errors=moves.errors,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moves:
    versions: Mapping[str, TableVersion]
    errors: Mapping[str, OmnigraphError]


def _arm(
    objects: Objects, sidecar: Sidecar, rewrites: Sequence[StagedRewrite], clock: Clock
) -> Sidecar:
    armed = replace(
        sidecar,
        state=SidecarState.ARMED,
        tables=tuple(
            PlannedTable(
                table_key=rewrite.table_key,
                location=rewrite.entry.location,
                fork=rewrite.entry.fork,
                pin=rewrite.entry.version,
                expected=rewrite.entry.pin,
                files=rewrite.files,
            )
            for rewrite in rewrites
        ),
        beat_at=clock.timestamp(),
    )
    replace_sidecar(objects, armed)
    reach("mutation.post_stage")
    return armed


def _move(root: Root, rewrites: Sequence[StagedRewrite], tables_at_once: int) -> _Moves:
    versions: dict[str, TableVersion] = {}
    errors: dict[str, OmnigraphError] = {}
    with ThreadPoolExecutor(min(tables_at_once, len(rewrites))) as pool:
        for rewrite, result in zip(
            rewrites, pool.map(partial(_moved, root), rewrites), strict=True
        ):
            if isinstance(result, OmnigraphError):
                errors[rewrite.table_key] = result
            elif result is not None:
                versions[rewrite.table_key] = TableVersion(
                    table_key=rewrite.table_key,
                    version=result.version,
                    branch=None,
                    row_count=rewrite.entry.row_count,
                    fork=rewrite.entry.fork,
                    made_at=result.made_at,
                )
    return _Moves(versions=versions, errors=errors)


def _moved(root: Root, staged: StagedRewrite) -> NewVersion | OmnigraphError | None:
    try:
        return commit_rewrite(root, staged)
    except OmnigraphError as error:
        return error


def _publish(
    objects: Objects,
    state: ManifestState,
    sidecar: Sidecar,
    moved: Mapping[str, TableVersion],
    clock: Clock,
) -> Decided:
    """Publish what can be published; if nothing can, make sure that it never is."""
    left = dict(moved)
    while left:
        expected = {key: sidecar.pins[key] for key in left}
        try:
            return publish(
                objects.root,
                Decision(
                    operation=operation_of(sidecar, Outcome.PUBLISHED, clock),
                    expected=expected,
                    moved=tuple(left.values()),
                    commit=commit_of(
                        sidecar,
                        left.values(),
                        actor=MAINTENANCE_ACTOR,
                        created_at=clock.timestamp(),
                    ),
                    schema_hash=sidecar.schema_hash,
                ),
                branch=state.ref,
            )
        except ExpectedVersionMismatchError as lost:
            del left[lost.table_key]
        except SchemaChangedError:
            # A key may mean another table now.
            left.clear()
    return abort(objects, sidecar, state.ref, clock)
