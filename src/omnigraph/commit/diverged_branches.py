"""Which branches have commits of their own while the schema of another one changes.

Invariant: reads only. Merging such a branch afterwards merges two schemas, which may conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph import names
from omnigraph.display.pages import Displayed
from omnigraph.errors import ConflictError, NotFoundError
from omnigraph.storage.manifest.commit_graph import commit_graph
from omnigraph.storage.refs.branches import living_branches, read_branch_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from omnigraph.storage.manifest.state import ManifestState
    from omnigraph.storage.objects.store import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergedBranch(Displayed):
    """A branch that diverges, and the number of its unmerged commits."""

    branch: str
    commits: int

    @property
    def words(self) -> str:
        match self.commits:
            case 0:
                return "no unmerged commits"
            case 1:
                return "1 unmerged commit"
            case _:
                return f"{self.commits} unmerged commits"


def diverged_branches(objects: Objects, state: ManifestState) -> tuple[DivergedBranch, ...]:
    """Every other branch, main first."""
    others: list[ManifestState] = []
    for ref in (None, *living_branches(objects).values()):
        if (None if ref is None else ref.branch) == state.branch:
            continue
        try:
            others.append(read_branch_manifest(objects, ref))
        except NotFoundError:
            # Deleted meanwhile.
            continue
    if not others:
        return ()
    graph = commit_graph(objects.root, state, *others)
    merged = {commit.commit_id for commit in graph.reachable(state.head.commit_id)}
    return tuple(
        DivergedBranch(
            branch=other.branch or names.MAIN,
            commits=sum(
                commit.commit_id not in merged for commit in graph.reachable(other.head.commit_id)
            ),
        )
        for other in others
    )


def refuse_diverged(
    state: ManifestState, diverged: Iterable[DivergedBranch], *, next_step: str
) -> None:
    """Refuse to change the schema of main while branches have unmerged commits.

    Raises:
        ConflictError: with the branches that have unmerged commits.
    """
    unmerged_branches = [branch for branch in diverged if branch.commits]
    if unmerged_branches and state.ref is None:
        raise ConflictError(
            "these branches have commits that are not merged into main, and merging them after the "
            "change may conflict: "
            + ", ".join(f"{branch.branch} ({branch.words})" for branch in unmerged_branches),
            next_step=next_step,
        )
