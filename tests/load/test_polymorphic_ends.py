"""Edges between several types of nodes: loads, writes and deletes against a plain model of them."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.diff.change_feed import BaselineTable
from omnigraph_lake.errors import (
    InvalidInputError,
    LoadRefusedError,
    MergeConflictError,
    SchemaRefusedError,
    ValidationFailedError,
)
from omnigraph_lake.evolution.plan.plan import StepKind
from omnigraph_lake.graph import Graph
from omnigraph_lake.load import load as load_operation
from omnigraph_lake.load import pipeline
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.validation import keyed_findings
from tests.drawing import seeds
from tests.runner.random_runner import RandomRunner

SCHEMA = """
interface Named { name: String? }
node Person implements Named { email: String @key }
node Company implements Named {}
node Document {}
edge Mentions: Document -> Person | Company @card(0..3) {
    note: String? @unique(src, dst)
}
edge Likes: Named -> Named | Document
"""
ENDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Mentions": (("Document",), ("Person", "Company")),
    "Likes": (("Person", "Company"), ("Person", "Company", "Document")),
}
Node = tuple[str, str]
QUARANTINE = LoadOptions(max_rejected=1_000_000)


@dataclass(slots=True)
class Model:
    """Nodes and edges as a dictionary has them; edges by type and id."""

    nodes: set[Node] = field(default_factory=set)
    edges: dict[str, dict[str, tuple[Node, Node]]] = field(
        default_factory=lambda: {name: {} for name in ENDS}
    )

    def load(self, name: str, records: list[tuple[str, Node, Node]]) -> Counter[str]:
        """Append edges that name their types rightly; what is rejected, by reason."""
        rejected: Counter[str] = Counter()
        kept = []
        for edge_id, source, target in records:
            if source[0] not in ENDS[name][0] or target[0] not in ENDS[name][1]:
                rejected["endpoint_type"] += 1
            elif not {source, target} <= self.nodes:
                rejected["missing_endpoint"] += 1
            else:
                kept.append((edge_id, source, target))
        distinct = {edge[0]: edge for edge in reversed(kept) if edge[0] not in self.edges[name]}
        rejected["id"] += len(kept) - len(distinct)
        pairs = set(self.edges[name].values())
        counts = Counter(source for source, _ in pairs)
        rest = []
        for edge_id, source, target in filter(lambda edge: edge is distinct.get(edge[0]), kept):
            if name == "Mentions" and (source, target) in pairs:
                rejected["not_unique"] += 1
            else:
                rest.append((edge_id, source, target))
            pairs.add((source, target))
        for edge_id, source, target in rest:
            if name == "Mentions" and counts[source] >= 3:
                rejected["too_many_edges"] += 1
            else:
                counts[source] += 1
                self.edges[name][edge_id] = (source, target)
        return rejected

    def delete(self, node: Node) -> None:
        self.nodes.discard(node)
        for edges in self.edges.values():
            for edge_id in [one for one, ends in edges.items() if node in ends]:
                del edges[edge_id]


def stored(graph: Graph) -> dict[str, dict[str, tuple[Node, Node]]]:
    rows: dict[str, dict[str, tuple[Node, Node]]] = {}
    for name in ENDS:
        rows[name] = {
            row["id"]: (
                (row.get("src_type", "Document"), row["src"]),
                (row["dst_type"], row["dst"]),
            )
            for row in graph.scan(name).read_all().to_pylist()
        }
    return rows


def node_record(node: Node) -> dict[str, Any]:
    key = "email" if node[0] == "Person" else "id"
    return {"type": node[0], "data": {key: node[1]}}


def edge_record(
    generator: random.Random, name: str, edge_id: str, source: Node, target: Node
) -> dict[str, Any]:
    """The record of an edge, its types said in one of the two ways."""
    record: dict[str, Any] = {"edge": name, "data": {"id": edge_id}}
    for word, end, types in (("from", source, ENDS[name][0]), ("to", target, ENDS[name][1])):
        if len(types) == 1:
            record[word] = end[1]
        elif generator.random() < 0.5:
            record[word] = {"type": end[0], "id": end[1]}
        else:
            record |= {word: end[1], f"{word}_type": end[0]}
    return record


def write_lines(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def reasons(rejected: Counter[str]) -> Counter[str]:
    """Ids that exist and ids that are repeated are one reason to the model."""
    merged: Counter[str] = Counter()
    for reason, count in rejected.items():
        merged["id" if reason in {"id_exists", "duplicate_id"} else reason] += count
    return +merged


@pytest.mark.random
@pytest.mark.parametrize("seed", seeds("ends", 2))
def test_random_loads_and_deletes_leave_what_the_model_has(
    seed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = random.Random(seed)
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    way = generator.randrange(4)
    if way:
        runner = RandomRunner(way, root=parse_root(graph.root) if way == 1 else None)
        monkeypatch.setattr(keyed_findings, "FINDINGS_SENT_MAX", way - 1)
        monkeypatch.setattr(load_operation, "ThreadRunner", lambda _: runner)
        monkeypatch.setattr(pipeline, "_EDITED_ROWS_MAX", 3)
    model = Model()
    ids = [f"n{number}" for number in range(5)]
    every = [(kind, node_id) for kind in ("Person", "Company", "Document") for node_id in ids]
    for step in range(3):
        nodes = [node for node in every if node not in model.nodes and generator.random() < 0.6]
        model.nodes |= set(nodes)
        edges = {
            name: [
                (
                    f"e{generator.randrange(40)}",
                    ("Document", generator.choice(ids))
                    if name == "Mentions"
                    else generator.choice(every),
                    generator.choice(every),
                )
                for _ in range(generator.randrange(12))
            ]
            for name in ENDS
        }
        records = [node_record(node) for node in nodes]
        expected: Counter[str] = Counter()
        for name, of_type in edges.items():
            expected += model.load(name, of_type)
            records += [edge_record(generator, name, *edge) for edge in of_type]
        path = write_lines(tmp_path / f"{step}.jsonl", records)
        if records:
            report = graph.load(path, on_error="quarantine", options=QUARANTINE)
            assert reasons(Counter(one.reason for one in report.rejected)) == expected
        assert stored(graph) == model.edges
        for node in [node for node in sorted(model.nodes) if generator.random() < 0.2]:
            model.delete(node)
            key = "email" if node[0] == "Person" else "id"
            graph.mutate(f'query q() {{ delete {node[0]} where {key} = "{node[1]}" }}')
        assert stored(graph) == model.edges
    assert graph.maintenance.check().ok
    assert stored(copied(graph, tmp_path)) == model.edges


def copied(graph: Graph, folder: Path) -> Graph:
    """Another graph, loaded from an export in lines, which goes through Parquet files."""
    graph.export(str(folder / "all.jsonl"))
    lines = og.init(str(folder / "lines"), schema=SCHEMA)
    lines.load(str(folder / "all.jsonl"))
    lines.export(str(folder / "files"), format="parquet")
    files = og.init(str(folder / "parquet"), schema=SCHEMA)
    files.load(str(folder / "files"))
    return files


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """One id in three types, and an edge to two of them."""
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    graph.write(
        {
            "Person": [{"email": "x"}],
            "Company": [{"id": "x"}, {"id": "y"}],
            "Document": [{"id": "x"}],
            "Mentions": [
                {"id": "m1", "src": "x", "dst": "x", "dst_type": "Person"},
                {"id": "m2", "src": "x", "dst": "x", "dst_type": "Company"},
            ],
        }
    )
    return graph


def refused(graph: Graph, row: dict[str, Any], mode: Any = "append") -> str:
    with pytest.raises(ValidationFailedError) as caught:
        graph.write({"Mentions": [row]}, mode=mode)
    return str(caught.value)


@pytest.mark.unit
def test_an_end_names_its_type(graph: Graph) -> None:
    edge = {"id": "m3", "src": "x", "dst": "y"}

    assert "found nothing, expected the type of dst: one of Person, Company" in refused(graph, edge)
    assert "found 'Persn', expected" in refused(graph, edge | {"dst_type": "Persn"})
    assert "found 'y', expected the id of a Person that exists" in refused(
        graph, edge | {"dst_type": "Person"}
    )
    graph.write({"Mentions": [edge | {"dst_type": "Company"}]})
    assert graph.get("Mentions", id="m3") == edge | {"dst_type": "Company", "note": None}


@pytest.mark.unit
def test_a_merge_never_keeps_the_type_of_one_record_and_the_id_of_another(graph: Graph) -> None:
    graph.write({"Mentions": [{"id": "m2", "note": "kept"}]}, mode="merge")
    row = {"id": "m2", "src": "x", "dst": "x", "dst_type": "Company", "note": "kept"}

    assert graph.get("Mentions", id="m2") == row
    assert "expected the type of dst" in refused(graph, {"id": "m2", "dst": "y"}, "merge")
    assert "missing_required" in refused(graph, {"id": "m2", "dst_type": "Person"}, "merge")
    graph.write({"Mentions": [{"id": "m2", "dst": "y", "dst_type": "Company"}]}, mode="merge")
    assert graph.get("Mentions", id="m2") == row | {"dst": "y"}


@pytest.mark.unit
def test_pairs_and_counts_are_those_of_types_and_ids(graph: Graph) -> None:
    assert "not_unique" in refused(
        graph, {"id": "m3", "src": "x", "dst": "x", "dst_type": "Company"}
    )
    graph.write({"Mentions": [{"src": "x", "dst": "y", "dst_type": "Company"}]})
    graph.write({"Person": [{"email": "y"}]})
    assert "too_many_edges" in refused(graph, {"src": "x", "dst": "y", "dst_type": "Person"})


@pytest.mark.unit
def test_an_overwrite_leaves_edges_to_equal_ids_of_another_type(graph: Graph) -> None:
    with pytest.raises(ValidationFailedError, match="missing_endpoint"):
        graph.write({"Company": [{"id": "z"}]}, mode="overwrite")
    with pytest.raises(ValidationFailedError, match="missing_endpoint"):
        graph.write({"Person": [{"email": "z"}]}, mode="overwrite")
    graph.mutate('query q() { delete Company where id = "x" }')
    graph.write({"Company": [{"id": "z"}]}, mode="overwrite")

    assert [row["id"] for row in graph.scan("Mentions").read_all().to_pylist()] == ["m1"]
    assert graph.maintenance.check().ok


@pytest.mark.behaviour
def test_very_frequent_ends_are_told_apart_by_their_type(tmp_path: Path) -> None:
    """Rows of a frequent key are sent as groups, and listed again by their key."""
    graph = og.init(str(tmp_path / "graph"), schema=SCHEMA)
    edges = [
        {
            "edge": "Likes",
            "from": {"type": "Company", "id": "x"},
            "to": {"type": ("Person", "Company")[number % 2], "id": "x"},
            "data": {"id": f"e{number}"},
        }
        for number in range(600)
    ]
    path = write_lines(tmp_path / "in.jsonl", [node_record(("Company", "x")), *edges])

    report = graph.load(path, on_error="quarantine", options=QUARANTINE)

    assert report.faults == 300
    assert {row["dst_type"] for row in graph.scan("Likes").read_all().to_pylist()} == {"Company"}
    assert graph.count("Likes") == 300


@pytest.mark.unit
def test_files_name_types_in_a_column(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "mentions.csv"
    path.write_text("id,src,dst,to_type\nm3,x,y,Company\n")
    graph.load(str(path), type="Mentions")
    table = graph.scan("Mentions").read_all()
    again = og.init(str(tmp_path / "again"), schema=SCHEMA)
    again.write(
        {
            "Person": [{"email": "x"}],
            "Company": [{"id": "x"}, {"id": "y"}],
            "Document": [{"id": "x"}],
        }
    )
    pq.write_table(table, tmp_path / "mentions.parquet")
    again.load(str(tmp_path / "mentions.parquet"), type="Mentions")

    assert sorted(table.column("dst_type").to_pylist()) == ["Company", "Company", "Person"]
    assert again.scan("Mentions").read_all().sort_by("id") == table.sort_by("id")


@pytest.mark.unit
def test_a_load_names_the_type_of_ends_without_one(graph: Graph, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,src,dst\nc1,x,y\n")
    lines = [
        {"edge": "Mentions", "from": "y", "to": "x", "data": {"id": "j1"}},
        {"edge": "Mentions", "from": "y", "to": "y", "data": {"id": "j2"}},
        {
            "edge": "Mentions",
            "from": "y",
            "to": {"type": "Person", "id": "x"},
            "data": {"id": "j3"},
        },
    ]
    path = write_lines(tmp_path / "in.jsonl", lines)
    options = LoadOptions(end_type={"to": "Company"})
    graph.write({"Document": [{"id": "y"}, {"id": "z"}]}, mode="merge")

    graph.load(str(tmp_path / "in.csv"), type="Mentions", options=options)
    graph.load(path, options=options)
    frame = pa.table({"id": ["f1"], "src": ["z"], "dst": ["x"]})
    graph.load({"Mentions": frame}, options=options)
    note = pa.table({"id": ["j3"], "note": ["kept"]})
    graph.load({"Mentions": note}, mode="merge", options=options)

    types = {row["id"]: row["dst_type"] for row in graph.scan("Mentions").read_all().to_pylist()}
    assert {key: types[key] for key in ("c1", "j1", "j2", "j3", "f1")} == {
        **dict.fromkeys(("c1", "j1", "j2", "f1"), "Company"),
        "j3": "Person",
    }


@pytest.mark.unit
@pytest.mark.parametrize(
    ("end_type", "message"),
    [
        ({"to": "Document"}, None),
        ({"to": "Compny"}, "no edge has a choice of types with 'Compny' at its end 'to'"),
        ({"to": {}}, "no edge has a choice of types with {} at its end 'to'"),
        ({"into": "Company"}, "end_type has 'into', expected from or to"),
        ("Company", "expected a mapping of ends to node types"),
    ],
)
def test_a_load_is_told_which_types_an_end_may_have(
    graph: Graph, end_type: Any, message: str | None
) -> None:
    frame = pa.table({"src": ["x"], "dst": ["x"]})
    error = LoadRefusedError if message is None else InvalidInputError

    with pytest.raises(error, match=message):
        graph.load({"Mentions": frame}, options=LoadOptions(end_type=end_type))


@pytest.mark.unit
def test_a_mutation_names_the_type_of_an_end(graph: Graph) -> None:
    graph.mutate(
        'query q() { insert Likes { from: "x", from_type: "Company", '
        'to: "x", to_type: "Document" } }'
    )

    (row,) = graph.scan("Likes").read_all().to_pylist()
    assert (row["src_type"], row["dst_type"]) == ("Company", "Document")


@pytest.mark.unit
@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ({"from": "x", "to": "x"}, "expected the type of dst"),
        ({"from": "x", "to": {"id": "x"}}, "or the id with to_type next to it"),
        ({"from": "x", "to": {"type": "Company", "id": "x"}, "to_type": "Company"}, "next to it"),
        ({"from": {"type": "Document", "id": "x"}, "to": {"type": "Company", "id": "y"}}, "String"),
        ({"from": "x", "from_type": "Document", "to": "x", "to_type": "Company"}, "expected none"),
    ],
)
def test_a_record_with_a_wrong_end_is_rejected(
    graph: Graph, tmp_path: Path, ends: dict[str, Any], message: str
) -> None:
    path = write_lines(tmp_path / "in.jsonl", [{"edge": "Mentions", **ends}])

    report = graph.load(path, on_error="quarantine", options=QUARANTINE)

    assert message in report.rejected[0].message
    assert graph.count("Mentions") == 2


@pytest.mark.unit
def test_an_end_gets_more_types_and_no_row_is_written(tmp_path: Path) -> None:
    nodes = "node A {} node B {} "
    graph = og.init(
        str(tmp_path / "graph"), schema=nodes + "edge E: A -> A @card(0..2) { @unique(src, dst) }"
    )
    graph.write(
        {
            "A": [{"id": "x"}, {"id": "y"}],
            "B": [{"id": "x"}],
            "E": [{"id": "e1", "src": "x", "dst": "x"}, {"id": "e2", "src": "y", "dst": "x"}],
        }
    )
    before = graph.commits()[0]
    graph.schema.apply(nodes + "edge E: A | B -> A | B @card(0..2) { @unique(src, dst) }")

    rows = graph.scan("E").read_all().to_pylist()
    assert {(row["src_type"], row["dst_type"]) for row in rows} == {("A", "A")}
    explicit = {"src": "x", "src_type": "A", "dst": "x", "dst_type": "A"}
    with pytest.raises(ValidationFailedError, match="not_unique"):
        graph.write({"E": [explicit]})
    graph.write({"E": [explicit | {"id": "e3", "dst_type": "B"}, explicit | {"src_type": "B"}]})
    graph.write({"E": [explicit | {"id": "e2", "src": "y"}]}, mode="merge")
    with pytest.raises(ValidationFailedError, match="too_many_edges"):
        graph.write({"E": [explicit | {"dst": "y"}]})
    assert graph.maintenance.check().ok
    graph.mutate('query q() { delete B where id = "x" }')
    assert {row["id"] for row in graph.scan("E").read_all().to_pylist()} == {"e1", "e2"}
    graph.mutate('query q() { delete A where id = "x" }')
    assert not graph.count("E")
    old = graph.at(before.commit_id).scan("E").read_all()
    assert old.column_names == ["id", "src", "dst"]


@pytest.mark.unit
def test_branches_merge_ends_as_one_value(graph: Graph) -> None:
    graph.write({"Person": [{"email": "y"}]})
    graph.branches.create("dev")
    dev = graph.checkout("dev")
    dev.write({"Mentions": [{"id": "m1", "dst": "y", "dst_type": "Person"}]}, mode="merge")
    graph.write({"Mentions": [{"id": "m1", "dst": "y", "dst_type": "Company"}]}, mode="merge")

    with pytest.raises(MergeConflictError) as caught:
        graph.merge("dev")
    (conflict,) = cast("pa.Table", caught.value.conflicts).to_pylist()
    assert conflict["column"] == "dst"
    assert json.loads(conflict["base"]) == {"type": "Person", "id": "x"}
    assert json.loads(conflict["ours"]) == {"type": "Company", "id": "y"}
    assert json.loads(conflict["theirs"]) == {"type": "Person", "id": "y"}
    graph.merge("dev", resolve="theirs")
    row = graph.get("Mentions", id="m1")
    assert row is not None
    assert (row["dst_type"], row["dst"]) == ("Person", "y")


@pytest.mark.behaviour
@pytest.mark.parametrize("into", ["main", "dev"])
def test_a_branch_with_more_types_at_an_end_merges(tmp_path: Path, into: str) -> None:
    nodes = "node A {} node B {} "
    graph = og.init(str(tmp_path / "graph"), schema=nodes + "edge E: A -> A")
    edge = {"src": "x", "dst": "x"}
    graph.write(
        {"A": [{"id": "x"}], "B": [{"id": "x"}], "E": [edge | {"id": "e1"}, edge | {"id": "e2"}]}
    )
    graph.branches.create("dev")
    dev = graph.checkout("dev")
    dev.schema.apply(nodes + "edge E: A -> A | B")
    dev.write({"E": [edge | {"id": "e3", "dst_type": "B"}]})
    dev.write({"E": [edge | {"id": "e1", "dst_type": "B"}]}, mode="merge")
    graph.write({"E": [edge | {"id": "e4"}]})

    target = graph if into == "main" else dev
    target.merge("dev" if into == "main" else "main")

    merged = graph.checkout(into)
    rows = merged.scan("E").read_all().to_pylist()
    assert {row["id"]: row["dst_type"] for row in rows} == {
        "e1": "B",
        "e2": "A",
        "e3": "B",
        "e4": "A",
    }
    assert merged.maintenance.check().ok


@pytest.mark.unit
def test_differences_and_feeds_name_the_types_of_ends(graph: Graph) -> None:
    before = graph.commits()[0].commit_id
    first = next(iter(graph.baseline(types=["Mentions"])))
    assert isinstance(first, BaselineTable)
    images = [row["after"] for row in first.reader().read_all().to_pylist()]
    assert {image["dst_type"] for image in images} == {"Person", "Company"}
    graph.write({"Mentions": [{"id": "new", "src": "x", "dst": "y", "dst_type": "Company"}]})

    (change,) = graph.diff(before).rows("edge:Mentions").read_all().to_pylist()
    assert change["after"]["dst_type"] == "Company"
    (commit,) = graph.changes(start=before)
    (table,) = commit.tables
    assert table.reader().read_all().to_pylist() == [change]
    graph.delete({"Mentions": ["new"]})
    (_, last) = graph.changes(start=before)
    (gone,) = last.tables
    assert gone.reader().read_all().to_pylist()[0]["before"]["dst_type"] == "Company"


@pytest.mark.unit
def test_more_types_of_an_end_and_new_names_of_types_are_no_differences(tmp_path: Path) -> None:
    nodes = "node A {} node B {} "
    graph = og.init(str(tmp_path / "graph"), schema=nodes + "edge E: A -> A")
    graph.write({"A": [{"id": "x"}], "E": [{"id": "e1", "src": "x", "dst": "x"}]})
    graph.write({"B": [{"id": "x"}]})
    before = graph.commits()[0].commit_id
    graph.schema.apply(nodes + "edge E: A -> A | B")
    graph.schema.apply('node Z @rename_from("A") {} node B {} edge E: Z -> Z | B')

    assert "edge:E" not in graph.diff(before).tables
    graph.write({"E": [{"id": "e1", "src": "x", "dst": "x", "dst_type": "B"}]}, mode="merge")
    (change,) = graph.diff(before).rows("edge:E").read_all().to_pylist()
    assert change["changed"] == ["dst_type"]
    assert (change["before"]["dst_type"], change["after"]["dst_type"]) == ("Z", "B")


@pytest.mark.unit
def test_a_dry_run_names_the_types_of_ends(graph: Graph) -> None:
    result = graph.mutate('query q() { delete Mentions where from = "x" }', dry_run=True)

    samples = [sample.before for sample in result.samples]
    assert {sample["dst_type"] for sample in samples if sample} == {"Person", "Company"}


@pytest.mark.unit
def test_types_that_both_sides_of_a_merge_add_to_an_end_are_united(tmp_path: Path) -> None:
    nodes = "node A {} node B {} node C {} "
    graph = og.init(str(tmp_path / "graph"), schema=nodes + "edge E: A -> A")
    rows = {name: [{"id": "x"}] for name in "ABC"}
    graph.write({**rows, "E": [{"id": "e0", "src": "x", "dst": "x"}]})
    branch = graph.branches.create("dev")
    branch.schema.apply(nodes + "edge E: A -> A | C")
    branch.write({"E": [{"id": "t", "src": "x", "dst": "x", "dst_type": "C"}]})
    graph.schema.apply(nodes + "edge E: A | B -> A | B", allow_diverged=True)
    typed = {"src_type": "B", "dst_type": "B"}
    graph.write({"E": [{"id": "o", "src": "x", "dst": "x", **typed}]})

    graph.merge("dev")

    assert "edge E: A | B -> A | B | C" in graph.schema.text
    assert {
        (row["id"], row["src_type"], row["dst_type"])
        for row in graph.scan("E").read_all().to_pylist()
    } == {("e0", "A", "A"), ("t", "A", "C"), ("o", "B", "B")}
    assert graph.maintenance.check().ok


THREE_TYPES = "node A {} node B {} node C {} edge E: A -> A | B | C"
TWO_TYPES = "node A {} node B {} node C {} edge E: A -> A | C"


@pytest.fixture
def three(tmp_path: Path) -> Graph:
    graph = og.init(str(tmp_path / "three"), schema=THREE_TYPES)
    rows = {name: [{"id": "x"}] for name in "ABC"}
    ends = [{"id": kind, "src": "x", "dst": "x", "dst_type": kind} for kind in "ABC"]
    graph.write({**rows, "E": ends})
    return graph


@pytest.mark.unit
def test_a_type_that_no_edge_has_is_removed_from_an_end(three: Graph) -> None:
    with pytest.raises(SchemaRefusedError) as refused_change:
        three.schema.apply(TWO_TYPES)
    text = str(refused_change.value)
    assert "[OG-CS-106] expected no dst_type of B in edge:E; found 1 row in violation: B" in text

    three.delete({"E": ["B"]})
    plan = three.schema.apply(TWO_TYPES).plan
    assert plan is not None
    assert [step.kind for step in plan.steps] == [StepKind.CHANGE_ENDS]
    types = {row["id"]: row["dst_type"] for row in three.scan("E").read_all().to_pylist()}
    assert types == {"A": "A", "C": "C"}
    with pytest.raises(SchemaRefusedError, match=r"OG-ED-101.*keeps at least two: a branch"):
        three.schema.apply(TWO_TYPES.replace("A | C", "C"))
    assert three.maintenance.check().ok


@pytest.mark.unit
def test_an_edge_to_a_type_that_the_other_side_removed_is_a_conflict(three: Graph) -> None:
    three.delete({"E": ["B"]})
    branch = three.branches.create("dev")
    branch.write({"E": [{"id": "new", "src": "x", "dst": "x", "dst_type": "B"}]})
    three.schema.apply(TWO_TYPES, allow_diverged=True)

    with pytest.raises(MergeConflictError, match="missing_endpoint"):
        three.merge("dev")


@pytest.mark.unit
def test_the_type_that_an_end_had_alone_stays(tmp_path: Path) -> None:
    nodes = "node A {} node B {} node C {} "
    graph = og.init(str(tmp_path / "graph"), schema=nodes + "edge E: A -> A")
    graph.schema.apply(nodes + "edge E: A -> A | B | C")

    with pytest.raises(SchemaRefusedError, match=r"OG-ED-101.*have a node of A there"):
        graph.schema.apply(nodes + "edge E: A -> B | C")


@pytest.mark.unit
@pytest.mark.parametrize("main_edge", ["edge E: A -> T | A", "edge Other: A -> A"])
def test_edges_to_a_type_that_both_sides_added_are_a_conflict_of_types(
    tmp_path: Path, main_edge: str
) -> None:
    nodes = "node A { k: String @key } "
    graph = og.init(str(tmp_path / "graph"), schema=nodes)
    graph.write({"A": [{"k": "a"}]})
    dev = graph.branches.create("dev")
    dev.schema.apply(nodes + "node X {}", allow_diverged=True)
    target = "node T { k: String @key } "
    dev.schema.apply(f"{nodes} node X {{}} {target} edge E: A -> T | A", allow_diverged=True)
    graph.schema.apply(nodes + target + main_edge, allow_diverged=True)
    edge = {"id": "e", "src": "a", "dst": "t", "dst_type": "T"}
    dev.write({"T": [{"k": "t"}], "E": [edge]})

    with pytest.raises(MergeConflictError, match="both sides added the node type T") as refused:
        graph.merge("dev")
    assert "endpoint_type" in str(refused.value)
    dev.delete({"E": ["e"]})
    graph.merge("dev")
    graph.write({"E": [edge]})
    assert graph.scan("E").read_all().to_pylist() == [edge]
    assert graph.maintenance.check().ok
