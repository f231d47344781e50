"""Graphs that the published programs wrote, opened for reading: every verb, to the value."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import DamagedGraphError
from omnigraph_lake.graph import Graph, GraphView
from tests.forking.programs import run_command
from tests.gate.selection import for_gate
from tests.legacy.legacy_graphs import ALL, KILLED, commits, exports, found, place_graph
from tests.legacy.rows import exported_rows, of_type, stored_rows
from tests.stores import files_of, folder_of

pytestmark = pytest.mark.behaviour

NODES = ("Thing", "Plain")
EDGES = ("Links", "Owns")
AT = dt.datetime(2024, 4, 4, 10, 11, 12, tzinfo=dt.UTC)

IN_GATE = {
    "0.7.1/branches",
    "0.7.1/evolved",
    "0.7.1/killed-2-load",
    "0.3.1/branches",
    "0.3.1/killed-2",
}


def contents(root: str) -> dict[str, tuple[int, int]]:
    """Every file below a root, with its size and the time it was last written."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files_of(root)}


def queried(graph: Graph | GraphView, name: str) -> list[dict[str, Any]]:
    """All nodes of a type by a query that names every property."""
    properties = graph.schema.catalog.nodes[name].properties
    columns = ", ".join(f"$x.{prop} as {prop}" for prop in properties)
    result = graph.query(f"match {{ $x: {name} }} return {{ {columns} }}")
    rows: list[dict[str, Any]] = result.to_arrow().to_pylist()
    for row in rows:
        if row.get("data") is not None:
            blob = graph.blob(name, row["slug"], "data")
            row["data"] = None if blob is None else blob.read()
    return rows


