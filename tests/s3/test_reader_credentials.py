"""Credentials that may only read: everything that reads works, nothing can be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.api.handle import Handle, OpenMode
from omnigraph_lake.commit.publish import OperationStatus
from omnigraph_lake.diff.change_feed import BaselineTable
from omnigraph_lake.errors import OmnigraphError, ReadOnlyError, StorageUnavailableError
from omnigraph_lake.graph import Graph
from tests.stores import BUCKET, files_of

pytestmark = pytest.mark.s3

SCHEMA = """
node Person { name: String @key  age: I64? @index }
edge Knows: Person -> Person
"""
WIDER = f"{SCHEMA}\nnode Place {{ name: String @key }}"
ALL = "query all() { match { $p: Person } return { $p.name } }"
GROW = 'query grow() { update Person set { age: 7 } where name = "ann" }'

Read = Callable[[Graph, Path], object]
Write = Callable[[Graph, Path], object]


@pytest.fixture(scope="module")
def graph(writer: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """One graph for all tests, because nothing here can change it."""
    root = f"s3://{BUCKET}{tmp_path_factory.mktemp('read')}/graph"
    graph = og.init(root, schema=SCHEMA, storage_options=writer)
    graph.write({"Person": [{"name": "ann"}, {"name": "bob"}]})
    graph.tags.create("first")
    dev = graph.branches.create("dev")
    dev.write({"Person": [{"name": "cid"}]})
    graph.maintenance.run()
    graph.write({"Knows": [{"src": "ann", "dst": "bob"}]})
    for age in range(4):
        graph.write({"Person": [{"name": "ann", "age": age}]}, mode="merge")
    return graph


def names_of(graph: Graph) -> list[str]:
    return sorted(graph.scan("Person").read_all().column("name").to_pylist())


def outcome_of_the_newest(graph: Graph) -> OperationStatus:
    return graph.outcome(graph.commits(limit=1)[0].operation_id)


def stored_query(graph: Graph, home: Path) -> int:
    (home / "all.gq").write_text(ALL)
    return int(graph.queries(home).run("all").to_arrow().num_rows)


def rows_of_baseline(graph: Graph) -> int:
    """Read to its end: only then does the last element tell where to go on."""
    rows = 0
    for part in graph.baseline():
        if isinstance(part, BaselineTable):
            rows += part.reader().read_all().num_rows
    return rows


LINKED = ("Person", ["Knows"])
READS: Mapping[str, tuple[Read, object]] = {
    "algorithms.components": (
        lambda graph, _: len(graph.algorithms.components(*LINKED).to_arrow()),
        2,
    ),
    "algorithms.distances": (lambda graph, _: graph.algorithms.distances(*LINKED, ["ann"]).rows, 2),
    "algorithms.label_propagation": (
        lambda graph, _: graph.algorithms.label_propagation(*LINKED).rows,
        2,
    ),
    "algorithms.page_rank": (lambda graph, _: graph.algorithms.page_rank(*LINKED).rows, 2),
    "algorithms.triangle_count": (
        lambda graph, _: graph.algorithms.triangle_count(*LINKED).rows,
        2,
    ),
    "at": (lambda graph, _: graph.at("first").scan("Knows").read_all().num_rows, 0),
    "baseline": (lambda graph, _: rows_of_baseline(graph), 3),
    "checkout": (lambda graph, _: names_of(graph.checkout("dev")), ["ann", "bob", "cid"]),
    "branches.list": (lambda graph, _: len(graph.branches.list()), 2),
    "schema.catalog": (lambda graph, _: sorted(graph.schema.catalog.nodes), ["Person"]),
    "changes": (lambda graph, _: len(list(graph.changes(start="beginning"))) > 0, True),
    "maintenance.check": (lambda graph, _: graph.maintenance.check().ok, True),
    "commits": (lambda graph, _: len(graph.commits()) >= 3, True),
    "diff": (lambda graph, _: bool(graph.diff("first", "main")), True),
    "commit": (lambda graph, _: graph.commit(graph.commits()[0].commit_id).branch, None),
    "count": (lambda graph, _: graph.count("Knows"), 1),
    "get": (lambda graph, _: graph.get("Person", "nobody"), None),
    "explain": (lambda graph, _: "Person" in graph.explain(ALL), True),
    "export": (lambda graph, home: graph.export(home / "out.jsonl").rows["Knows"], 1),
    "scan": (lambda graph, _: names_of(graph), ["ann", "bob"]),
    "outcome": (lambda graph, _: outcome_of_the_newest(graph), OperationStatus.PUBLISHED),
    "branches.diverged": (
        lambda graph, _: [parting.branch for parting in graph.branches.diverged()],
        ["dev"],
    ),
    "schema.plan": (lambda graph, _: graph.schema.plan(WIDER).plan is not None, True),
    "queries": (stored_query, 2),
    "query": (lambda graph, _: graph.query(ALL).to_arrow().num_rows, 2),
    "maintenance.recoveries": (lambda graph, _: graph.maintenance.recoveries(), ()),
    "schema.text": (lambda graph, _: "node Person" in graph.schema.text, True),
    "snapshot": (lambda graph, _: len(graph.snapshot().tables), 2),
    "maintenance.report": (
        lambda graph, _: graph.maintenance.report().stored_bytes > 0,
        True,
    ),
    "view": (lambda graph, _: graph.view().scene.edges_total, 1),
    "view_types": (lambda graph, _: graph.view_types().scene.edges_total, 1),
    "view_commits": (lambda graph, _: graph.view_commits().scene.kind.value, "commits"),
    "maintenance.status": (lambda graph, _: graph.maintenance.status().branch, "main"),
    "holds.list": (lambda graph, _: graph.holds.list(), ()),
    "tags.list": (lambda graph, _: [tag.tag for tag in graph.tags.list()], ["first"]),
}
"""By verb: what it reads, and what a reader must see."""
WRITES: Mapping[str, Write] = {
    "write": lambda graph, _: graph.write({"Person": [{"name": "dan"}]}),
    "delete": lambda graph, _: graph.delete({"Person": ["ann"]}),
    "mutate": lambda graph, _: graph.mutate(GROW),
    "load": lambda graph, home: graph.load(home / "in.jsonl"),
    "merge": lambda graph, _: graph.merge("dev"),
    "apply schema": lambda graph, _: graph.schema.apply(WIDER),
    "create branch": lambda graph, _: graph.branches.create("new"),
    "delete branch": lambda graph, _: graph.branches.delete("dev"),
    "tag": lambda graph, _: graph.tags.create("second"),
    "delete tag": lambda graph, _: graph.tags.delete("first"),
    "optimize": lambda graph, _: graph.maintenance.optimize(),
    "cleanup": lambda graph, _: graph.maintenance.cleanup(keep_versions=3, dry_run=False),
}


@pytest.mark.parametrize("verb", READS)
def test_a_reader_reads_everything(
    graph: Graph, reader: Mapping[str, str], tmp_path: Path, verb: str
) -> None:
    opened = og.open(graph.root, read_only=True, storage_options=reader)
    read, expected = READS[verb]

    assert read(opened, tmp_path) == expected


def test_a_reader_cannot_open_for_writing(graph: Graph, reader: Mapping[str, str]) -> None:
    with pytest.raises(StorageUnavailableError, match="read_only=True"):
        og.open(graph.root, storage_options=reader)


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("verb", WRITES)
def test_a_reader_writes_nothing(
    graph: Graph, reader: Mapping[str, str], tmp_path: Path, verb: str
) -> None:
    """Not through a handle for reading, and not through one that believes it may write."""
    (tmp_path / "in.jsonl").write_text('{"type": "Person", "data": {"name": "eve"}}\n')
    opened = og.open(graph.root, read_only=True, storage_options=reader)
    bold = Graph(
        Handle(
            opened._handle.objects,
            opened._handle.contracts,
            opened._handle.contract,
            mode=OpenMode.READ_WRITE,
        )
    )
    before = {path: path.read_bytes() for path in files_of(graph.root)}

    with pytest.raises(ReadOnlyError):
        WRITES[verb](opened, tmp_path)
    with pytest.raises(OmnigraphError) as caught:
        WRITES[verb](bold, tmp_path)

    assert "do not allow it" in str(caught.value)
    assert {path: path.read_bytes() for path in files_of(graph.root)} == before
