"""People find, read and draw commits by short names."""

from __future__ import annotations

import pytest

import omnigraph_lake as og
from omnigraph_lake.api.commit_log import show_commit
from omnigraph_lake.commit.history_compaction import compact_commits
from omnigraph_lake.display.lanes import draw_lanes
from omnigraph_lake.errors import InvalidInputError, NotFoundError
from omnigraph_lake.graph import Graph
from tests.cli.commands import answer, run

pytestmark = pytest.mark.unit

SCHEMA = "node Person { name: String @key  age: I32? }"


@pytest.fixture
def graph(graph_root: str) -> Graph:
    """Two lines that were merged: begin - one - two - merge, and one - dev."""
    graph = og.init(graph_root, schema=SCHEMA, message="begin")
    put(graph, "one")
    dev = graph.branches.create("dev")
    put(dev, "dev")
    put(graph, "two")
    graph.merge("dev", message="merge")
    graph.tags.create("release")
    put(graph, "three")
    return graph


def put(graph: Graph, name: str) -> None:
    graph.write({"Person": [{"name": name}]}, message=name, actor="ann")


def people(graph: og.GraphView) -> list[str]:
    return sorted(graph.scan("Person", columns=["name"]).read_all().column(0).to_pylist())


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("HEAD", "three"),
        ("HEAD~", "merge"),
        ("HEAD~1", "merge"),
        ("HEAD~1~1", "two"),
        ("main~3", "one"),
        ("release~1", "two"),
        ("dev~1", "one"),
        ("dev~2", "begin"),
        ("HEAD~0", "three"),
    ],
)
def test_references_count_back_by_first_parents(graph: Graph, reference: str, message: str) -> None:
    commit = graph.commit(reference)

    assert commit.message == message
    assert graph.at(reference).commit_id == commit.commit_id
    assert graph.commit(f"{commit.commit_id}~0") == commit


def test_head_is_that_of_the_branch_and_old_commits_are_found_in_the_history(graph: Graph) -> None:
    compact_commits(graph._objects.root, graph._handle.manifest())
    dev = graph.checkout("dev")

    assert dev.commit("HEAD").message == "dev"
    assert people(graph.at("main~3")) == ["one"]
    assert people(graph.at("release")) == ["dev", "one", "two"]
    assert graph.diff("dev~1", "HEAD").counts.inserted == 3
    assert [commit.message for commit in graph.changes(start="HEAD~2")] == ["merge", "three"]
    bump = 'query q() { insert Person { name: "four" } }'
    with pytest.raises(og.ConflictError):
        graph.mutate(bump, expect_head="HEAD~1")
    graph.mutate(bump, expect_head=graph.commit("HEAD").commit_id[:12].lower())


def test_what_no_commit_has_and_what_several_have_is_refused(graph: Graph) -> None:
    with pytest.raises(NotFoundError, match=r"main~5.*has 4 commits before it"):
        graph.at("main~5")
    with pytest.raises(NotFoundError):
        graph.at("nope~1")
    with pytest.raises(InvalidInputError, match=r"is the start of 6 commits: 0.*, 0"):
        graph.commit("0")
    with pytest.raises(InvalidInputError, match="reserved"):
        graph.branches.create("HEAD")


def test_the_log_and_a_commit_are_shown(graph: Graph) -> None:
    drawn = run("log", graph.root, "--graph").stdout.splitlines()
    listed = run("log", graph.root, "--branch", "dev").stdout.splitlines()
    shown = run("commit", "show", graph.root, "HEAD~1").stdout
    document = answer("commit", "show", graph.root, "release")

    marks = [line.partition("  ")[0] for line in drawn]
    assert marks == ["●", "●", "├─╮", "● │", "│ ●", "├─╯", "●", "●"]
    assert drawn[0].endswith("three")
    assert "[main]" in drawn[0]
    assert "[release]" in drawn[1]
    assert [line.split()[-1] for line in listed] == ["dev", "one", "begin"]
    assert not any("●" in line for line in listed)
    assert "parents" in shown
    assert "node:Person         1        0        0" in shown
    assert document["changes"] == {"node:Person": {"inserted": 1, "updated": 0, "deleted": 0}}
    assert [commit.message for commit in graph.log(limit=2)] == ["three", "merge"]
    assert "●" in str(graph.log())
    assert show_commit(graph, "main~4").changes == {}


def test_branches_are_listed_with_their_distance_and_newest_commit(graph: Graph) -> None:
    put(graph.checkout("dev"), "more")

    main, dev = graph.branches.list()

    assert (main.ahead, main.behind, main.message) == (0, 0, "three")
    assert (dev.ahead, dev.behind, dev.actor, dev.message) == (1, 3, "ann", "more")
    assert "ahead" in str(graph.branches.list())


def test_lanes_join_and_divide() -> None:
    history = [
        *[("h3", ["b"]), ("h2", ["m"]), ("h1", ["x"]), ("m", ["b", "x"])],
        *[("x", ["b"]), ("b", ["gone"]), ("alone", [])],
    ]

    lines = draw_lanes(history)

    assert [line.drawing for line in lines] == [
        *["●", "│ ●", "│ │ ●", "│ ● │", "│ ├─┤", "│ │ ●", "├─╯ │", "├───╯", "●", "●"],
    ]
    assert [line.commit_id for line in lines if line.commit_id] == [name for name, _ in history]


def test_blame_names_the_commit_that_changed_a_row_also_through_merges(graph: Graph) -> None:
    graph.write({"Person": [{"name": "dev", "age": 3}]}, mode="merge", message="age", actor="bob")
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I32?  city: String?"))
    graph.delete({"Person": ["one"]}, message="gone")

    dev, gone = graph.blame("Person", "dev"), graph.blame("Person", id="one")
    first = graph.blame("Person", "dev", limit=1)
    shown = run("blame", graph.root, "Person", "dev").stdout
    whole = run("diff", graph.root, "HEAD~3", "HEAD~2", "--whole-rows").stdout
    document = answer("blame", graph.root, "Person", "one")

    assert [(change.op, change.commit.message) for change in dev] == [
        ("update", "age"),
        ("insert", "dev"),
    ]
    assert dev.changes[0].changed == ("age",)
    assert (dev.changes[1].commit.branch, dev.ended) == ("dev", None)
    assert [change.op for change in gone] == ["delete", "insert"]
    assert [change.commit.message for change in gone] == ["gone", "one"]
    assert (len(first), first.ended) == (1, "there are older changes; the limit is 1")
    assert "    age null -> 3\n" in shown
    assert "  - dev\n  + dev: age 3\n" in whole
    assert [change["op"] for change in document["changes"]] == ["delete", "insert"]
    assert graph.blame("Person", "never").changes == ()
    graph.maintenance.cleanup(keep_versions=1, dry_run=False, allow_unsafe_keep=True)
    assert graph.blame("Person", "two").ended == "older states are no longer kept"
