"""The one module through which tests of promises to users look behind the public API.

Tests under tests/behaviours call the public API and nothing else. What it cannot show or do goes
through the functions here: looking at what is stored, lowering limits so that a small graph reaches
them, acting at a point inside an operation, and making states that only a crash, an older release
or another program leaves. When the source is rearranged, this module changes and the tests of
promises do not; `tests/tidy/test_layers_of_tests.py` holds them to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

import lance
import pytest

from benchmarks import open_cost
from omnigraph_lake import failpoints, names
from omnigraph_lake.commit import history_compaction, refs
from omnigraph_lake.commit.orphans import listed_forks
from omnigraph_lake.evolution import column_work
from omnigraph_lake.evolution.plan.plan import Plan
from omnigraph_lake.evolution.plan.planning import evolve
from omnigraph_lake.failpoints import Action, Armed
from omnigraph_lake.failpoints import FailpointReached as FailpointReached
from omnigraph_lake.graph import Graph, GraphView
from omnigraph_lake.ids import node_id as node_id
from omnigraph_lake.merge import decide
from omnigraph_lake.mutate import mutate
from omnigraph_lake.mutate.mutate import Effect, effect_of
from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph_lake.schema.compile import compile_schema
from omnigraph_lake.schema.indexes import declared_indexes
from omnigraph_lake.schema.model import shape_hash as shape_hash
from omnigraph_lake.storage.lance.tables import open_pinned, whole_rows
from omnigraph_lake.storage.manifest.retention import Line as Line
from omnigraph_lake.storage.manifest.retention import (
    line_of,
    raise_floors,
    read_retention,
    versions_of,
)
from omnigraph_lake.storage.manifest.state import BranchRef
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.storage.objects.store import Objects, StoredObjects
from omnigraph_lake.storage.refs.branches import claim_branch, living_branches
from omnigraph_lake.storage.refs.logs import RefState
from omnigraph_lake.storage.refs.tags import Tag, read_tag_log
from omnigraph_lake.storage.refs.tags import claimed_tags as tags_claimed_in
from omnigraph_lake.storage.staging import column_changes, edits
from tests.stores import folder_of

IDENTITY_DOMAIN = "01JZZZZZZZZZZZZZZZZZZZZZZZ"


# What is stored


def objects_of(graph: Graph | GraphView) -> Objects:
    """The objects below the root of a graph."""
    return StoredObjects(parse_root(graph.root))


def data_files(graph: Graph | GraphView) -> set[str]:
    """Paths of all files that hold rows, of any version of any table."""
    objects = objects_of(graph)
    paths = (*objects.list("nodes"), *objects.list("edges"))
    return {path for path in paths if "/data/" in path}


def row_ids(graph: Graph | GraphView, table_key: str) -> Mapping[str, int]:
    """The stable row id of every row, by the row's id."""
    dataset = open_pinned(parse_root(graph.root), graph.snapshot().tables[table_key])
    rows = dataset.to_table(columns=["id", "_rowid"]).to_pylist()
    return {row["id"]: row["_rowid"] for row in rows}


def rows_with_blobs(graph: Graph | GraphView, table_key: str) -> list[dict[str, Any]]:
    """All rows of a table with their nulls; blobs are bytes."""
    entry = graph.snapshot().tables[table_key]
    batches = whole_rows(parse_root(graph.root), entry, batch_rows=1000)
    return [row for batch in batches for row in batch.to_pylist()]


def fragment_count(graph: Graph | GraphView, table_key: str) -> int:
    """The number of fragments that the published version of a table has."""
    dataset = open_pinned(parse_root(graph.root), graph.snapshot().tables[table_key])
    return len(dataset.get_fragments())


def behind_the_back(graph: Graph | GraphView, table_key: str) -> lance.LanceDataset:
    """A table as something else than Omnigraph would open it to write to it."""
    root = objects_of(graph).root
    location = graph.snapshot().tables[table_key].location
    return lance.dataset(root.child(location), storage_options=dict(root.storage_options) or None)


def head_of(graph: Graph | GraphView, table_key: str) -> int:
    """The newest version of a table, published or not."""
    return int(behind_the_back(graph, table_key).version)


def pinned_versions(graph: Graph | GraphView) -> set[tuple[Line, int]]:
    """The line of versions and the version that every table is read at."""
    return {(line_of(entry), entry.version) for entry in graph.snapshot().tables.values()}


