"""Where an operation on a branch may write a table: a fork of the branch's own.

Invariant: a branch never writes a line of versions that another branch made. Tables fork at their
first write, under the operation's sidecar, into a fork named after the branch's incarnation and the
operation; until the operation is published nothing names the fork but that sidecar.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from omnigraph_lake import names
from omnigraph_lake.failpoints import reach
from omnigraph_lake.storage.lance.forks import fork_table

if TYPE_CHECKING:
    from omnigraph_lake.storage.manifest.state import BranchRef
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import TableEntry


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


def belongs_to(entry: TableEntry, branch: BranchRef | None) -> bool:
    """Whether the line of versions that holds the entry was made by this branch."""
    if branch is None or entry.fork is None:
        return branch is None and entry.fork is None
    incarnation, _ = names.fork_owner(entry.fork)
    return entry.branch == branch.branch and incarnation == branch.incarnation
