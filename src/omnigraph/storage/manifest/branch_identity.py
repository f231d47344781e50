"""Who a branch is: its name, its incarnation, and what it was forked from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph import names

if TYPE_CHECKING:
    from omnigraph.storage.pinned_tables import PinnedTables


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkPoint:
    """What a branch was forked from: a version of a branch's manifest, and a commit.

    `tables` is what the commit left, and `schema_hash` the schema it belongs to, unless it is the
    one that made the manifest version.
    """

    branch: str | None
    lance_branch: str | None
    manifest_version: int
    commit_id: str
    tables: PinnedTables | None = None
    schema_hash: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRef:
    """One incarnation of a branch: who it is, and where its manifest lives.

    `creates` lists the tables an initialisation is about to create, so that a later one may remove
    what a dead one left; it is empty for every branch but main. Branches older than the log share
    their name with their Lance branch and have no `forked_from`.
    """

    branch: str
    incarnation: str
    claimed_at: str
    creates: tuple[str, ...] = ()
    forked_from: ForkPoint | None = None
    owner: str | None = None
    """Who it was made for, if that was said."""
    expires_at: str | None = None
    """When it is considered abandoned unless it is still written to; None is never."""

    @property
    def lance_branch(self) -> str:
        if self.forked_from is None:
            return self.branch
        return names.manifest_fork(self.branch, self.incarnation)