def versions_on(graph: Graph | GraphView, line: Line) -> tuple[int, ...]:
    """The versions of a line that exist, oldest first."""
    return versions_of(parse_root(graph.root), line)


def retention_floors(graph: Graph | GraphView) -> Mapping[Line, int]:
    """The version of every cleaned line below which nothing is kept for its own sake."""
    return read_retention(objects_of(graph)).floors


def branch_refs(graph: Graph | GraphView) -> Mapping[str, BranchRef]:
    """Living branches by name, with their incarnation and the commit they started from."""
    return living_branches(objects_of(graph))


def fork_fates(graph: Graph | GraphView) -> list[str]:
    """What is to become of every Lance branch of a table: legitimate, orphan or indeterminate."""
    forks = listed_forks(objects_of(graph))
    return [fork.fate.value for fork in forks if fork.location != names.MANIFEST]


def claimed_tags(graph: Graph | GraphView) -> tuple[Tag, ...]:
    """Tags that are ready or whose creation has begun."""
    return tags_claimed_in(objects_of(graph))


def tag_log_length(graph: Graph | GraphView, tag: str) -> int:
    """The number of entries that were ever put to the log of a tag's name."""
    return read_tag_log(objects_of(graph), tag).last


# Limits


def small_limits(
    monkeypatch: pytest.MonkeyPatch,
    *,
    manifest_versions: int | None = None,
    commits_in_manifest: int | None = None,
    conflicts_kept: int | None = None,
    rows_compared: int | None = None,
) -> None:
    """Lower limits that a graph of a test would never reach.

    `manifest_versions` are kept before older ones are removed, `commits_in_manifest` are listed
    there before they are folded into the history, `conflicts_kept` are reported by a merge, and
    tables of up to `rows_compared` rows are merged by contents instead of by row ids.
    """
    limits: tuple[tuple[Any, str, int | None], ...] = (
        (names, "MANIFEST_VERSIONS_KEPT", manifest_versions),
        (history_compaction, "FOLD_EVERY", commits_in_manifest),
        (decide, "CONFLICTS_KEPT", conflicts_kept),
        (edits, "FEW_ROWS", rows_compared),
    )
    for module, name, value in limits:
        if value is not None:
            monkeypatch.setattr(module, name, value)


# Points inside an operation


def points_starting_with(*beginnings: str) -> tuple[str, ...]:
    """Names of failpoints, sorted."""
    return tuple(point for point in sorted(failpoints.POINTS) if point.startswith(beginnings))


@contextmanager
def failing_at(point: str, *, visit: int = 1) -> Iterator[None]:
    """Let an operation end at a failpoint with `FailpointReached`, as if its process died there."""
    failpoints.arm(point, Armed(action=Action.ERROR, visit=visit))
    try:
        yield
    finally:
        failpoints.disarm_all()


@contextmanager
def calling_at(point: str, act: Callable[[], object], *, visit: int = 1) -> Iterator[None]:
    """Call `act` once, in the thread that reaches a failpoint, before that thread goes on.

    The failpoint is armed inside the block only; a thread that is in `act` by then stays there.
    """
    failpoints.arm(point, Armed(action=Action.PAUSE, visit=visit))
    with patch.object(failpoints, "time", SimpleNamespace(sleep=lambda _: act())):
        try:
            yield
        finally:
            failpoints.disarm_all()


@contextmanager
def meanwhile(point: str, act: Callable[[], object]) -> Iterator[list[object]]:
    """Let another client act once while an operation is at a failpoint; yields what it returned."""
    results: list[object] = []
    with calling_at(point, lambda: results.append(act())):
        yield results
    assert results, f"{point} was not reached"


def before_ready(
    monkeypatch: pytest.MonkeyPatch, kind: Literal["branch", "tag"], act: Callable[[], object]
) -> None:
    """Call `act` right before a branch or a tag that is being made becomes visible."""
    module, name = (refs, "append_entry") if kind == "branch" else (refs, "append_tag_entry")
    put_entry = getattr(module, name)

    def act_before_ready(*arguments: Any) -> bool:
        if arguments[-1] is RefState.READY:
            act()
        return bool(put_entry(*arguments))

    monkeypatch.setattr(module, name, act_before_ready)


