"""The tables of a branch that Omnigraph 0.3 to 0.7 left in a state that nothing may be written on.

Some columns have types that mean something else than they say, and tables of 0.6.0 and before let
Lance delete what branches and tags name. Those of main are rewritten by the first opening for
writing, those of a branch by its first write, in a commit right before its own. See
`docs/adr/0033-tables-of-0-7-are-rewritten.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.commit.fork_on_write import writable_entry
from omnigraph_lake.commit.phases import Author, Prepared, Verb, WriteRequest
from omnigraph_lake.commit.sidecar import WriterKind
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.notes import CommitNote
from omnigraph_lake.storage.lance.dataset_cache import cached_dataset
from omnigraph_lake.storage.lance.legacy_types import is_legacy_table, must_be_rewritten
from omnigraph_lake.storage.staging.changes import (
    StagedChange,
    stage_rewrite,
    stage_without_cleanup,
)

if TYPE_CHECKING:
    from omnigraph_lake.clock import Clock
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry

_MESSAGE: Final = "Rewrite tables of an earlier Omnigraph"


def find_legacy_tables(root: Root, state: ManifestState) -> tuple[TableEntry, ...]:
    """The tables of a state that have to be rewritten.

    All others say when they were made, so nothing is opened to find none.
    """
    return tuple(
        entry
        for entry in state.snapshot().tables.values()
        if entry.made_at is None and _is_legacy(root, entry)
    )


def _is_legacy(root: Root, entry: TableEntry) -> bool:
    try:
        return must_be_rewritten(cached_dataset(root, entry))
    except DamagedGraphError:
        # Damage is for `check` and for readers of the table to report; other tables are written.
        return False


def rewriting(
    objects: Objects, clock: Clock, branch: BranchRef | None
) -> tuple[WriteRequest, Verb]:
    """The operation that rewrites these tables of a branch."""
    root = objects.root
    author = Author(
        operation_id=clock.new_id(),
        actor=names.MIGRATION_ACTOR,
        branch=branch,
        note=CommitNote(message=_MESSAGE),
    )
    request = WriteRequest.of(objects, clock, WriterKind.LOAD, author, schema_hash=None)

    def prepare(state: ManifestState) -> Prepared:
        changes = tuple(
            _stage(
                root,
                writable_entry(root, entry, branch=branch, operation_id=request.operation_id),
            )
            for entry in find_legacy_tables(root, state)
        )
        return Prepared(changes=changes, read_set=frozenset())

    return request, Verb(prepare=prepare)


def _stage(root: Root, entry: TableEntry) -> StagedChange:
    if is_legacy_table(cached_dataset(root, entry)):
        return stage_rewrite(root, entry)
    return stage_without_cleanup(root, entry)
