"""What manifests before stamp 4 do not say, as the migration to it would write it down.

Such a manifest has no head and no commits: these are only in the history, and branches only in
Lance. Readers are given rows in their place, which are never stored: reading writes nothing, and
the migration writes rows of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from omnigraph import names
from omnigraph.errors import DamagedGraphError
from omnigraph.storage.manifest.history import recorded_commits
from omnigraph.storage.manifest_rows import GraphCommit, GraphHead, ManifestRow
from omnigraph.storage.objects.documents import MALFORMED, parsed
from omnigraph.storage.objects.store import stored_objects

if TYPE_CHECKING:
    from omnigraph.storage.objects.location import Root

_UNRECORDED: Final = "0" * 26
"""The substitute commit of a state without a commit in the history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldVersion:
    """A version of a manifest without a head, and what Lance knows of it."""

    branch: str | None
    parent_branch: str | None
    version: int
    made_at: str
    schema_hash: str


def assumed_rows(root: Root, old: OldVersion) -> tuple[ManifestRow, ...]:
    """The head of a version of a manifest that has none, and its commit if none was recorded."""
    commit = _newest(root, old)
    head = GraphHead(
        branch=old.branch,
        sequence=old.version,
        commit_id=_UNRECORDED if commit is None else commit.commit_id,
        incarnation="",
        schema_hash=old.schema_hash,
        parent_branch=old.parent_branch,
    )
    if commit is not None:
        return (head,)
    unrecorded = GraphCommit(
        commit_id=_UNRECORDED,
        branch=old.branch,
        operation_id="",
        actor="",
        created_at=old.made_at,
        manifest_version=old.version,
    )
    return (head, unrecorded)


def schema_hash_at_root(root: Root) -> str:
    """The accepted schema of a graph whose manifest does not name it."""
    content = stored_objects(root).read(names.SCHEMA_STATE)
    try:
        return str(parsed(content or b"")["model_hash"])
    except MALFORMED as error:
        raise DamagedGraphError(
            f"{names.SCHEMA_STATE} of {root} is missing or damaged: {error!r:.80}",
            next_step="Restore it from a backup.",
        ) from error


def _newest(root: Root, old: OldVersion) -> GraphCommit | None:
    """The commit that left the version: the branch's newest, else that of what it was made from."""
    commits = [row for row in recorded_commits(root) if row.manifest_version <= old.version]
    own = [commit for commit in commits if commit.branch == old.branch]
    inherited = [commit for commit in commits if commit.branch in (None, old.parent_branch)]
    return max(own or inherited, key=lambda commit: commit.manifest_version, default=None)