def after_mutation_computed(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]
) -> list[dict[str, list[str]]]:
    """Call `act` between the first computation of a mutation and its publication.

    The list that is returned grows with every computation, by the ids of its rows in every table.
    """
    computed: list[dict[str, list[str]]] = []

    def compute(*arguments: Any) -> Effect:
        effect = effect_of(*arguments)
        computed.append({key: table.ids.to_pylist() for key, table in effect.tables.items()})
        if len(computed) == 1:
            act()
        return effect

    monkeypatch.setattr(mutate, "effect_of", compute)
    return computed


def after_column_files(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> list[int]:
    """Call `act` whenever a schema change has computed new columns of a fragment.

    `act` is given how many fragments have been computed so far; the list that is returned grows by
    their numbers.
    """
    fragments: list[int] = []

    def compute(*arguments: Any) -> object:
        files = column_changes.column_files(*arguments)
        fragments.append(int(arguments[2]))
        act(len(fragments))
        return files

    monkeypatch.setattr(column_work, "column_files", compute)
    return fragments


# States that the public API does not leave


def claim_system_branch(graph: Graph, name: str) -> None:
    """Claim a branch name that is reserved for Omnigraph itself."""
    ref = BranchRef(branch=name, incarnation="i", claimed_at="2026-01-01T00:00:00+00:00")
    claim_branch(objects_of(graph), ref)


def raise_floors_above(graph: Graph, past: Graph | GraphView) -> None:
    """Do what a cleanup does first: declare the versions of a past graph as not kept any more."""
    newest = graph.snapshot().tables
    floors = {
        line_of(entry): entry.version + 1
        for entry in past.snapshot().tables.values()
        if entry.version < newest[entry.table_key].version
    }
    assert floors, "every version is the newest of its table"
    raise_floors(objects_of(graph), floors)


def raise_floor_of_removed_table(graph: Graph) -> None:
    """Leave the floor of a table that the graph does not have any more."""
    raise_floors(objects_of(graph), {Line("nodes/gone", None): 3})


def put_tag_of_first_release(graph: Graph, tag: Tag, name: str) -> None:
    """Store a tag as the first release did: one file, without an incarnation."""
    fields = {key: value for key, value in asdict(tag).items() if key != "incarnation"}
    content = json.dumps({**fields, "tag": name}, sort_keys=True)
    folder_of(graph.root, names.tag_ref(name)).write_text(content)


# What an operation costs


def requests_of(root: str, act: Callable[[], object]) -> int:
    """How many requests a call sends to the store, by itself and through Lance."""
    count = 0

    def counted(request: Callable[..., Any]) -> Callable[..., Any]:
        def send(*arguments: Any) -> Any:
            nonlocal count
            count += 1
            return request(*arguments)

        return send

    reads, files = lance.iops_counter(), _manifest_files(root)
    with pytest.MonkeyPatch.context() as patched:
        for name in ("put_if_absent", "read", "list"):
            patched.setattr(StoredObjects, name, counted(getattr(StoredObjects, name)))
        act()
    return count + lance.iops_counter() - reads + len(_manifest_files(root) - files)


def _manifest_files(root: str) -> set[Path]:
    return {path for path in folder_of(root, names.MANIFEST).rglob("*") if path.is_file()}


def cost_of_opening(root: str, *, old_commits: int, commits: int) -> open_cost.OpenCost:
    """Add commits to a graph that has some, without their rows; what opening it takes then."""
    place = parse_root(root)
    open_cost.synthesise_commits(place, old_commits, commits)
    return open_cost.measure_open(place, commits)


def wide_schema(tables: int) -> str:
    """A schema of many small types."""
    return open_cost.wide_schema(tables)


# Schemas without a graph


def compiled(text: str) -> Catalog:
    """The catalog of a schema's text."""
    return compile_schema(text, filename="test.pg", identity_domain=IDENTITY_DOMAIN)


def planned_change(accepted: Catalog, text: str) -> Plan:
    """The plan of a change, without rows."""
    return evolve(accepted, text).plan


def indexes_declared_by(declared: NodeType | EdgeType) -> set[tuple[str, tuple[str, ...]]]:
    """The name and the columns of every index that a type declares."""
    return {(index.name, (index.column,)) for index in declared_indexes(declared)}