@pytest.mark.parametrize("name", for_gate(ALL, lambda name: name in IN_GATE))
def test_every_verb_gives_what_the_program_exports(
    name: str, graph_root: str, tmp_path: Path
) -> None:
    place_graph(name, graph_root)
    before = contents(graph_root)
    graph = og.open(graph_root, read_only=True)

    for branch, expected in exports(name).items():
        if name in KILLED:
            continue  # what the program exports after its recovery
        view = graph if branch == "main" else graph.checkout(branch)
        assert exported_rows(view, tmp_path) == expected, branch
        for node in NODES:
            wanted = of_type(expected, node)
            assert len(wanted) == view.count(node)
            assert stored_rows(queried(view, node), type=node) == wanted
            got = [
                found(view, node, str(dict(row)["slug"]))
                for row in wanted[:: max(1, len(wanted) // 20)]
            ]
            assert set(stored_rows(got, type=node)) <= set(wanted)
        for edge in EDGES:
            wanted = of_type(expected, edge)
            scanned = view.scan(edge).read_all().to_pylist()
            assert stored_rows(scanned, edge=edge) == wanted
    assert contents(graph_root) == before


def test_times_keep_their_time_of_day(graph_root: str) -> None:
    graph = og.open(place_graph("0.7.1/history", graph_root), read_only=True)

    assert graph.scan("Thing").schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert found(graph, "Thing", "t3")["at"] == AT
    for text, params, slugs in (
        ("$t.at = $at", {"at": AT}, ["t3"]),
        ("$t.at > $at $t.at < $end", {"at": AT, "end": AT + dt.timedelta(days=10)}, ["t39"]),
        ("$t.at >= $at $t.at < $end", {"at": AT, "end": AT + dt.timedelta(microseconds=1)}, ["t3"]),
    ):
        declared = ", ".join(f"${key}: DateTime" for key in params)
        query = f"query q({declared}) {{ match {{ $t: Thing {text} }} return {{ $t.slug as s }} }}"
        slugs_found = graph.query(query, params).to_arrow().column("s").to_pylist()
        assert sorted(slugs_found) == slugs, text
    scanned = graph.scan("Thing", filter='at = datetime("2024-04-04T10:11:12Z")')
    assert scanned.read_all()["id"].to_pylist() == ["t3"]


def test_a_null_blob_is_null_and_an_empty_one_is_empty(graph_root: str) -> None:
    graph = og.open(place_graph("0.7.1/plain", graph_root), read_only=True)

    assert found(graph, "Thing", "t1")["data"] is None
    assert graph.blob("Thing", "t1", "data") is None
    blob = graph.blob("Thing", "t0", "data")
    assert blob is not None
    assert blob.read() == bytes(range(20))


def test_lists_of_times_and_empty_blobs_are_told_from_days_and_nulls(graph_root: str) -> None:
    graph = og.open(place_graph("0.7.1/keys", graph_root), read_only=True)

    first, empty, null = (found(graph, "T", key) for key in "abc")

    assert first["ats"] == [
        dt.datetime(2024, 1, 1, 1, 2, 3, 4000, tzinfo=dt.UTC),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC),
    ]
    assert first["ds"] == [dt.date(2024, 1, 1)]
    assert (first["b"], empty["b"], null["b"]) == (b"\0\1", b"", None)


@pytest.mark.parametrize("name", for_gate(ALL, lambda name: name in IN_GATE))
def test_commits_are_those_that_the_program_lists(name: str, graph_root: str) -> None:
    place_graph(name, graph_root)
    graph = og.open(graph_root, read_only=True)

    listed = graph.commits()

    expected = {
        commit["graph_commit_id"]: (
            commit["parent_commit_id"],
            commit["merged_parent_commit_id"],
            commit["actor_id"] or "",
            commit["created_at"],
        )
        for commit in commits(name)
    }
    listed_commits = {
        commit.commit_id: (
            commit.parent_id,
            commit.merged_parent_id,
            commit.actor,
            round(dt.datetime.fromisoformat(commit.created_at).timestamp() * 1e6),
        )
        for commit in listed
        if commit.branch is None
    }
    assert not expected or listed_commits == expected
    assert all(commit.tables for commit in listed)


def test_the_past_is_there_by_commit_and_by_branch(graph_root: str, tmp_path: Path) -> None:
    graph = og.open(place_graph("0.7.1/branches", graph_root), read_only=True)
    oldest, *_, newest = reversed(graph.commits())
    first_load = graph.commits()[-2]

    assert graph.at(oldest.commit_id).count("Thing") == 0
    assert exported_rows(graph.at(first_load.commit_id), tmp_path) == exports("0.7.1/plain")["main"]
    assert exported_rows(graph.at(newest.commit_id), tmp_path) == exports("0.7.1/branches")["main"]
    listed = {branch.name: branch for branch in graph.branches.list()}
    assert listed.keys() == {"main", "dev", "feature"}
    assert (listed["dev"].ahead, listed["feature"].ahead) == (1, 0)
    assert graph.diff(oldest.commit_id, first_load.commit_id).counts.inserted == 100
    (inserted,) = graph.blame("Thing", "t3")
    assert (inserted.op, inserted.commit.commit_id) == ("insert", first_load.commit_id)


def test_commands_answer_from_a_graph_that_nothing_has_upgraded(graph_root: str) -> None:
    place_graph("0.7.1/branches", graph_root)
    before = contents(graph_root)
    query = 'match { $t: Thing $t.slug = "t3" } return { $t.at }'

    for words in (
        ("status",),
        ("check",),
        ("commit", "list"),
        ("branch", "list"),
        ("recovery", "list"),
        ("schema", "show"),
        ("export",),
        ("diff", "main..dev"),
        ("query", "-e", query),
        ("query", "-e", query, "--branch", "dev"),
        ("query", "-e", query, "--at", "HEAD~3"),
    ):
        verb = 2 if words[0] in {"commit", "branch", "recovery", "schema"} else 1
        finished = run_command(*words[:verb], graph_root, *words[verb:])
        assert finished.returncode == 0, (words, finished.stderr)
        if words[0] == "query":
            assert "2024-04-04T10:11:12Z" in finished.stdout
    assert contents(graph_root) == before


@pytest.mark.parametrize("name", ["0.7.1/history", "0.7.1/evolved", "0.3.1/history"])
def test_the_feed_tells_the_changes_of_every_commit(name: str, graph_root: str) -> None:
    graph = og.open(place_graph(name, graph_root), read_only=True)

    counts = [
        table.counts for commit in graph.changes(start="beginning") for table in commit.tables
    ]

    rows = sum(count.inserted - count.deleted for count in counts)
    assert rows == len(exports(name)["main"])


@pytest.mark.parametrize("name", ["0.7.1/plain", "0.3.1/plain"])
@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("_schema.ir.json", '"nullable": true', '"nullable": false'),
        ("_schema.pg", "i32: I32?", "i32: I64?"),
        ("_schema.pg", "slug: String @key", "slug: String"),
        ("__schema_state.json", '"format_version": 1', '"format_version": 2'),
    ],
)
def test_a_model_that_is_not_that_of_the_text_is_refused(
    name: str, file: str, old: str, new: str, graph_root: str
) -> None:
    place_graph(name, graph_root)
    path = folder_of(graph_root, file)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))

    with pytest.raises(DamagedGraphError, match="schema"):
        og.open(graph_root, read_only=True)


def test_a_text_may_be_ordered_and_commented_anew(graph_root: str, tmp_path: Path) -> None:
    place_graph("0.7.1/plain", graph_root)
    path = folder_of(graph_root, "_schema.pg")
    text = path.read_text()
    plain = text[text.index("node Plain") : text.index("edge Links")]
    path.write_text(f"// Two types.\n{plain}\n{text.replace(plain, '')}")

    graph = og.open(graph_root, read_only=True)

    assert exported_rows(graph, tmp_path) == exports("0.7.1/plain")["main"]
