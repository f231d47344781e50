"""Whether the schemas of other branches can still be merged after a change of a schema.

Invariant: catalogs and commits decide; no row is read. Conflicts of rows are found by the merge.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph_lake import names
from omnigraph_lake.commit.diverged_branches import (
    DivergedBranch,
    count_unmerged,
    diverged_branches,
    other_branches,
)
from omnigraph_lake.evolution.lifting import SchemaStep
from omnigraph_lake.evolution.table_changes import WrittenValues, values_of
from omnigraph_lake.merge.schemas import SideOfMerge, conflicts_after
from omnigraph_lake.storage.manifest.commit_graph import base_of
from omnigraph_lake.storage.manifest.time_travel import all_commits, snapshot_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from omnigraph_lake.evolution.plan.planning import Evolution
    from omnigraph_lake.merge.schemas import MergedSchemas
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.validation.schema_contract import Contracts, Widening


def branches_after(
    objects: Objects, contracts: Contracts, state: ManifestState, evolution: Evolution
) -> tuple[DivergedBranch, ...]:
    """Every other branch, with the conflicts of its schema with the changed one."""
    if not evolution.plan.steps or not evolution.plan.supported:
        return diverged_branches(objects, state)
    step = SchemaStep(
        before=evolution.accepted, after=evolution.target, values=values_of(evolution.plan.steps)
    )
    return _branches_after(objects, contracts, state, step)


def branches_after_widening(
    objects: Objects, contracts: Contracts, state: ManifestState, widening: Widening
) -> tuple[DivergedBranch, ...]:
    """Every other branch, with the conflicts of its schema with the widened one."""
    step = SchemaStep(
        before=widening.accepted.catalog, after=widening.target.catalog, values=WrittenValues()
    )
    return _branches_after(objects, contracts, state, step)


def branches_after_undo(
    objects: Objects, contracts: Contracts, state: ManifestState, schemas: MergedSchemas
) -> tuple[DivergedBranch, ...]:
    """Every other branch, with the conflicts of its schema with one that a branch goes back to."""
    step = SchemaStep(
        before=schemas.ours.catalog, after=schemas.merged.catalog, values=WrittenValues()
    )
    return _branches_after(objects, contracts, state, step)


def _branches_after(
    objects: Objects, contracts: Contracts, state: ManifestState, step: SchemaStep
) -> tuple[DivergedBranch, ...]:
    others = other_branches(objects, state)
    return tuple(
        replace(branch, conflicts=tuple(_conflicts(objects, contracts, state, other, step)))
        if branch.commits
        else branch
        for branch, other in zip(count_unmerged(objects, state, others), others, strict=True)
    )


def _conflicts(
    objects: Objects,
    contracts: Contracts,
    state: ManifestState,
    other: ManifestState,
    step: SchemaStep,
) -> Iterator[str]:
    root, states = objects.root, (state, other)
    commits = other.head.commit_id, state.head.commit_id
    graph, base = base_of(root, *commits, states=states, further=lambda: all_commits(root))
    if base is None:
        return
    before = snapshot_of(root, states, graph, base)
    conflicts = conflicts_after(
        contracts,
        graph,
        base=SideOfMerge(
            name="base",
            commit_id=base.commit_id,
            schema_hash=before.schema_hash or state.head.first_schema,
        ),
        ours=_side(state),
        theirs=_side(other),
        step=step,
    )
    for conflict in conflicts:
        yield f"{conflict.kind.value}: {conflict.message}"


def _side(state: ManifestState) -> SideOfMerge:
    return SideOfMerge(
        name=state.branch or names.MAIN,
        commit_id=state.head.commit_id,
        schema_hash=state.head.schema_hash,
    )
