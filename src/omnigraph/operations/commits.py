"""The commits of a graph, newest in the manifest, older ones in the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import InvalidInputError
from omnigraph.storage.history import recorded_commits
from omnigraph.storage.manifest_rows import GraphCommit

if TYPE_CHECKING:
    from omnigraph.storage.location import Root
    from omnigraph.storage.manifest import ManifestState


def all_commits(root: Root, state: ManifestState) -> tuple[GraphCommit, ...]:
    """Every commit once, newest first; a commit on its way to the history may be in both."""
    # The state was read before the history is: a commit that moves meanwhile is then in both.
    commits = {commit.commit_id: commit for commit in recorded_commits(root)}
    commits |= {row.commit_id: row for row in state.rows if isinstance(row, GraphCommit)}
    return tuple(sorted(commits.values(), key=lambda commit: commit.manifest_version, reverse=True))


def list_commits(
    root: Root, state: ManifestState, *, actor: str | None = None, limit: int | None = None
) -> tuple[GraphCommit, ...]:
    """Commits newest first, of one actor if asked."""
    wanted: object = limit
    if wanted is not None and not (isinstance(wanted, int) and wanted >= 0):
        raise InvalidInputError(f"limit is {wanted!r:.80}, expected a number of commits")
    found = [
        commit for commit in all_commits(root, state) if actor is None or commit.actor == actor
    ]
    return tuple(found[:limit])
