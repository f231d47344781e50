"""The verbs that bring rows of other states to a branch as one commit: merge, revert, restore."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from omnigraph_lake.api.system_clock import SYSTEM_CLOCK
from omnigraph_lake.arguments import acting, flag
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.merge.conflicts import parse_resolution, require_rows_only
from omnigraph_lake.merge.merge import MergeRequest, MergeResult, merge_graph, preview_merge
from omnigraph_lake.merge.terms import MergeTerms
from omnigraph_lake.merge.undo import UndoRequest, UndoResult, preview_undo, undo
from omnigraph_lake.notes import commit_note
from omnigraph_lake.runner.choose import chosen_runner
from omnigraph_lake.storage.refs.references import branch_ref

if TYPE_CHECKING:
    from omnigraph_lake.api.handle import Handle
    from omnigraph_lake.api.options import Resolve, Spark
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest.state import BranchRef
    from omnigraph_lake.storage.manifest_rows import GraphCommit
    from omnigraph_lake.storage.refs.references import Reference
    from omnigraph_lake.validation.schema_contract import SchemaContract


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeCall:
    """The arguments that merge, revert and restore share, as a caller gives them."""

    resolve: Resolve | None = None
    column_level: bool = True
    allow_data_loss: bool = False
    allow_diverged: bool = False
    spark: Spark | None
    dry_run: bool
    actor: str | None
    message: str | None
    metadata: Mapping[str, str] | None
    operation_id: str | None

    def require_mode(self, handle: Handle, verb: str) -> None:
        if not flag(self.dry_run, argument="dry_run"):
            handle.require_mode(verb)

    def terms(self, handle: Handle, target: BranchRef | None) -> Callable[[Catalog], MergeTerms]:
        """The checked arguments; the resolution depends on the schema."""
        runner = partial(chosen_runner, handle.objects.root, self.spark)
        given = partial(
            MergeTerms,
            target=target,
            column_level=flag(self.column_level, argument="column_level"),
            actor=acting(self.actor),
            note=commit_note(self.message, self.metadata),
            operation_id=handle.operation(self.operation_id, branch=target),
            runner=runner,
        )
        return lambda catalog: given(resolution=parse_resolution(self.resolve, catalog))


def merge(handle: Handle, source: Reference, into: str | None, call: MergeCall) -> MergeResult:
    """Merge a branch, tag or commit into a branch; that of the handle by default."""
    call.require_mode(handle, "merge")
    resolved = handle.resolve(source)
    target = branch_ref(handle.objects, handle.branch if into is None else into)
    terms = call.terms(handle, target)
    objects, contracts = handle.objects, handle.contracts
    if call.dry_run:
        onto = handle.on_branch(None if target is None else target.branch)
        state = onto.manifest()
        catalog = onto.contract_of(state).catalog
        request = MergeRequest(source=resolved, terms=terms(catalog))
        return preview_merge(objects, contracts, catalog, request, state, SYSTEM_CLOCK)

    def run(contract: SchemaContract) -> MergeResult:
        request = MergeRequest(source=resolved, terms=terms(contract.catalog))
        return merge_graph(objects, contracts, contract.catalog, request, SYSTEM_CLOCK)

    held_snapshots = () if call.spark is None else (resolved.snapshot,)
    with handle.held_while(*held_snapshots, purpose="merge"):
        return handle.under_schema(run)


def revert(handle: Handle, reverted: GraphCommit, call: MergeCall) -> UndoResult:
    """Take back what a commit changed."""
    if reverted.parent_id is None:
        raise InvalidInputError(
            f"commit {reverted.commit_id} created the graph and cannot be reverted",
            next_step="Delete the rows instead.",
        )
    if call.message is None:
        call = replace(call, message=f"Revert commit {reverted.commit_id}")
    return _undo(handle, "revert", reverted.commit_id, reverted.parent_id, call)


def restore(handle: Handle, reference: Reference, call: MergeCall) -> UndoResult:
    """Give a branch the schema and the rows of an earlier state."""
    restored = handle.resolve(reference).commit_id
    if call.message is None:
        call = replace(call, message=f"Restore the state of commit {restored}")
    return _undo(handle, "restore", None, restored, call)


def _undo(
    handle: Handle, verb: str, undone: str | None, earlier: str, call: MergeCall
) -> UndoResult:
    call.require_mode(handle, verb)
    terms, objects = call.terms(handle, handle.ref()), handle.objects
    resolved_earlier = handle.resolve(earlier)
    resolved_undone = None if undone is None else handle.resolve(undone)

    def request(catalog: Catalog) -> UndoRequest:
        checked_terms = terms(catalog)
        require_rows_only(checked_terms.resolution)
        return UndoRequest(
            undone=resolved_undone,
            earlier=resolved_earlier,
            terms=checked_terms,
            allow_data_loss=flag(call.allow_data_loss, argument="allow_data_loss"),
            allow_diverged=flag(call.allow_diverged, argument="allow_diverged"),
        )

    if call.dry_run:
        state = handle.manifest()
        catalog = handle.contract_of(state).catalog
        return preview_undo(
            objects, handle.contracts, catalog, request(catalog), state, SYSTEM_CLOCK
        )

    def run(contract: SchemaContract) -> UndoResult:
        return undo(
            objects,
            handle.contracts,
            contract.catalog,
            request(contract.catalog),
            SYSTEM_CLOCK,
        )

    states = [state for state in (resolved_undone, resolved_earlier) if state is not None]
    with handle.held_while(*(state.snapshot for state in states), purpose=verb):
        return handle.under_schema(run)
