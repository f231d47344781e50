"""Merges of partial records: what a record does not mention is kept, and null clears."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InputTooLargeError, ValidationFailedError
from omnigraph_lake.graph import Graph
from omnigraph_lake.storage.lance.tables import whole_rows
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.validation.violations import ViolationReport

pytestmark = pytest.mark.unit

SCHEMA = """
node Doc {
    slug: String @key
    title: String
    rank: I32?
    mood: enum(good, bad)?
    tags: [String]?
    embedding: Vector(2)? @embed("title")
    photo: Blob?
    nick: String? @unique
    @range(rank, 0..100)
}
node Pair { a: String  b: I64  note: String?  @key(a, b) }
node Note { text: String  stars: I32? }
edge Cites: Doc -> Doc { weight: F64?  why: String }
"""

WHOLE: dict[str, Any] = {
    "slug": "d1",
    "title": "one",
    "rank": 1,
    "mood": "good",
    "tags": ["a", "b"],
    "embedding": [1.0, 0.0],
    "photo": b"picture",
    "nick": "first",
}


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write({"Doc": [WHOLE, {"slug": "d2", "title": "two"}]})
    return graph


def rows(graph: Graph, type_name: str, kind: str = "node") -> dict[str, dict[str, Any]]:
    """Everything that is published of a type, by id, with blobs as bytes."""
    entry = graph.snapshot().tables[f"{kind}:{type_name}"]
    batches = whole_rows(parse_root(graph.root), entry, batch_rows=100)
    return {row.pop("id"): row for batch in batches for row in batch.to_pylist()}


def refused(graph: Graph, type_name: str, *records: dict[str, Any]) -> list[tuple[str, str, int]]:
    """Why a merge of these records is refused: reason, columns and row."""
    with pytest.raises(ValidationFailedError) as caught:
        graph.write({type_name: records}, mode="merge")
    report = caught.value.report
    assert isinstance(report, ViolationReport)
    return [
        (violation.reason.value, ",".join(violation.columns), violation.row or 0)
        for violation in report.kept
    ]


@pytest.mark.parametrize("column", [name for name in WHOLE if name != "slug"])
def test_a_record_changes_what_it_mentions_and_nothing_else(graph: Graph, column: str) -> None:
    changed = {
        "title": "uno",
        "rank": 7,
        "mood": "bad",
        "tags": [],
        "embedding": [0.0, 1.0],
        "photo": b"other",
        "nick": "new",
    }
    result = graph.write({"Doc": [{"slug": "d1", column: changed[column]}]}, mode="merge")

    counts = result.tables["node:Doc"]
    assert (counts.inserted, counts.updated, counts.deleted) == (0, 1, 0)
    assert rows(graph, "Doc")["d1"] == {**WHOLE, column: changed[column]}
    assert graph.maintenance.check().ok


def test_null_clears(graph: Graph) -> None:
    graph.write({"Doc": [{"slug": "d1", "rank": None, "photo": None, "tags": None}]}, mode="merge")

    assert rows(graph, "Doc")["d1"] == {**WHOLE, "rank": None, "photo": None, "tags": None}


def test_records_of_one_write_may_mention_different_things(graph: Graph) -> None:
    graph.write(
        {
            "Doc": [
                {"slug": "d2", "rank": 2, "photo": b"second"},
                {"slug": "d3", "title": "three"},
                {"slug": "d1", "title": "uno"},
            ]
        },
        mode="merge",
    )

    nothing = dict.fromkeys(WHOLE)
    assert rows(graph, "Doc") == {
        "d1": {**WHOLE, "title": "uno"},
        "d2": {**nothing, "slug": "d2", "title": "two", "rank": 2, "photo": b"second"},
        "d3": {**nothing, "slug": "d3", "title": "three"},
    }


def test_a_table_mentions_its_columns(graph: Graph) -> None:
    table = pa.table({"slug": ["d1", "d2"], "rank": pa.array([None, 5], pa.int32())})

    graph.write({"Doc": table}, mode="merge")

    assert rows(graph, "Doc")["d1"] == {**WHOLE, "rank": None}
    assert rows(graph, "Doc")["d2"]["title"] == "two"


def test_replace_clears_what_merge_keeps(graph: Graph) -> None:
    graph.write({"Doc": [{"slug": "d1", "title": "uno"}]}, mode="replace")

    assert rows(graph, "Doc")["d1"] == {**dict.fromkeys(WHOLE), "slug": "d1", "title": "uno"}


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([{"slug": "d1", "rank": 3}, {"slug": "new"}], [("missing_required", "title", 1)]),
        ([{"slug": "d1", "title": None}], [("missing_required", "title", 0)]),
        ([{"rank": 3}], [("missing_required", "slug", 0), ("missing_required", "title", 0)]),
        ([{"slug": "d1", "rank": 101}], [("out_of_range", "rank", 0)]),
        ([{"slug": "d2"}, {"slug": "d1", "rank": "x"}], [("wrong_type", "rank", 1)]),
        ([{"slug": "d1"}, {"slug": "d1", "rank": 2}], [("duplicate_id", "id", 1)]),
        ([{"slug": "d2", "nick": "first"}], [("not_unique", "nick", 0)]),
    ],
)
def test_completed_rows_keep_every_rule(
    graph: Graph, records: list[dict[str, Any]], expected: list[tuple[str, str, int]]
) -> None:
    assert refused(graph, "Doc", *records) == expected
    assert rows(graph, "Doc")["d1"] == WHOLE


def test_a_kept_value_counts_for_rules_over_several_rows(graph: Graph) -> None:
    """A published value that the write frees may be taken, and one that it keeps may not."""
    graph.write(
        {"Doc": [{"slug": "d1", "nick": None}, {"slug": "d2", "nick": "first"}]}, mode="merge"
    )
    assert rows(graph, "Doc")["d2"]["nick"] == "first"

    records = ({"slug": "d2", "rank": 1}, {"slug": "d1", "nick": "first"})
    assert refused(graph, "Doc", *records) == [("not_unique", "nick", 1)]


def test_a_node_is_named_by_its_key_or_by_its_id(graph: Graph) -> None:
    graph.write({"Pair": [{"a": "x", "b": 1, "note": "old"}]})
    ((name, _),) = rows(graph, "Pair").items()

    graph.write({"Pair": [{"id": name, "note": "by id"}]}, mode="merge")
    assert rows(graph, "Pair")[name] == {"a": "x", "b": 1, "note": "by id"}
    graph.write({"Pair": [{"id": name, "b": 1, "note": "by both"}]}, mode="merge")
    assert rows(graph, "Pair")[name]["note"] == "by both"

    assert refused(graph, "Pair", {"id": name, "b": 2}) == [("bad_id", "id", 0)]
    assert refused(graph, "Pair", {"b": 1, "note": "half"}) == [("missing_required", "a", 0)]
    assert refused(graph, "Pair", {"id": "other", "note": "n"}) == [
        ("missing_required", "a", 0),
        ("missing_required", "b", 0),
    ]


def test_records_without_an_id_are_new(graph: Graph) -> None:
    graph.write({"Note": [{"id": "n1", "text": "old", "stars": 3}]})

    graph.write({"Note": [{"id": "n1", "text": "new"}, {"text": "another"}]}, mode="merge")

    notes = sorted(rows(graph, "Note").values(), key=str)
    assert notes == [{"text": "another", "stars": None}, {"text": "new", "stars": 3}]
    assert refused(graph, "Note", {"stars": 1}) == [("missing_required", "text", 0)]


def test_edges_keep_their_ends_and_properties(graph: Graph) -> None:
    graph.write({"Cites": [{"id": "e1", "src": "d1", "dst": "d2", "weight": 1.5, "why": "a"}]})

    graph.write({"Cites": [{"id": "e1", "why": "b"}]}, mode="merge")
    edge = {"src": "d1", "dst": "d2", "weight": 1.5, "why": "b"}
    assert rows(graph, "Cites", "edge")["e1"] == edge
    graph.write({"Cites": [{"id": "e1", "dst": "d1"}]}, mode="merge")
    assert rows(graph, "Cites", "edge")["e1"] == {**edge, "dst": "d1"}

    assert refused(graph, "Cites", {"id": "e2", "why": "c"}) == [
        ("missing_required", "src", 0),
        ("missing_required", "dst", 0),
    ]
    assert graph.maintenance.check().ok


def test_a_dry_run_counts_and_writes_nothing(graph: Graph) -> None:
    records = ({"slug": "d1", "rank": 9}, {"slug": "d3", "title": "three"})

    result = graph.write({"Doc": records}, mode="merge", dry_run=True)

    counts = result.tables["node:Doc"]
    assert (counts.inserted, counts.updated) == (1, 1)
    assert rows(graph, "Doc")["d1"] == WHOLE


def test_after_a_lost_race_the_newest_values_are_kept(graph: Graph) -> None:
    """Another writer changes what this one does not mention, after this one has pinned its rows."""
    rival = og.open(graph.root)

    def records() -> Iterator[pa.RecordBatch]:
        rival.write({"Doc": [{"slug": "d1", "title": "rival", "photo": b"rival"}]}, mode="merge")
        yield pa.RecordBatch.from_pylist([{"slug": "d1", "rank": 42}])

    schema = pa.schema({"slug": pa.string(), "rank": pa.int64()})
    graph.write({"Doc": pa.RecordBatchReader.from_batches(schema, records())}, mode="merge")

    kept = {**WHOLE, "rank": 42, "title": "rival", "photo": b"rival"}
    assert rows(graph, "Doc")["d1"] == kept


def test_what_is_kept_must_fit_into_memory(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    graph.write({"Doc": [{"slug": "d1", "photo": bytes(100_000)}]}, mode="merge")
    monkeypatch.setenv("OMNIGRAPH_ROWS_MEMORY", "50kB")

    with pytest.raises(InputTooLargeError, match="rows of node:Doc with what they keep"):
        graph.write({"Doc": [{"slug": "d1", "rank": 3}]}, mode="merge")


@pytest.mark.parametrize("count", [5, 3_000])
def test_few_and_many_records_agree_with_dicts(graph_root: str, count: int) -> None:
    """Few ids are looked up by an index, many by a scan."""
    chance = random.Random(count)
    graph = og.init(graph_root, schema="node P { k: String @key  a: I64?  b: String?  c: [I64]? }")

    def a_record(number: int) -> dict[str, Any]:
        values = {"a": chance.randrange(9), "b": chance.choice(["x", None]), "c": [number]}
        chosen = {name: value for name, value in values.items() if chance.random() < 0.5}
        return {"k": f"it's {number}", **chosen}

    expected: dict[str, dict[str, Any]] = {}
    for _ in range(3):
        records = [a_record(number) for number in chance.sample(range(count * 2), count)]
        graph.write({"P": records}, mode="merge")
        for record in records:
            known = expected.get(record["k"], {"a": None, "b": None, "c": None})
            expected[record["k"]] = {**known, **record}
    assert rows(graph, "P") == expected
