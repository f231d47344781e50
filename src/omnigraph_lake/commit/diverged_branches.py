"""Which branches have commits of their own while the schema of another one changes.

Invariant: reads only. Merging such a branch afterwards merges two schemas, which may conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from omnigraph_lake import names
from omnigraph_lake.display.pages import Displayed
from omnigraph_lake.errors import ConflictError, NotFoundError
from omnigraph_lake.storage.manifest.commit_graph import commit_graph
from omnigraph_lake.storage.refs.branches import living_branches, read_branch_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.store import Objects


@dataclass(frozen=True, slots=True, kw_only=True)
class DivergedBranch(Displayed):
    """A branch that diverges, and the number of its unmerged commits.

    Beside a change of the schema, `conflicts` says how the schema of the branch would conflict with
    the changed one, such as `SM-104: the description of Person ...`.
    """

    branch: str
    commits: int
    conflicts: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        match self.commits:
            case 0:
                return "no unmerged commits"
            case 1:
                return "1 unmerged commit"
            case _:
                return f"{self.commits} unmerged commits"

    def __str__(self) -> str:
        return f"{self.branch}: {self.outlook} ({self.words})"

    @property
    def outlook(self) -> str:
        """Whether its schema can be merged after the change."""
        if not self.conflicts:
            return "merges cleanly"
        return "; ".join(f"conflict {conflict}" for conflict in self.conflicts)


def diverged_branches(objects: Objects, state: ManifestState) -> tuple[DivergedBranch, ...]:
    """Every other branch, main first."""
    return count_unmerged(objects, state, other_branches(objects, state))


def other_branches(objects: Objects, state: ManifestState) -> list[ManifestState]:
    """The heads of every other branch, main first."""
    others: list[ManifestState] = []
    for ref in (None, *living_branches(objects).values()):
        if (None if ref is None else ref.branch) == state.branch:
            continue
        try:
            others.append(read_branch_manifest(objects, ref))
        except NotFoundError:
            # Deleted meanwhile.
            continue
    return others


def count_unmerged(
    objects: Objects, state: ManifestState, others: Sequence[ManifestState]
) -> tuple[DivergedBranch, ...]:
    """Branches with the number of their commits that a branch lacks."""
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


def refuse_conflicting(
    state: ManifestState, diverged: Iterable[DivergedBranch], *, next_step: str
) -> None:
    """Refuse to change the schema of main to one that the schema of a branch conflicts with.

    Raises:
        ConflictError: with the branches and their conflicts.
    """
    conflicting = [branch for branch in diverged if branch.conflicts]
    if conflicting and state.ref is None:
        raise ConflictError(
            "after the change, the schemas of these branches cannot be merged into main: "
            + ", ".join(f"{branch.branch} ({branch.outlook})" for branch in conflicting),
            next_step=next_step,
        )
