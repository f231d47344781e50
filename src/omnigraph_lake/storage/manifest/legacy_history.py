"""Reads manifests and histories as Omnigraph 0.3 to 0.7 wrote them, in the terms of today.

A manifest of that time keeps a row for every version that it ever published. Its commits are in the
history alone, which has a Lance branch for every branch of the graph; they do not say what they
moved, and their times have no zone because they are in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from omnigraph_lake import names
from omnigraph_lake.storage import manifest_rows
from omnigraph_lake.storage.lance import datasets

if TYPE_CHECKING:
    from lance import LanceDataset

    from omnigraph_lake.storage.objects.location import Root

_BRANCH: Final = "manifest_branch"
_OUTCOMES: Final = "per_table_outcomes_json"
_KINDS: Final = {
    "RolledForward": "rolled_forward",
    "RolledBack": "rolled_back",
    "OrphanedBranchDiscarded": "branch_deleted",
}
_MOVED: Final = ("table_key", "table_version", "table_branch", names.ROW_ADDRESS)

Record = Mapping[str, Any]


def is_legacy(dataset: LanceDataset) -> bool:
    """Whether a table of the history has rows of that time."""
    columns = set(dataset.schema.names)
    return not columns.isdisjoint((_BRANCH, _OUTCOMES)) or (
        "actor_id" in columns and "created_at" in columns
    )


def fold_rows(
    rows: Iterable[manifest_rows.ManifestRow], branch: str | None
) -> tuple[manifest_rows.ManifestRow, ...]:
    """The rows that hold: of every table the highest version, wherever it lies.

    A table's versions on a branch are in its Lance branch of that name.
    """
    tables: list[manifest_rows.ManifestRow] = []
    newest: dict[str, manifest_rows.TableVersion] = {}
    buried: dict[str, int] = {}
    for row in rows:
        match row:
            case manifest_rows.TableVersion():
                known = newest.get(row.table_key)
                if known is None or row.version > known.version:
                    newest[row.table_key] = row
            case manifest_rows.Tombstone():
                buried[row.table_key] = max(row.version, buried.get(row.table_key, 0))
            case _:
                tables.append(row)
    living = (row for row in newest.values() if buried.get(row.table_key, -1) < row.version)
    own = (
        replace(row, fork=row.branch, branch=branch if row.branch == branch else None)
        for row in living
    )
    return (*tables, *own)


def read_records(root: Root, location: str, dataset: LanceDataset) -> list[Record]:
    """The rows of a table of the history, in the shape of today."""
    match location:
        case names.COMMITS:
            commits = {
                record["graph_commit_id"]: record
                for fork in (None, *datasets.lance_branches(dataset))
                if fork is None or not fork.startswith(names.LEGACY_RUN_PREFIX)
                for record in _commits(root, fork, dataset)
            }
            return list(commits.values())
        case names.RECOVERIES:
            return [_recovery(row) for row in _all_rows(dataset)]
        case _:
            return [_without(row, "created_at") for row in _all_rows(dataset)]


def head_commit(root: Root, branch: str | None, version: int) -> str | None:
    """The id of the commit that left a version of a branch's manifest; None if that is not known.

    A branch's own table of commits begins with those of the branch that it was made from. That of
    main may have been rewritten before its manifest was, and then has those of every branch.
    """
    dataset = datasets.open_dataset(root, names.COMMITS, fork=branch)
    rows = [] if dataset is None else _all_rows(dataset)
    left = [
        row
        for row in rows
        if row["manifest_version"] <= version and row.get("graph_branch") in (None, branch)
    ]
    newest = max(left, key=lambda row: row["manifest_version"], default=None)
    return None if newest is None else str(newest["graph_commit_id"])


def _commits(root: Root, fork: str | None, main: LanceDataset) -> Iterator[Record]:
    """The commits that a branch made itself, with the tables that they moved."""
    table = main if fork is None else datasets.open_dataset(root, names.COMMITS, fork=fork)
    rows = [] if table is None else _all_rows(table)
    own = [row for row in rows if row[_BRANCH] == fork]
    own.sort(key=lambda row: row["manifest_version"])
    moves = _moves(root, fork, [row["manifest_version"] for row in own])
    for row in own:
        moved = moves.get(row["manifest_version"], ())
        yield {
            **_without(row, _BRANCH),
            "graph_branch": fork,
            "created_at": row["created_at"].replace(tzinfo=UTC),
            "tables": json.dumps(moved),
        }


def _moves(
    root: Root, fork: str | None, versions: list[int]
) -> Mapping[int, list[tuple[str, int, str | None]]]:
    """The versions of tables that each of some versions of a manifest published.

    Every publish added one fragment. The first version also has what was there before it.
    """
    manifest = datasets.open_dataset(root, names.MANIFEST, fork=fork)
    if manifest is None:
        return {}
    with datasets.translated(root, f"read {names.MANIFEST}"):
        rows = manifest.to_table(columns=list(_MOVED), filter="object_type = 'table_version'")
    by_fragment: dict[int, list[tuple[str, int, str | None]]] = {}
    for key, version, branch, address in zip(*map(rows.column, _MOVED), strict=True):
        fragment = address.as_py() >> names.ADDRESS_BITS
        by_fragment.setdefault(fragment, []).append((key.as_py(), version.as_py(), branch.as_py()))
    moves: dict[int, list[tuple[str, int, str | None]]] = {}
    seen = _fragments(root, fork, versions[0] - 1) if fork is not None and versions else set()
    for version in versions:
        present = _fragments(root, fork, version)
        moves[version] = [
            move for fragment in sorted(present - seen) for move in by_fragment.get(fragment, ())
        ]
        seen |= present
    return moves


def _fragments(root: Root, fork: str | None, version: int) -> set[int]:
    handle = datasets.open_dataset(root, names.MANIFEST, fork=fork, version=version)
    return set() if handle is None else {part.fragment_id for part in handle.get_fragments()}


def _all_rows(dataset: LanceDataset) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = dataset.to_table().to_pylist()
    return rows


def _recovery(row: Record) -> Record:
    outcomes = json.loads(row[_OUTCOMES])
    return {
        "operation_id": row["operation_id"],
        "graph_commit_id": row["graph_commit_id"],
        "recovery_kind": _KINDS.get(row["recovery_kind"], row["recovery_kind"]),
        "original_actor": row["recovery_for_actor"],
        "writer_kind": row["sidecar_writer_kind"],
        "tables": json.dumps([outcome["table_key"] for outcome in outcomes]),
        "recovered_at": row["created_at"].replace(tzinfo=UTC),
    }


def _without(row: Record, column: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}
