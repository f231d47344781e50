"""The lines of versions that a load on Spark may write on a branch.

Invariant: every type the input may hold has a line of the branch's own before a task writes a row,
because the types are unknown until all rows were read. Forks without rows are dropped afterwards;
no manifest refers to them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.commit.fork_on_write import writable_entry
from omnigraph.errors import ConflictError
from omnigraph.storage.lance.forks import drop_fork

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.load.report import SparkLoad
    from omnigraph.storage.snapshot import Snapshot, TableEntry


def writable_snapshot(load: SparkLoad, snapshot: Snapshot) -> Snapshot:
    """The snapshot with writable entries of the types the input may hold."""
    if load.branch is None or load.dry_run:
        return snapshot
    all_typed = all(split.file.type_name for split in load.splits)
    own = {
        key: writable_entry(
            load.objects.root, entry, branch=load.branch, operation_id=load.operation_id
        )
        for key, entry in snapshot.tables.items()
        if key in load.named or not all_typed
    }
    return replace(snapshot, tables={**snapshot.tables, **own})


def require_same_lines(staged: Mapping[str, TableEntry], snapshot: Snapshot) -> None:
    """Staged rows are in one fork and cannot be published in another."""
    for key, entry in staged.items():
        if snapshot.tables[key].fork != entry.fork:
            raise ConflictError(
                f"{key} was first written on its branch by a concurrent writer",
                next_step="Run the load again.",
            )


def drop_unused_forks(
    load: SparkLoad, entries: Mapping[str, TableEntry], *, written: frozenset[str]
) -> None:
    if load.branch is None:
        return
    own = (load.branch.incarnation, load.operation_id)
    for key, entry in entries.items():
        if key not in written and entry.fork and names.fork_owner(entry.fork) == own:
            drop_fork(load.objects.root, entry.location, entry.fork)
