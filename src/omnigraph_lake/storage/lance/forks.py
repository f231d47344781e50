"""Lance branches of tables: each the line of versions that one graph branch writes.

Invariant: a fork is named after the graph branch and the operation that made it, so no two
operations ever mean the same one. Deleting a fork that others were forked from is refused by Lance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph_lake.storage.lance.datasets import (
    is_not_found,
    lance_branches,
    open_dataset,
    translated,
)
from omnigraph_lake.storage.objects.containment import require_tree_inside
from omnigraph_lake.storage.snapshot import Pin, TableEntry

if TYPE_CHECKING:
    from omnigraph_lake.storage.objects.location import Root


def fork_table(
    root: Root, entry: TableEntry, *, fork: str, branch: str | None
) -> TableEntry | None:
    """The pinned version as the first of a fork; one that an earlier attempt made is taken.

    None if a fork of that name started from another version: an earlier attempt made it, and may
    have given what it wrote the number of the pinned version. None also if it is torn: Lance makes
    its folder first and lists it afterwards, and the files of one that is not listed are not
    protected.
    """
    forked = replace(entry, fork=fork, branch=branch, made_at=None)
    with translated(root, f"fork {entry.table_key}"):
        main = open_dataset(root, entry.location)
        if main is None:
            raise OSError(f"{entry.location} is gone")
        if open_dataset(root, entry.location, fork=fork, version=entry.version) is None:
            try:
                main.create_branch(fork, (entry.fork, entry.version))
            except (ValueError, OSError):
                if fork not in lance_branches(main):
                    raise
            else:
                return forked
        listed = lance_branches(main).get(fork)
    origin = None if listed is None else (listed["parent_version"], listed["parent_branch"])
    return forked if origin == (entry.version, entry.fork) else None


def fork_origin(root: Root, entry: TableEntry) -> Pin | None:
    """The version that an entry's fork started from; None if it is on no fork."""
    with translated(root, f"look at fork {entry.fork} of {entry.table_key}"):
        dataset = open_dataset(root, entry.location)
        forks = {} if dataset is None else lance_branches(dataset)
        branch = None if entry.fork is None else forks.get(entry.fork)
    return None if branch is None else Pin(branch["parent_version"], branch["parent_branch"])


def versions_forked(root: Root, location: str) -> frozenset[int]:
    """The versions of a table's main line that forks started from: branches fork published ones."""
    with translated(root, f"list the forks of {location}"):
        dataset = open_dataset(root, location)
        forks = {} if dataset is None else lance_branches(dataset)
    return frozenset(
        fork["parent_version"] for fork in forks.values() if fork["parent_branch"] is None
    )


def forks_of(root: Root, location: str) -> tuple[str, ...]:
    """Every fork of a table."""
    with translated(root, f"list the forks of {location}"):
        dataset = open_dataset(root, location)
        return () if dataset is None else tuple(sorted(lance_branches(dataset)))


def drop_fork(root: Root, location: str, fork: str) -> bool:
    """Delete a fork; False if it has to stay because another was forked from it."""
    require_tree_inside(root, location)
    with translated(root, f"delete fork {fork} of {location}"):
        dataset = open_dataset(root, location)
        try:
            if dataset is not None:
                dataset.branches.delete(fork)
        except (ValueError, OSError) as error:
            if "is referenced by" in str(error):
                return False
            if not is_not_found(error):
                raise
    return True
