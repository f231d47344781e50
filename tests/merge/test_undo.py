"""A commit is reverted, and an earlier state restored, by a new commit; the history stays."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import ConflictError, InvalidInputError, MergeConflictError
from omnigraph_lake.graph import Graph
from tests.cli.commands import answer

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { name: String @key  age: I32?  city: String? }
edge Knows: Person -> Person
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Person": [{"name": name, "age": 1} for name in "abc"]})
    return graph


def ages(graph: Graph | og.GraphView) -> dict[str, int | None]:
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


def test_the_first_commit_is_refused(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match="created the graph"):
        graph.revert("HEAD~1")


LATER = """
node Human @rename_from("Person") {
  name: String @key
  age: I64?
  zip: I32 @backfill(7)
}
node Company { name: String @key }
edge Knows: Human -> Human | Company
edge WorksAt: Human -> Company { since: I32? }
"""


def rows(graph: Graph) -> dict[str, list[dict[str, object]]]:
    return {
        declared.name: sorted(graph.scan(declared.name).read_all().to_pylist(), key=str)
        for declared in graph.schema.catalog.tables().values()
    }


def test_restoring_brings_the_schema_back_with_its_rows(graph: Graph) -> None:
    graph.write(
        {"Person": [{"name": "a", "city": "Oslo"}], "Knows": [{"src": "a", "dst": "b"}]},
        mode="merge",
    )
    earlier, text = rows(graph), graph.schema.text
    graph.tags.create("good")
    graph.schema.apply(LATER)
    later_text = graph.schema.text
    graph.write(
        {
            "Human": [{"name": "a", "age": 1 << 40, "zip": 8}, {"name": "x", "zip": 1}],
            "Company": [{"name": "acme"}],
            "WorksAt": [{"src": "a", "dst": "acme"}],
        },
        mode="merge",
    )
    graph.delete({"Human": ["c"]})
    later = rows(graph)

    planned = graph.restore("good", dry_run=True)
    with pytest.raises(ConflictError, match=r"Human.zip \(3 rows\).*WorksAt \(1 row\)") as refused:
        graph.restore("good")
    restored = graph.restore("good", allow_data_loss=True)

    assert "--allow-data-loss" in str(refused.value)
    assert planned.lost == {"Human.zip": 3, "Company": 1, "WorksAt": 1} == restored.lost
    assert planned.tables == restored.tables
    assert restored.schema_hash == planned.schema_hash is not None
    assert rows(graph) == earlier
    assert graph.schema.text == text
    assert graph.diff("good", "HEAD").counts.total == 0
    assert graph.maintenance.check().ok
    assert graph.restore("good").commit_id is None

    graph.revert("HEAD", allow_data_loss=True)
    assert rows(graph) == later
    assert graph.schema.text == later_text
    assert graph.maintenance.check().ok


def test_numbers_of_a_schema_that_came_back_are_not_given_again(graph: Graph) -> None:
    graph.tags.create("good")
    with_zip = SCHEMA.replace("city: String?", "city: String?  zip: I32?")
    graph.schema.apply(with_zip)
    first = graph.schema.catalog.nodes["Person"].properties["zip"].number
    graph.restore("good")
    graph.schema.apply(with_zip)

    assert graph.schema.catalog.nodes["Person"].properties["zip"].number != first
    assert graph.maintenance.check().ok


def test_a_change_of_the_schema_is_reverted_and_later_rows_stay(graph: Graph) -> None:
    graph.write({"Person": [{"name": "a", "city": "Oslo"}]}, mode="merge")
    changed = graph.schema.apply(
        SCHEMA.replace("age: I32?  city: String?", "age: I64?  zip: I32 @backfill(7)")
    ).commit_id
    graph.write({"Person": [{"name": "b", "age": 5}, {"name": "n", "zip": 7}]}, mode="merge")
    assert changed is not None

    with pytest.raises(ConflictError, match=r"Person.zip \(1 row\)"):
        graph.revert(changed)
    graph.revert(changed, allow_data_loss=True)

    assert rows(graph)["Person"] == [
        {"id": "a", "name": "a", "age": 1, "city": "Oslo"},
        {"id": "b", "name": "b", "age": 5, "city": None},
        {"id": "c", "name": "c", "age": 1, "city": None},
        {"id": "n", "name": "n", "age": None, "city": None},
    ]
    assert graph.maintenance.check().ok


def test_what_the_earlier_type_does_not_hold_is_a_conflict(graph: Graph) -> None:
    changed = graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?")).commit_id
    set_age(graph, "a", 1 << 40)
    assert changed is not None

    with pytest.raises(MergeConflictError, match=r"makes Person.age I32, which does not hold.*: a"):
        graph.revert(changed, allow_data_loss=True)

    set_age(graph, "a", 3)
    graph.revert(changed)
    assert ages(graph) == {"a": 3, "b": 1, "c": 1}
    assert graph.scan("Person").schema.field("age").type == pa.int32()


def test_later_changes_of_the_schema_stay_or_conflict(graph: Graph) -> None:
    town = SCHEMA.replace("city: String?", 'town: String? @rename_from("city")')
    renamed = graph.schema.apply(town).commit_id
    graph.schema.apply(SCHEMA.replace("age: I32?  city", "age: I64?  town"))
    assert renamed is not None
    graph.revert(renamed)
    assert graph.schema.catalog.nodes["Person"].properties.keys() == {"name", "age", "city"}
    assert graph.scan("Person").schema.field("age").type == pa.int64()

    graph.schema.apply(
        SCHEMA.replace("age: I32?  city: String?", 'age: I64?  place: String? @rename_from("city")')
    )
    with pytest.raises(MergeConflictError, match="SM-101") as refused:
        graph.revert(renamed)
    assert "omnigraph schema apply" in str(refused.value)
    assert graph.maintenance.check().ok


def test_a_branch_is_merged_after_main_went_back(graph: Graph) -> None:
    graph.tags.create("good")
    graph.schema.apply(SCHEMA.replace("age: I32?", "age: I64?"))
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "b", "age": 2}]}, mode="merge")
    big = graph.branches.create("big")
    big.write({"Person": [{"name": "b", "age": 1 << 40}]}, mode="merge")
    set_age(graph, "a", 1 << 41)
    graph.restore("good")

    graph.merge("dev")
    with pytest.raises(MergeConflictError, match="does not hold what theirs changed in 1 row"):
        graph.merge("big")

    assert ages(graph) == {"a": 1, "b": 2, "c": 1}
    assert graph.maintenance.check().ok


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


def test_rows_are_not_brought_together_with_a_column_of_blobs(graph_root: str) -> None:
    first = "node D { name: String @key  data: Blob?  n: I32? }"
    graph = og.init(graph_root, schema=first)
    graph.write({"D": [{"name": "a", "data": b"xyz", "n": 1}, {"name": "b"}]})
    graph.tags.create("good")
    graph.schema.apply("node D { name: String @key  n: I32? }")

    with pytest.raises(InvalidInputError, match="data of node:D holds blobs and is new"):
        graph.restore("good")
    assert graph.scan("D").read_all().column("n").to_pylist() == [1, None]
    assert graph.maintenance.check().ok


def test_a_drop_that_was_taken_back_is_taken_back_again_without_effect(graph: Graph) -> None:
    dropped = graph.schema.apply(SCHEMA.replace("city: String?", "")).commit_id
    assert dropped is not None
    graph.revert(dropped)
    graph.schema.apply(graph.schema.text.replace("age: I32?", "age: I64?"))

    again = graph.revert(dropped)

    assert again.commit_id is None
    assert "city" in graph.schema.text
    assert ages(graph) == {"a": 1, "b": 1, "c": 1}


def test_edges_to_a_type_that_a_revert_removes_from_an_end_are_conflicts(graph_root: str) -> None:
    first = "node P { k: String @key }\nnode C { k: String @key }\nedge E: P -> P\n"
    graph = og.init(graph_root, schema=first)
    graph.write({"P": [{"k": "x"}], "C": [{"k": "x"}], "E": [{"src": "x", "dst": "x"}]})
    added = graph.schema.apply(first.replace("P -> P", "P -> P | C")).commit_id
    assert added is not None
    edge = {"id": "to C", "src": "x", "dst": "x", "dst_type": "C"}
    graph.write({"E": [edge]})

    with pytest.raises(MergeConflictError, match="allows no C at an end of E; ours has such edges"):
        graph.revert(added, allow_data_loss=True)
    graph.delete({"E": ["to C"]})
    graph.revert(added)

    assert graph.count("E") == 1
    assert "P | C" not in graph.schema.text
    assert graph.maintenance.check().ok


def test_fills_count_in_a_revert_although_the_way_back_is_not_recorded(graph: Graph) -> None:
    wider = SCHEMA.replace("age: I32?", "age: I64?")
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "d", "age": 4}]})
    dev.schema.apply(wider)
    merged = graph.merge("dev").commit_id
    assert merged is not None
    graph.schema.apply(wider.replace("city: String?", "city: String?  rank: I32 = 3"))

    graph.revert(merged)

    rows = graph.scan("Person", columns=["name", "rank"]).read_all().to_pylist()
    assert {row["name"]: row["rank"] for row in rows} == {"a": 3, "b": 3, "c": 3}
    assert "age: I32?" in graph.schema.text


def test_a_type_that_was_dropped_and_came_back_is_merged_with_its_columns(graph: Graph) -> None:
    first = f"{SCHEMA}node Firm {{ name: String @key }}\n"
    graph.schema.apply(first)
    graph.write({"Firm": [{"name": "f"}], "Knows": [{"id": "k", "src": "a", "dst": "b"}]})
    dev = graph.branches.create("dev")
    dev.schema.apply(first.replace("Person -> Person", "Person -> Person | Firm"))
    dev.write({"Knows": [{"id": "n", "src": "a", "dst": "f", "dst_type": "Firm"}]})
    dev.tags.create("good")
    dev.schema.apply(first.replace("edge Knows: Person -> Person", "").replace("city: String?", ""))
    dev.restore("good")
    graph.write({"Person": [{"name": "a", "city": "Oslo"}]}, mode="merge")

    graph.merge("dev")

    edges = graph.scan("Knows").read_all().sort_by("id").to_pylist()
    assert [(edge["id"], edge["dst"], edge["dst_type"]) for edge in edges] == [
        ("k", "b", "Person"),
        ("n", "f", "Firm"),
    ]
    assert graph.get("Person", "a") == {"id": "a", "name": "a", "age": 1, "city": "Oslo"}
    assert graph.maintenance.check().ok


def test_branches_whose_schemas_would_conflict_are_named_before_main_goes_back(
    graph: Graph,
) -> None:
    graph.tags.create("good")
    wider = SCHEMA.replace("city: String?", "city: String?  rank: I32?")
    graph.schema.apply(wider)
    dev = graph.branches.create("dev")
    dev.schema.apply(wider.replace("rank: I32?", "rank: I64?"))
    graph.branches.create("same")

    previewed = graph.restore("good", dry_run=True)
    with pytest.raises(ConflictError, match=r"dev \(conflict SM-103.*\)\; nothing was written"):
        graph.restore("good")
    restored = graph.restore("good", allow_diverged=True)

    outlooks = {branch.branch: branch.outlook[:15] for branch in previewed.diverged}
    assert outlooks == {"dev": "conflict SM-103", "same": "merges cleanly"}
    assert restored.diverged == previewed.diverged
    assert "rank" not in graph.schema.text
