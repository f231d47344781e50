"""The commits of a graph, newest in the manifest, older ones in the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.errors import InvalidInputError
from omnigraph.storage.past import all_commits

if TYPE_CHECKING:
    from omnigraph.storage.location import Root
    from omnigraph.storage.manifest import ManifestState
    from omnigraph.storage.manifest_rows import GraphCommit


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
