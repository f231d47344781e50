"""What opening a graph costs as its history grows: `just bench open_cost`.

Commit rows are synthesised by real manifest swaps: every one adds its commit, operation and head
row, commits beyond the newest hundred live in the history tables only, and manifest versions are
cleaned by the rule of the format.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Final
from unittest.mock import patch

import lance

import omnigraph_lake as og
from omnigraph_lake import names
from omnigraph_lake.storage.manifest.swap import forget_old_versions, read_manifest, swap_manifest
from omnigraph_lake.storage.manifest_rows import (
    GraphCommit,
    GraphHead,
    ManifestRow,
    Operation,
    Outcome,
)
from omnigraph_lake.storage.objects.location import Root, parse_root
from omnigraph_lake.storage.objects.store import StoredObjects

FOLDED_EVERY: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCost:
    """What one read-only open plus a snapshot touched."""

    commits: int
    tables: int
    manifest_rows: int
    manifest_versions: int
    lance_reads: int
    lance_bytes: int
    object_reads: int
    milliseconds: float


class CountedObjects(StoredObjects):
    """Plain objects that count how often they are touched."""

    touched: ClassVar[Counter[str]] = Counter()

    def read(self, path: str) -> bytes | None:
        self.touched["read"] += 1
        return super().read(path)


def main(commit_counts: Sequence[int] = (100, 1_000, 10_000), *, tables: int = 500) -> None:
    with tempfile.TemporaryDirectory(prefix="omnigraph-bench-") as folder:
        root = parse_root(f"{folder}/graph")
        og.init(root.uri, schema=wide_schema(tables))
        made = 0
        costs = []
        print("commits  tables  rows  versions  lance reads  lance bytes  object reads      ms")
        for commits in commit_counts:
            synthesise_commits(root, made, commits)
            made = commits
            cost = measure_open(root, commits)
            costs.append(cost)
            print(
                f"{cost.commits:7,}  {cost.tables:6}  {cost.manifest_rows:4}  "
                f"{cost.manifest_versions:8}  {cost.lance_reads:11}  {cost.lance_bytes:11,}  "
                f"{cost.object_reads:12}  {cost.milliseconds:6.1f}"
            )
    touched = [cost.lance_reads + cost.object_reads for cost in costs]
    print(
        json.dumps(
            {
                "name": "open_cost",
                "ratio": touched[-1] / touched[0],
                "runs": [asdict(cost) for cost in costs],
                "versions": {"pylance": lance.__version__, "python": sys.version.split()[0]},
            }
        )
    )


def wide_schema(tables: int) -> str:
    nodes = tables // 2
    lines = [f"node N{number} {{ name: String @key  age: I32? }}" for number in range(nodes)]
    lines += [f"edge E{number}: N0 -> N{number % nodes}" for number in range(tables - nodes)]
    return "\n".join(lines)


def synthesise_commits(root: Root, start: int, stop: int) -> None:
    for number in range(start, stop):
        state = read_manifest(root)
        head = next(row for row in state.rows if isinstance(row, GraphHead))
        commit = GraphCommit(
            commit_id=f"commit-{number:08}",
            branch=None,
            operation_id=f"op-{number:08}",
            actor="bench",
            created_at="2026-11-15T00:00:00+00:00",
            parent_id=head.commit_id,
        )
        decision = Operation(
            operation_id=commit.operation_id,
            branch=None,
            outcome=Outcome.PUBLISHED,
            decided_by="bench",
            decided_at=commit.created_at,
        )
        moved = replace(head, sequence=head.sequence + 1, commit_id=commit.commit_id)
        kept = _folded(state.rows) if number % FOLDED_EVERY == 0 else state.rows
        rows = [*(row for row in kept if row is not head), commit, decision, moved]
        swap_manifest(state, rows, operation_id=decision.operation_id)
        if number % FOLDED_EVERY == 0:
            forget_old_versions(root)


def _folded(rows: Sequence[ManifestRow]) -> list[ManifestRow]:
    return [row for row in rows if not isinstance(row, GraphCommit | Operation)]


def measure_open(root: Root, commits: int) -> OpenCost:
    CountedObjects.touched.clear()
    reads, read_bytes = lance.iops_counter(), lance.bytes_read_counter()
    started = time.perf_counter()
    with patch("omnigraph_lake.opening.StoredObjects", CountedObjects):
        snapshot = og.open(root.uri, read_only=True).snapshot()
    elapsed = time.perf_counter() - started
    cost_reads, cost_bytes = lance.iops_counter() - reads, lance.bytes_read_counter() - read_bytes
    state = read_manifest(root)
    return OpenCost(
        commits=commits,
        tables=len(snapshot.tables),
        manifest_rows=len(state.rows),
        manifest_versions=len(list(state.handle.version_refs())),
        lance_reads=cost_reads,
        lance_bytes=cost_bytes,
        object_reads=CountedObjects.touched["read"],
        milliseconds=elapsed * 1_000,
    )


if __name__ == "__main__":
    assert names.MANIFEST_VERSIONS_KEPT >= FOLDED_EVERY
    main()
