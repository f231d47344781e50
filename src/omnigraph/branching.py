"""Merging branches, tagging commits, and retrying writes after a schema change.

Invariant: a thin facade, like the graph itself; every method hands over to one operation.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, TypeVar

from omnigraph.errors import InvalidInputError, SchemaChangedError
from omnigraph.maintained import Maintained
from omnigraph.operations.arguments import acting, checked_id
from omnigraph.operations.branches import delete_branch
from omnigraph.operations.references import Reference, branch_ref
from omnigraph.operations.references import resolve as found_reference
from omnigraph.operations.tagging import create_tag, remove_tag
from omnigraph.storage.tags import Tag
from omnigraph.system_clock import SYSTEM_CLOCK, new_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from omnigraph.operations.merge import MergeResult
    from omnigraph.operations.schema_contract import SchemaContract

_T = TypeVar("_T")
_SCHEMAS_TRIED_MAX: Final = 5


class Branching(Maintained):
    """A graph on one of its branches, which can be merged, tagged and deleted."""

    def delete_branch(self, name: str) -> None:
        """Delete a branch. Merged commits stay on the branches they were merged into."""
        self._require_writable("delete a branch")
        delete_branch(self._objects, name)

    def merge(  # noqa: PLR0913 - every word of a merge is one
        self,
        source: Reference,
        *,
        into: str | None = None,
        resolve: object = None,
        column_level: bool = True,
        spark: object | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> MergeResult:
        """Merge a branch, tag or commit into a branch, this one by default, as one commit.

        Args:
            source: The branch, tag or commit to merge.
            into: The branch to merge into.
            resolve: How to resolve conflicts: `"ours"` (the target), `"theirs"`, `"newest"`, a
                mapping by type and column, or the path of a JSON file with one.
            column_level: Whether changes to different properties of one row are combined.
            spark: A Spark session or target to decide and write rows on. Without one, merges of
                up to 2,000,000 rows that may differ run in this process, larger ones on Spark
                where it is installed; the result is the same.
            actor: Author of the commit.
            operation_id: A ULID that makes the call idempotent: the same id merges only once.

        Raises:
            MergeConflictError: `conflicts` has every unresolved conflict and every violation;
                nothing was written.
        """
        from omnigraph.operations.merge import MergeRequest, merge_graph  # DuckDB, as in `check`
        from omnigraph.rules.merging import parse_resolution

        self._require_writable("merge")
        found = found_reference(self._objects, source, branch=self._branch)
        target = branch_ref(self._objects, self._branch if into is None else into)
        operation = checked_operation(operation_id)

        held = nullcontext() if spark is None else self._held_while(found.snapshot, purpose="merge")

        def merge(contract: SchemaContract) -> MergeResult:
            request = MergeRequest(
                source=found,
                target=target,
                resolution=parse_resolution(resolve, contract.catalog),
                column_level=column_level,
                actor=acting(actor),
                operation_id=operation,
                spark=spark,
            )
            return merge_graph(self._objects, contract.catalog, request, SYSTEM_CLOCK)

        with held:
            return self._under_schema(merge)

    def tag(self, name: str, *, at: Reference | None = None, actor: str | None = None) -> Tag:
        """Tag a commit. Its data is kept as long as the tag exists."""
        self._require_writable("tag")
        found = found_reference(
            self._objects, self.branch_name if at is None else at, branch=self._branch
        )
        return create_tag(self._objects, name, found, actor=acting(actor), clock=SYSTEM_CLOCK)

    def delete_tag(self, name: str) -> None:
        self._require_writable("delete a tag")
        remove_tag(self._objects, name)

    def _under_schema(self, run: Callable[[SchemaContract], _T]) -> _T:
        """Run a write with the cached schema, and again if that is no longer current."""
        contract = self._contract
        for _ in range(_SCHEMAS_TRIED_MAX):
            try:
                return run(contract)
            except SchemaChangedError as changed:
                if not changed.is_early:
                    raise
                contract = self._contracts.of(changed.found)
            except InvalidInputError:
                _, in_force = self._view()
                if in_force == contract:
                    raise
                contract = in_force
        return run(contract)


def checked_operation(given: str | None) -> str:
    """The operation id that a caller gave, or a new one."""
    return new_id() if given is None else checked_id(given, now=SYSTEM_CLOCK.now())
