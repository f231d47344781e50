"""A commit is reverted, and an earlier state restored, by a new commit; the history stays."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest

import omnigraph
from omnigraph.errors import ConflictError, InvalidInputError, MergeConflictError
from omnigraph.graph import Graph
from tests.cli.commands import answer

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = omnigraph.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": name, "age": 1} for name in "abc"]})
    return graph


def ages(graph: Graph | omnigraph.GraphView) -> dict[str, int | None]:
    rows = graph.scan("Person", columns=["name", "age"]).read_all().to_pylist()
    return {row["name"]: row["age"] for row in rows}


def set_age(graph: Graph, name: str, age: int) -> str:
    commit_id = graph.write({"Person": [{"name": name, "age": age}]}, mode="merge").commit_id
    assert commit_id is not None
    return commit_id


def test_a_revert_takes_back_one_commit_and_keeps_what_came_after(graph: Graph) -> None:
    bad = graph.write(
        {"Person": [{"name": "a", "age": -1}, {"name": "x"}], "Knows": [{"src": "x", "dst": "a"}]},
        mode="merge",
    ).commit_id
    assert bad is not None
    graph.write({"Person": [{"name": "a", "city": "Oslo"}, {"name": "d"}]}, mode="merge")
    before = len(graph.commits())

    previewed = graph.revert(bad[:14], dry_run=True)
    reverted = graph.revert(bad, actor="ann", operation_id="undo 1")
    again = graph.revert(bad, operation_id="undo 1")

    assert ages(graph) == {"a": 1, "b": 1, "c": 1, "d": None}
    assert graph.get("Person", "a") == {"id": "a", "name": "a", "age": 1, "city": "Oslo"}
    assert graph.count("Knows") == 0
    assert previewed.commit_id is None
    assert previewed.tables == reverted.tables
    assert again.commit_id == reverted.commit_id
    newest = graph.commits()[0]
    assert (newest.actor, newest.message) == ("ann", f"Revert commit {bad}")
    assert newest.merged_parent_id is None
    assert len(graph.commits()) == before + 1
    graph.revert("HEAD")
    assert ages(graph)["x"] is None
    assert graph.count("Knows") == 1
    assert graph.maintenance.check().ok


def test_conflicts_with_later_commits_and_broken_rules_are_reported(graph: Graph) -> None:
    first = set_age(graph, "a", 2)
    set_age(graph, "a", 3)
    inserted = graph.write({"Person": [{"name": "n"}]}).commit_id
    assert inserted is not None
    graph.write({"Knows": [{"src": "n", "dst": "b"}]})
    commits = len(graph.commits())

    with pytest.raises(MergeConflictError) as clash:
        graph.revert(first)
    with pytest.raises(MergeConflictError, match="inverse of commit") as orphaned:
        graph.revert(inserted)

    (conflict,) = cast("pa.Table", clash.value.conflicts).to_pylist()
    assert (conflict["id"], conflict["column"]) == ("a", "age")
    assert (conflict["base"], conflict["ours"], conflict["theirs"]) == ("2", "3", "1")
    assert len(cast("pa.Table", orphaned.value.conflicts)) == 1
    assert len(graph.commits()) == commits
    assert graph.revert(first, resolve="ours").commit_id is None
    assert graph.revert(first, resolve="theirs").commit_id is not None
    assert ages(graph)["a"] == 1


def test_a_merge_is_taken_back_to_its_first_parent(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    set_age(dev, "b", 7)
    set_age(graph, "a", 5)
    merged = graph.merge("dev").commit_id
    assert merged is not None

    graph.revert(merged)

    assert ages(graph) == {"a": 5, "b": 1, "c": 1}
    dev.revert(set_age(dev, "c", 8))
    assert ages(dev) == {"a": 1, "b": 7, "c": 1}
    assert ages(graph) == {"a": 5, "b": 1, "c": 1}


def test_restoring_makes_the_head_equal_to_a_state_and_keeps_the_history(graph: Graph) -> None:
    graph.tags.create("good")
    graph.write({"Person": [{"name": "x"}], "Knows": [{"src": "x", "dst": "a"}]})
    graph.delete({"Person": ["b"]})
    branch = graph.branches.create("dev")
    commits = len(graph.commits())

    planned = answer("branch", "restore", graph.root, "good", "--dry-run")
    restored = graph.restore("good")

    assert planned["tables"]["node:Person"] == {"inserted": 1, "updated": 0, "deleted": 1}
    assert ages(graph) == {"a": 1, "b": 1, "c": 1}
    assert graph.count("Knows") == 0
    assert graph.diff("good", "HEAD").counts.total == 0
    assert len(graph.commits()) == commits + 1
    assert graph.restore("good").commit_id is None
    assert (graph.commits()[0].message or "").startswith("Restore the state of commit")
    assert restored.tables["edge:Knows"].deleted == 1
    branch.restore("main")
    assert ages(branch) == ages(graph)
    assert answer("revert", graph.root, "HEAD")["tables"]["node:Person"]["deleted"] == 1
    assert ages(graph).keys() == {"a", "c", "x"}
    assert graph.maintenance.check().ok


def test_other_schemas_and_the_first_commit_are_refused(graph: Graph) -> None:
    changed = set_age(graph, "a", 2)
    graph.schema.apply(SCHEMA.replace("city: String?", "city: String?  zip: String?"))

    with pytest.raises(ConflictError, match="the schema has changed"):
        graph.restore(changed)
    with pytest.raises(ConflictError, match="the schema has changed"):
        graph.revert("HEAD")
    with pytest.raises(InvalidInputError, match="created the graph"):
        graph.revert("HEAD~3")


def test_a_commit_is_reverted_after_changes_of_the_schema(graph: Graph) -> None:
    changed = set_age(graph, "a", 2)
    deleted = graph.delete({"Person": ["b"]}).commit_id
    later = SCHEMA.replace("city: String?", 'town: String? @rename_from("city")  zip: I32 = 7')
    graph.schema.apply(later.replace("age: I32", "age: I64"))
    graph.write({"Person": [{"name": "a", "zip": 8}]}, mode="merge")

    planned = graph.revert(changed, dry_run=True)
    assert graph.revert(changed).tables == planned.tables
    assert deleted is not None
    graph.revert(deleted)

    rows = {row["name"]: row for row in graph.scan("Person").read_all().to_pylist()}
    assert {name: (row["age"], row["zip"]) for name, row in rows.items()} == {
        "a": (1, 8),
        "b": (1, 7),
        "c": (1, 7),
    }
    assert graph.maintenance.check().ok


def test_what_a_commit_changed_in_a_dropped_property_is_a_conflict(graph: Graph) -> None:
    moved = graph.write({"Person": [{"name": "a", "city": "x"}]}, mode="merge").commit_id
    graph.schema.apply(SCHEMA.replace("city: String?", ""))

    assert moved is not None
    with pytest.raises(MergeConflictError, match="city"):
        graph.revert(moved)
    assert ages(graph) == {"a": 1, "b": 1, "c": 1}
