"""The long history beside the manifest: commits, their actors, recoveries.

Invariant: derived and append-only. Rows arrive here from the manifest, idempotently by commit id;
nothing reads these tables to decide what is visible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from omnigraph import names
from omnigraph.storage.datasets import create_dataset, open_dataset, translated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from omnigraph.storage.location import Root

_UTC_MICROSECONDS: Final = pa.timestamp("us", tz="UTC")

_SHAPES: Final[Mapping[str, pa.Schema]] = {
    names.COMMITS: pa.schema(
        [
            pa.field("graph_commit_id", pa.string(), nullable=False),
            pa.field("graph_branch", pa.string()),
            pa.field("manifest_version", pa.uint64(), nullable=False),
            pa.field("parent_commit_id", pa.string()),
            pa.field("merged_parent_commit_id", pa.string()),
            pa.field("created_at", _UTC_MICROSECONDS, nullable=False),
        ]
    ),
    names.COMMIT_ACTORS: pa.schema(
        [
            pa.field("graph_commit_id", pa.string(), nullable=False),
            pa.field("actor_id", pa.string(), nullable=False),
        ]
    ),
    names.RECOVERIES: pa.schema(
        [
            pa.field("operation_id", pa.string(), nullable=False),
            pa.field("graph_commit_id", pa.string()),
            pa.field("recovery_kind", pa.string(), nullable=False),
            pa.field("original_actor", pa.string()),
            pa.field("writer_kind", pa.string(), nullable=False),
            pa.field("tables", pa.string(), nullable=False),
            pa.field("recovered_at", _UTC_MICROSECONDS, nullable=False),
        ]
    ),
}


HISTORY: Final = tuple(_SHAPES)


def create_history(root: Root, *, operation_id: str) -> None:
    """Create the empty history tables."""
    for location, schema in _SHAPES.items():
        create_dataset(root, location, schema.empty_table(), operation_id=operation_id)


def newest_commit(root: Root, *, branch: str | None) -> str | None:
    """The commit of the branch with the highest manifest version, or None without history."""
    dataset = open_dataset(root, names.COMMITS)
    if dataset is None:
        return None
    wanted = "graph_branch IS NULL" if branch is None else f"graph_branch = {_quoted(branch)}"
    with translated(root, f"read {names.COMMITS}"):
        rows = dataset.to_table(columns=["graph_commit_id", "manifest_version"], filter=wanted)
    newest = max(rows.to_pylist(), key=lambda row: row["manifest_version"], default=None)
    return None if newest is None else str(newest["graph_commit_id"])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
