"""Loads whose frames have new columns: the schema and the rows change in one commit, or neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions, Mode
from omnigraph_lake.errors import ConflictError, InvalidInputError
from omnigraph_lake.failpoints import Action, Armed, FailpointReached, arm, disarm_all
from omnigraph_lake.graph import Graph
from tests.behind import meanwhile
from tests.gate.selection import for_gate

pytestmark = pytest.mark.behaviour

SCHEMA = """node Person { name: String @key  age: I32? } // people
edge Knows: Person -> Person
"""
WIDENED = """node Person {
  name: String @key
  age: I32?
  city: String?
  scores: [F64]?
}
edge Knows: Person -> Person { since: Date? }
"""
MERGING = LoadOptions(merge_schema=True)
PEOPLE = pa.table(
    {
        "name": ["p1", "new"],
        "city": ["Ulm", None],
        "scores": pa.array([None, [0.5]], pa.list_(pa.float64())),
    }
)
EDGES = pa.table({"src": ["new"], "dst": ["p1"], "since": pa.array([7], pa.date32())})


@pytest.fixture
def graph(graph_root: str) -> Iterator[Graph]:
    yield start(graph_root)
    disarm_all()


def start(root: str) -> Graph:
    graph = og.init(root, schema=SCHEMA)
    graph.write({"Person": [{"name": f"p{n}", "age": n} for n in range(3)]})
    return graph


def rows(graph: Graph, type_name: str) -> list[dict[str, object]]:
    table = graph.scan(type_name).read_all()
    without_ids = table if type_name == "Person" else table.drop_columns(["id"])
    return sorted(without_ids.to_pylist(), key=str)


@pytest.mark.parametrize(
    "mode",
    for_gate(["append", "merge", "replace", "overwrite"], {"merge", "overwrite"}.__contains__),
)
def test_one_commit_does_what_a_schema_change_and_a_load_do(
    graph: Graph, tmp_path_factory: pytest.TempPathFactory, mode: Mode
) -> None:
    people = PEOPLE.slice(1) if mode == "append" else PEOPLE
    frames = {"Person": people, "Knows": EDGES}
    changed_first = start(str(tmp_path_factory.mktemp("other") / "graph"))
    changed_first.schema.apply(WIDENED)
    changed_first.load(frames, mode=mode)
    before = graph.commits()[0].commit_id

    graph.load(frames, mode=mode, options=MERGING)

    assert len(graph.commits()) == 3
    for type_name in ("Person", "Knows"):
        assert rows(graph, type_name) == rows(changed_first, type_name)
    assert graph.at(before).scan("Person").schema.names == ["id", "name", "age"]
    assert graph.maintenance.check().ok


def test_a_load_without_new_columns_leaves_the_schema_as_it_is(graph: Graph) -> None:
    graph.load({"Person": pa.table({"name": ["a"]})}, options=MERGING)

    assert graph.schema.text == SCHEMA


def test_a_widened_table_takes_more_rows_and_columns(graph: Graph) -> None:
    graph.load({"Person": PEOPLE}, mode="merge", options=MERGING)
    graph.load({"Person": pa.table({"name": ["x"], "rank": [1]})}, options=MERGING)
    graph.write({"Person": [{"name": "p0", "city": "Bonn"}]}, mode="merge")
    graph.maintenance.optimize()

    by_name = {row["name"]: row for row in rows(graph, "Person")}
    assert by_name["p0"]["city"] == "Bonn"
    assert by_name["p1"]["city"] == "Ulm"
    assert by_name["new"]["scores"] == [0.5]
    assert by_name["x"]["rank"] == 1
    assert graph.maintenance.check().ok


def test_a_frame_without_rows_brings_its_columns(graph: Graph) -> None:
    graph.load({"Person": PEOPLE.slice(0, 0), "Knows": EDGES.slice(0, 0)}, options=MERGING)

    assert graph.scan("Person").schema.names == ["id", "name", "age", "city", "scores"]
    assert graph.scan("Knows").schema.names == ["id", "src", "dst", "since"]
    assert graph.count("Person") == 3
    assert graph.maintenance.check().ok


def test_a_repeated_operation_changes_nothing(graph: Graph) -> None:
    frames = {"Knows": EDGES, "Person": PEOPLE.slice(1)}
    first, second = (graph.load(frames, options=MERGING, operation_id="monday") for _ in range(2))

    assert (first.repeated, second.repeated) == (False, True)
    assert graph.count("Knows") == 1
    assert len(graph.commits()) == 3


def test_changes_of_the_commit_have_the_new_rows(graph: Graph) -> None:
    before = graph.commits()[0].commit_id
    graph.load({"Person": PEOPLE}, mode="merge", options=MERGING)

    diff = graph.diff(before)

    counts = diff.tables["node:Person"].counts
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 0)


STEPS = [
    "schema.post_contract",
    "load.gathered",
    "mutation.post_stage",
    "schema.post_columns",
    "mutation.post_direct_commit",
    "publish.pre_manifest",
    "publish.post_manifest",
    "schema.pre_promote",
]


@pytest.mark.parametrize(
    ("step", "mode"),
    for_gate(
        [(step, mode) for step in STEPS for mode in ("append", "merge")],
        lambda case: case in {("schema.post_columns", "merge"), ("publish.pre_manifest", "append")},
    ),
)
def test_a_load_that_fails_anywhere_is_there_as_a_whole_or_not_at_all(
    graph: Graph, step: str, mode: Mode
) -> None:
    people = PEOPLE.slice(1) if mode == "append" else PEOPLE
    arm(step, Armed(action=Action.ERROR))
    with pytest.raises(FailpointReached):
        graph.load({"Person": people}, mode=mode, options=MERGING, operation_id="monday")
    disarm_all()

    reopened = og.open(graph.root)
    has_columns = "city" in reopened.scan("Person").schema.names
    has_rows = "new" in {row["name"] for row in rows(reopened, "Person")}
    assert has_columns == has_rows
    assert ("city" in reopened.schema.text) == has_columns

    # Another writer is not kept from its work, and puts no row on columns that are not published.
    reopened.write({"Person": [{"name": "other"}]})
    assert ("city" in reopened.scan("Person").schema.names) == has_columns
    reopened.load({"Person": people}, mode=mode, options=MERGING, operation_id="monday")
    by_name = {row["name"]: row for row in rows(reopened, "Person")}
    assert by_name["new"]["scores"] == [0.5]
    assert len(by_name) == 5
    assert reopened.maintenance.check().ok


REFUSED = [
    ({"town": ["x"], "toWn": ["x"]}, "'toWn', which differs from town in case only"),
    ({"Age": [1]}, "'Age', which differs from age in case only"),
    ({"ID": ["x"]}, "'ID', which differs from id in case only"),
    ({"two words": ["x"]}, "'two words', which cannot be the name of a property"),
    ({"_rowid": [1]}, "the columns of the frame cannot become properties"),
    ({"place": [{"x": 1}]}, "'place', which is struct<x: int64>, and no property has this type"),
    ({"photo": [b"x"]}, "'photo', which is binary, and no property has this type"),
    ({"nothing": [None]}, "'nothing', which is null, and no property has this type"),
]


@pytest.mark.parametrize(("columns", "said"), REFUSED)
def test_columns_that_cannot_be_properties_are_refused(
    graph: Graph, columns: dict[str, list[object]], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        graph.load({"Person": pa.table({"name": ["a"], **columns})}, options=MERGING)

    assert len(graph.commits()) == 2


def test_files_and_loads_through_a_branch_are_refused(graph: Graph, tmp_path: Path) -> None:
    source = tmp_path / "Person.csv"
    source.write_text("name,city\na,Ulm\n")
    with pytest.raises(InvalidInputError, match="merge_schema takes frames"):
        graph.load(source, options=MERGING)


def test_a_load_through_a_branch_brings_its_columns(graph: Graph) -> None:
    graph.write({"Person": [{"name": "early"}]})
    options = LoadOptions(merge_schema=True, branch="dev", into="main")

    report = graph.load({"Person": PEOPLE}, mode="merge", options=options)

    assert report.merged is not None
    early = graph.get("Person", "early")
    assert early is not None
    assert early["city"] is None
    assert graph.diff("dev", "main").counts.total == 0
    assert graph.maintenance.check().ok


def test_main_is_widened_beside_a_branch_that_merges_cleanly(graph: Graph) -> None:
    graph.branches.create("dev")
    dev = graph.checkout("dev")
    dev.load({"Person": PEOPLE}, mode="merge", options=MERGING)

    assert "city" in dev.scan("Person").schema.names
    assert "city" not in graph.scan("Person").schema.names
    assert dev.maintenance.check().ok
    planned = graph.load({"Person": PEOPLE}, mode="merge", dry_run=True, options=MERGING)
    report = graph.load({"Person": PEOPLE}, mode="merge", options=MERGING)

    assert report.diverged == planned.diverged
    assert [str(branch) for branch in report.diverged] == [
        "dev: merges cleanly (1 unmerged commit)"
    ]
    graph.merge("dev")
    assert graph.maintenance.check().ok


def test_main_is_not_widened_to_a_schema_that_a_branch_conflicts_with(graph: Graph) -> None:
    dev = graph.branches.create("dev")
    dev.schema.apply(SCHEMA.replace("I32?", "I32?  city: [I32]?"))
    commits = len(graph.commits())

    for dry_run in (True, False):
        with pytest.raises(ConflictError, match=r"dev \(conflict SM-111: both add Person.city"):
            graph.load({"Person": PEOPLE}, mode="merge", dry_run=dry_run, options=MERGING)

    assert len(graph.commits()) == commits
    assert "city" not in graph.scan("Person").schema.names


RIVALS = ["write", "schema", "load"]


@pytest.mark.parametrize("rival", RIVALS)
def test_a_load_whose_rival_is_faster_is_staged_again_or_refused(graph: Graph, rival: str) -> None:
    other = og.open(graph.root)

    def publish_first() -> None:
        match rival:
            case "write":
                other.write({"Person": [{"name": "rival"}]})
            case "schema":
                other.schema.apply(SCHEMA.replace("I32?", "I32?  mood: String?"))
            case _:
                other.load({"Person": PEOPLE}, mode="merge", options=MERGING)

    with meanwhile("mutation.pre_direct_commit", publish_first):
        if rival == "write":
            graph.load({"Person": PEOPLE}, mode="merge", options=MERGING)
        else:
            with pytest.raises(ConflictError, match="schema"):
                graph.load({"Person": PEOPLE}, mode="merge", options=MERGING)

    by_name = {row["name"]: row for row in rows(graph, "Person")}
    assert by_name["p1"].get("city") == (None if rival == "schema" else "Ulm")
    assert len(by_name) == {"write": 5, "schema": 3, "load": 4}[rival]
    assert len(graph.commits()) == (4 if rival == "write" else 3)
    assert graph.maintenance.check().ok
