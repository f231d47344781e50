"""What must hold whatever maintenance was killed at or woke up to: nothing lost, and it converges.

The gate reads all rows of all branches and tags as the nightly does. It leaves the rest of a check
to main, and asks indexes once and for fewer values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from lance import LanceDataset

import omnigraph_lake as og
from omnigraph_lake.commit.sidecar import pending_operations
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.tables import open_pinned
from omnigraph_lake.storage.staging.drift import DriftClass, table_drift
from omnigraph_lake.storage.staging.table_versions import head_version
from omnigraph_lake.validation.check import Problem
from tests.crash.branch_world import MAIN
from tests.crash.maintenance_world import Contents, Maintenance, keep_up, look
from tests.crash.soundness import findings
from tests.gate.selection import is_nightly

_RUNS_MAX = 3
"""One publishes what was left, one compacts what only then has the same indexes, one rests."""
_ASKED_FOR = 3 if is_nightly() else 1


def assert_whole(
    root: str,
    expected: Contents,
    *,
    drifted: Collection[str] = (),
    upkept: Collection[str] = (),
) -> Graph:
    """Reopen, and prove that every branch and tag is what it was, and sound.

    Tables that drifted hold rows of somebody else; upkept ones may be compacted by nobody we know.
    """
    seen = look(og.open(root, read_only=True))
    assert_same(seen, expected)
    graph = og.open(root)
    assert pending_operations(graph._objects) == ()
    assert_same(look(graph), expected)
    allowed = {Problem.DRIFT} if drifted else set()
    for name in expected if is_nightly() else (MAIN,):
        if not name.startswith("tag:"):
            problems = {each.problem for each in findings(graph.checkout(name), expected[name])}
            assert problems <= allowed, name
    assert_nothing_needs_repair(graph, drifted=drifted, upkept=upkept)
    assert_indexes_tell_the_truth(graph)
    return graph


def assert_same(seen: Contents, expected: Contents) -> None:
    assert seen.keys() == expected.keys()
    for name, content in expected.items():
        for key, rows in content.items():
            assert seen[name][key] == rows, f"{key} of {name}"


def assert_nothing_needs_repair(
    graph: Graph, *, drifted: Collection[str] = (), upkept: Collection[str] = ()
) -> None:
    for entry in graph.snapshot().tables.values():
        allowed = {DriftClass.NO_DRIFT}
        if entry.table_key in upkept:
            allowed.add(DriftClass.VERIFIED_MAINTENANCE)
        if entry.table_key not in drifted:
            found = table_drift(graph._objects.root, entry)
            assert found.drift in allowed, (entry.table_key, found)


def assert_indexes_tell_the_truth(graph: Graph) -> None:
    """What is found through an index is what is found without one."""
    for entry in graph.snapshot().tables.values():
        table = open_pinned(graph._objects.root, entry)
        rows = table.to_table().to_pylist()
        columns = {index.field_names[0] for index in table.describe_indices()} - {"name", "text"}
        for column in sorted(columns):
            values = sorted({row[column] for row in rows} - {None})
            middle = values[len(values) // 2]
            assert _found(table, f"{column} < {middle!r}") == _by_id(
                row for row in rows if row[column] is not None and row[column] < middle
            )
            gone = range(_ASKED_FOR * 2) if isinstance(middle, int) else ("gone",)
            for value in {*values[:_ASKED_FOR], *values[-_ASKED_FOR:], *gone}:
                wanted = _by_id(row for row in rows if row[column] == value)
                assert _found(table, f"{column} = {value!r}") == wanted, (entry.table_key, value)
    _assert_words_are_found(graph)


def assert_converges(graph: Graph, expected: Contents) -> None:
    """Optimizing again finishes what was left, changes nothing else, and then rests."""
    assert any(_rests(graph) for _ in range(_RUNS_MAX))
    for entry in graph.snapshot().tables.values():
        assert head_version(graph._objects.root, entry) == entry.version
    assert_same(look(graph), expected)
    if is_nightly():
        assert_indexes_tell_the_truth(graph)


def _rests(graph: Graph) -> bool:
    """Optimize; whether there was nothing to do."""
    before = graph.commits(limit=1)
    assert keep_up(graph, Maintenance.OPTIMIZE)["skipped"] == {}
    return graph.commits(limit=1) == before


def _assert_words_are_found(graph: Graph) -> None:
    entry = graph.snapshot().tables["node:Note"]
    table = open_pinned(graph._objects.root, entry)
    rows = table.to_table().to_pylist()
    for word in ("everywhere", "word0", "word1", "nowhere"):
        found = table.to_table(full_text_query={"query": word, "columns": ["text"]}).to_pylist()
        assert _by_id(found) == _by_id(row for row in rows if word in row["text"].split()), word


def _found(table: LanceDataset, where: str) -> list[str]:
    return _by_id(table.to_table(filter=where, columns=["id"]).to_pylist())


def _by_id(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted(row["id"] for row in rows)
