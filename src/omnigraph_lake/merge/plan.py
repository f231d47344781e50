"""What a merge has to do: its base, its outcome, and the tables that need work.

Invariant: decided from commits and pins alone; no row is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from omnigraph_lake import names
from omnigraph_lake.errors import ConflictError
from omnigraph_lake.merge.schemas import (
    MergedSchemas,
    SideOfMerge,
    TableSides,
    merge_schemas,
    sides_of,
)
from omnigraph_lake.storage.manifest.commit_graph import base_of
from omnigraph_lake.storage.manifest.time_travel import all_commits, snapshot_of

if TYPE_CHECKING:
    from omnigraph_lake.merge.conflicts import Resolution
    from omnigraph_lake.storage.manifest.commit_graph import CommitGraph
    from omnigraph_lake.storage.manifest.state import ManifestState
    from omnigraph_lake.storage.objects.store import Objects
    from omnigraph_lake.storage.refs.references import Resolved
    from omnigraph_lake.storage.snapshot import Snapshot
    from omnigraph_lake.validation.schema_contract import Contracts


class MergeOutcome(StrEnum):
    """How a merge ended."""

    UP_TO_DATE = "up_to_date"
    FAST_FORWARD = "fast_forward"
    MERGED = "merged"


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePlan:
    """The three snapshots of a merge, and the tables that need work.

    `tables` has every table by its key in the merged schema. `keys` are those that the source
    changed; if the target gets another schema, also those that the target changed: its rows have to
    keep the rules of that schema. `schemas` are None if no side changed the schema.
    """

    outcome: MergeOutcome
    base_commit: str
    before: Snapshot
    ours: Snapshot
    theirs: Snapshot
    keys: tuple[str, ...]
    source_is_newer: bool
    tables: Mapping[str, TableSides] = field(repr=False)
    schemas: MergedSchemas | None = field(default=None, repr=False)

    @property
    def moves_schema(self) -> bool:
        """Whether the target gets another schema."""
        return self.schemas is not None and self.schemas.moves_ours

    @property
    def node_types_added_twice(self) -> dict[int, str]:
        """The node types that both sides added, by the numbers that are not used any more."""
        if self.schemas is None:
            return {}
        schemas = self.schemas
        return {
            node.number: node.name
            for side in (schemas.base, schemas.ours, schemas.theirs)
            for node in side.catalog.nodes.values()
            if node.number in schemas.same
        }


def plan_merge(
    objects: Objects,
    contracts: Contracts,
    source: Resolved,
    source_commit: str,
    target: ManifestState,
    resolution: Resolution,
) -> MergePlan:
    """Compare the heads of source and target with their common ancestor."""
    root = objects.root
    target_commit = target.head.commit_id
    states = (target, source.state)
    graph, base = base_of(
        root, source_commit, target_commit, states=states, further=lambda: all_commits(root)
    )
    if base is None:
        raise ConflictError(
            f"{source.name} and {target.branch or names.MAIN} have no commit in common",
            next_step="Export one and load it into the other.",
        )
    ours, theirs = target.snapshot(), source.snapshot
    if base.commit_id == source_commit:
        outcome, before = MergeOutcome.UP_TO_DATE, theirs
    elif base.commit_id == target_commit:
        outcome, before = MergeOutcome.FAST_FORWARD, ours
    else:
        outcome, before = MergeOutcome.MERGED, snapshot_of(root, states, graph, base)
    schemas = None
    if outcome is not MergeOutcome.UP_TO_DATE:
        commits = (base.commit_id, target_commit, source_commit)
        schemas = _schemas(contracts, graph, (before, target, source), commits, resolution)
    tables = tables_by_key(schemas, before, ours, theirs)
    theirs_at, ours_at = (
        datetime.fromisoformat(graph.commits[commit_id].created_at)
        for commit_id in (source_commit, target_commit)
    )
    return MergePlan(
        outcome=outcome,
        base_commit=base.commit_id,
        before=before,
        ours=ours,
        theirs=theirs,
        keys=tuple(key for key, sides in sorted(tables.items()) if needs_work(sides, schemas)),
        source_is_newer=theirs_at > ours_at,
        tables=tables,
        schemas=schemas,
    )


def _schemas(
    contracts: Contracts,
    graph: CommitGraph,
    sides: tuple[Snapshot, ManifestState, Resolved],
    commits: tuple[str, str, str],
    resolution: Resolution,
) -> MergedSchemas | None:
    """The schemas of the base, the target and the source, with their commits."""
    before, target, source = sides
    first = target.head.first_schema
    hashes = (
        before.schema_hash or first,
        target.head.schema_hash,
        source.snapshot.schema_hash or first,
    )
    base, ours, theirs = (
        SideOfMerge(name=name, commit_id=commit_id, schema_hash=schema_hash)
        for name, commit_id, schema_hash in zip(
            ("base", target.branch or names.MAIN, source.name), commits, hashes, strict=True
        )
    )
    return merge_schemas(
        contracts, graph, base=base, ours=ours, theirs=theirs, resolution=dict(resolution.schema)
    )


def needs_work(sides: TableSides, schemas: MergedSchemas | None) -> bool:
    """Whether rows of a table have to be decided."""
    if sides.theirs is None:
        return False
    moves_schema = schemas is not None and schemas.moves_ours
    return sides.is_changed_by_theirs or (moves_schema and not sides.unmoved)


def tables_by_key(
    schemas: MergedSchemas | None, before: Snapshot, ours: Snapshot, theirs: Snapshot
) -> Mapping[str, TableSides]:
    """Every table by its key in the merged schema."""
    if schemas is not None:
        return {sides.key: sides for sides in sides_of(schemas, before, ours, theirs)}
    return {
        key: TableSides(
            key=key,
            before=before.tables.get(key),
            ours=ours.tables.get(key),
            theirs=entry,
        )
        for key, entry in theirs.tables.items()
    }
