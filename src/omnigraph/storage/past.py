"""Earlier states of a graph: by manifest version, by commit, or by point in time.

Invariant: a past state is a manifest version that may still be believed, read whole; nothing is
pieced together from later rows. What is no longer kept is refused, never guessed.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.errors import InvalidInputError, NotFoundError
from omnigraph.storage.history import recorded_commits
from omnigraph.storage.manifest import ManifestState, read_manifest_version
from omnigraph.storage.manifest_rows import GraphCommit

if TYPE_CHECKING:
    from omnigraph.storage.location import Root


def all_commits(root: Root, state: ManifestState) -> tuple[GraphCommit, ...]:
    """Every commit once, newest first; a commit on its way to the history may be in both."""
    # The state was read before the history is: a commit that moves meanwhile is then in both.
    commits = {commit.commit_id: commit for commit in recorded_commits(root)}
    commits |= {row.commit_id: row for row in state.rows if isinstance(row, GraphCommit)}
    return tuple(sorted(commits.values(), key=lambda commit: commit.manifest_version, reverse=True))


def state_at_commit(root: Root, state: ManifestState, commit_id: str) -> ManifestState:
    """The graph as a commit of this branch left it."""
    for commit in all_commits(root, state):
        if commit.commit_id == commit_id and commit.branch == state.branch:
            return _left_by(root, state, commit)
    raise NotFoundError(
        f"{root} has no commit {commit_id!r:.80} on {state.branch or names.MAIN}",
        next_step=f"Run `omnigraph commit list {root}`.",
    )


def state_at_time(root: Root, state: ManifestState, moment: datetime) -> ManifestState:
    """The graph as the newest commit that is not younger than the moment left it."""
    commits = [each for each in all_commits(root, state) if each.branch == state.branch]
    for commit in commits:
        if datetime.fromisoformat(commit.created_at) <= moment:
            return _left_by(root, state, commit)
    began = f"; its first commit is of {commits[-1].created_at}" if commits else ""
    raise NotFoundError(
        f"{root} had no commit at {moment.isoformat()}{began}",
        next_step=f"Run `omnigraph commit list {root}`.",
    )


def moment_of(text: str) -> datetime:
    """A point in time written as ISO 8601; one without a zone is taken as UTC."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidInputError(
            f"{text!r:.80} is not a point in time",
            next_step="Write it as 2026-11-01 or 2026-11-01T12:30:00+01:00.",
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _left_by(root: Root, state: ManifestState, commit: GraphCommit) -> ManifestState:
    try:
        return read_manifest_version(root, commit.manifest_version, branch=state.branch)
    except NotFoundError as error:
        raise NotFoundError(
            f"commit {commit.commit_id} is known, but the state it left is not kept any more",
            next_step=error.next_step,
        ) from error
