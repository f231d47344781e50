"""The commits of a branch, newest in the manifests, older ones in the history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.arguments import text_or_none
from omnigraph.display.cells import Moment, short_ids
from omnigraph.display.pages import Listing, Page
from omnigraph.display.tables import TableView
from omnigraph.errors import DamagedGraphError, InvalidInputError
from omnigraph.language.diagnostics import shown
from omnigraph.storage.manifest.commit_graph import CommitGraph
from omnigraph.storage.manifest.swap import commits_of_fork, manifest_branches
from omnigraph.storage.manifest.time_travel import branch_commits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.manifest_rows import GraphCommit
    from omnigraph.storage.objects.location import Root
    from omnigraph.storage.objects.store import Objects


def list_commits(
    objects: Objects, state: ManifestState, *, actor: str | None = None, limit: int | None = None
) -> Listing[GraphCommit]:
    """Commits newest first, merged ones too, of one actor if asked.

    Raises:
        DamagedGraphError: a part of the history is lost.
    """
    text_or_none(actor, argument="actor")
    wanted: object = limit
    if wanted is not None and not (isinstance(wanted, int) and wanted >= 0):
        raise InvalidInputError(f"limit is {shown(wanted)}, expected a number of commits")
    commits = branch_commits(objects.root, state)
    if _misses_merged(commits):
        commits = branch_commits(objects.root, state, also=all_commits(objects.root))
    _require_history(objects.root, state, commits)
    listed = [commit for commit in commits if actor is None or commit.actor == actor]
    return CommitListing(listed[:limit])


class CommitListing(Listing["GraphCommit"]):
    """Commits, as a table."""

    __slots__ = ()

    def _page(self) -> Page:
        return commit_page(self, [commit.commit_id for commit in self])


def commit_page(commits: Sequence[GraphCommit], known: Collection[str]) -> Page:
    """Commits by prefixes that are unique among all that are known."""
    short = short_ids(known)
    rows = [
        (
            short[commit.commit_id],
            Moment(commit.created_at),
            commit.actor,
            (commit.branch or names.MAIN) + (" (merge)" if commit.merged_parent_id else ""),
            ", ".join(table_key for table_key, _, _ in commit.tables),
        )
        for commit in commits
    ]
    header = ("commit", "when", "actor", "branch", "tables")
    return Page(tables=[TableView(header=header, rows=rows, empty="no commits")])


def all_commits(root: Root) -> Iterator[GraphCommit]:
    """The commits in every manifest there is, also of branches that are deleted and not yet gone.

    Before a manifest is dropped, its commits are put into the history.
    """
    for lance_branch in (None, *manifest_branches(root)):
        yield from commits_of_fork(root, lance_branch)


def _require_history(root: Root, state: ManifestState, commits: tuple[GraphCommit, ...]) -> None:
    """Every commit of the branch itself is known, and who made it.

    Commits leave the manifest once they and their actors are in the history.
    """
    graph = CommitGraph({commit.commit_id: commit for commit in commits})
    for commit in graph.line(state.head.commit_id):
        # Commits of the first formats name no operation, and their actors were not always recorded.
        if commit.operation_id and not commit.actor:
            raise _lost(root, f"actor of commit {commit.commit_id}")
    missing = graph.gap(state.head.commit_id)
    if missing is not None:
        raise _lost(root, f"commit {missing}")


def _lost(root: Root, thing: str) -> DamagedGraphError:
    return DamagedGraphError(
        f"the {thing} is neither in the manifest of {root} nor in its history: "
        "a part of the history is lost. No table is at risk",
        next_step=f"Restore {names.COMMITS} and {names.COMMIT_ACTORS} from a backup.",
    )


def _misses_merged(commits: tuple[GraphCommit, ...]) -> bool:
    known = {each.commit_id for each in commits}
    return any(each.merged_parent_id not in {None, *known} for each in commits)
