"""`graph.branches`: create, list and delete branches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.commit.diverged_branches import DivergedBranch, diverged_branches
from omnigraph_lake.commit.refs import (
    BranchInfo,
    checked_lifetime,
    create_branch,
    delete_branch,
    list_branches,
)
from omnigraph_lake.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from omnigraph_lake.api.handle import Handle
    from omnigraph_lake.display.pages import Listing
    from omnigraph_lake.evolution.plan.planning import Evolution
    from omnigraph_lake.storage.refs.references import Reference


_Graph = TypeVar("_Graph")


class Branches(Generic[_Graph]):
    """The branches of a graph."""

    def __init__(self, handle: Handle, checkout: Callable[[str | None], _Graph]) -> None:
        self._handle = handle
        self._checkout = checkout

    def create(
        self,
        name: str,
        *,
        source: Reference | None = None,
        owner: str | None = None,
        expires: str | timedelta | None = None,
    ) -> _Graph:
        """Create a branch; copies no rows. Returns the graph on the new branch.

        Args:
            name: The name of the branch.
            source: The branch, tag, commit or point in time it starts from; this branch by default.
            owner: Owner of the branch; shown by `list`.
            expires: The age at which the branch counts as abandoned if it is not written to, such
                as `"7d"`. Only a maintenance policy that says so deletes abandoned branches.
        """
        self._handle.require_mode("create a branch")
        lifetime = checked_lifetime(owner, expires)
        start = self._handle.resolve_here(source)
        ref = create_branch(self._handle.objects, name, start, SYSTEM_CLOCK, lifetime)
        return self._checkout(ref.branch)

    def list(self) -> Listing[BranchInfo]:
        """List all branches: main, then the others by name."""
        return list_branches(self._handle.objects, SYSTEM_CLOCK)

    def delete(self, name: str) -> None:
        """Delete a branch. Merged commits stay on the branches they were merged into."""
        self._handle.require_writable("delete a branch")
        delete_branch(self._handle.objects, name)

    def diverged(self, change: Evolution | None = None) -> tuple[DivergedBranch, ...]:
        """List the other branches, and the number of their unmerged commits.

        Args:
            change: A change of the schema that `schema.plan` planned: `conflicts` of a branch says
                what its schema would conflict about.
        """
        handle = self._handle
        if change is None:
            return diverged_branches(handle.objects, handle.manifest())
        from omnigraph_lake.evolution.plan.planning import (
            Evolution as PlannedChange,  # the compiler
        )
        from omnigraph_lake.merge.schema_outlook import branches_after

        if not isinstance(change, PlannedChange):
            raise InvalidInputError(
                f"change is {type(change).__name__}, expected a planned change of the schema",
                next_step="Pass what `graph.schema.plan(text)` returns.",
            )
        return branches_after(handle.objects, handle.contracts, handle.manifest(), change)
