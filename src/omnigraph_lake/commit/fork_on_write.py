"""Where an operation on a branch may write a table: a fork of the branch's own.

Invariant: a branch never writes a line of versions that another branch made. Tables fork at their
first write, under the operation's sidecar, into a fork named after the branch's incarnation and the
operation; until the operation is published nothing names the fork but that sidecar. Once it is
decided that it is not published, nothing ever will.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Final

from omnigraph_lake import names
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.lance.forks import drop_fork, fork_table

if TYPE_CHECKING:
    from omnigraph_lake.storage.manifest.state import BranchRef, ManifestState
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.snapshot import TableEntry

_TABLES_AT_ONCE: Final = 8


def writable_entry(
    root: Root, entry: TableEntry, *, branch: BranchRef | None, operation_id: str
) -> TableEntry:
    """The entry itself if its line belongs to the branch, else the same rows in a new fork."""
    if belongs_to(entry, branch):
        return entry
    assert branch is not None, "main writes its own line alone"
    for attempt in count(1):
        fork = names.table_fork(branch.branch, branch.incarnation, operation_id, attempt=attempt)
        forked = fork_table(root, entry, fork=fork, branch=branch.branch)
        reach("branch.post_fork")
        if forked is not None:
            return forked
    raise AssertionError("there is always another name")


def drop_forks(objects: Objects, state: ManifestState, operation_id: str) -> None:
    """Delete the forks of an operation on a branch that is decided, and was not published.

    Its writer may sleep: what it writes to a fork that is gone, or makes anew, is never published.
    Its sidecar need not name the tables that it forked, so each table of the branch is asked.
    """
    branch = state.ref
    if branch is None:
        return

    def drop(location: str) -> None:
        for attempt in count(1):
            fork = names.table_fork(
                branch.branch, branch.incarnation, operation_id, attempt=attempt
            )
            if objects.read(names.lance_branch_ref(location, fork)) is None:
                return
            drop_fork(objects.root, location, fork)
            reach("recovery.post_drop")

    locations = sorted({entry.location for entry in state.snapshot().tables.values()})
    with ThreadPoolExecutor(_TABLES_AT_ONCE) as pool:
        list(pool.map(drop, locations))


def belongs_to(entry: TableEntry, branch: BranchRef | None) -> bool:
    """Whether the line of versions that holds the entry was made by this branch."""
    if branch is None or entry.fork is None:
        return branch is None and entry.fork is None
    incarnation, _ = names.fork_owner(entry.fork)
    return entry.branch == branch.branch and incarnation == branch.incarnation
