"""Mutations: what statements do to a real graph, and what is refused."""

from __future__ import annotations

import base64
import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ulid import ULID

import omnigraph_lake as og
from omnigraph_lake.errors import (
    InvalidInputError,
    QueryFailedError,
    QueryInvalidError,
    ReadOnlyError,
    ValidationFailedError,
)
from omnigraph_lake.graph import Graph
from omnigraph_lake.mutate import overlay
from omnigraph_lake.mutate.mutate import MutationResult
from omnigraph_lake.storage.lance.tables import whole_rows
from omnigraph_lake.storage.objects.location import parse_root
from omnigraph_lake.validation.violations import ViolationReport

pytestmark = [pytest.mark.unit, pytest.mark.sampled(3)]

SCHEMA = """
node Person {
    email: String @key
    name: String
    age: I32?
    weight: F32?
    mood: enum(good, bad)?
    tags: [String]?
    seen: DateTime?
    photo: Blob?
    picture: Blob?

    @range(age, 0..150)
    @check(name, "^[A-Z]")
}

node Company {
    code: String @key
    city: String? @unique
}

node Note {
    title: String
    meaning: Vector(2)? @embed("title", model="m")
}

node Page {
    title: String
    meaning: Vector(2) @embed("title", model="m")
}

edge Knows: Person -> Person {
    since: Date?
    @unique(src, dst)
}

edge WorksAt: Person -> Company @card(1..2) {
    role: String?
}

edge Wrote: Person -> Note
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    graph = og.init(graph_root, schema=SCHEMA)
    graph.write(
        {
            "Person": [
                {"email": "ann", "name": "Ann", "age": 30, "photo": b"ann", "tags": ["x"]},
                {"email": "bob", "name": "Bob", "age": 20, "photo": b""},
                {"email": "cat", "name": "Cat", "mood": "bad"},
            ],
            "Company": [{"code": "a", "city": "Oslo"}, {"code": "b", "city": "Bergen"}],
            "Note": [{"id": "n1", "title": "One"}],
            "Knows": [
                {"id": "k1", "src": "ann", "dst": "bob"},
                {"id": "k2", "src": "bob", "dst": "cat"},
            ],
            "WorksAt": [{"id": "w1", "src": "ann", "dst": "a"}],
            "Wrote": [{"id": "o1", "src": "ann", "dst": "n1"}],
        }
    )
    return graph


def run(graph: Graph, body: str, parameters: str = "", **given: Any) -> MutationResult:
    return graph.mutate(f"query q({parameters}) {{ {body} }}", given)


def nodes(graph: Graph, name: str) -> dict[str, dict[str, Any]]:
    snapshot = graph.snapshot()
    entry = snapshot.tables[f"node:{name}"]
    batches = whole_rows(parse_root(graph.root), entry, batch_rows=10)
    return {row["id"]: row for batch in batches for row in batch.to_pylist()}


def edges(graph: Graph, name: str) -> dict[str, tuple[str, str]]:
    rows = graph.scan(name).read_all().to_pylist()
    return {row["id"]: (row["src"], row["dst"]) for row in rows}


def reasons(error: pytest.ExceptionInfo[ValidationFailedError]) -> dict[tuple[str, str], int]:
    report = error.value.report
    assert isinstance(report, ViolationReport)
    assert all(each.row is None for each in report.kept)
    return {(key, reason.value): count for (key, reason), count in report.counts.items()}


def test_an_insert_adds_one_entity_and_tells_what_it_did(graph: Graph) -> None:
    result = run(graph, 'insert Person { email: "dan", name: "Dan", age: 1 + 2 }')

    assert nodes(graph, "Person")["dan"]["age"] == 3
    assert nodes(graph, "Person")["dan"]["tags"] is None
    (counts,) = result.tables.values()
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 0, 0)
    (statement,) = result.statements
    assert (statement.statement, statement.nodes, statement.edges) == ("insert Person", 1, 0)
    assert result.commit_id == graph.snapshot().commit_id


def test_entities_without_a_key_get_new_ids_or_the_given_ones(graph: Graph) -> None:
    run(graph, 'insert Note { title: "a" } insert Note { id: "mine", title: "b" }')

    (drawn,) = nodes(graph, "Note").keys() - {"n1", "mine"}
    assert str(ULID.from_str(drawn)) == drawn


@pytest.mark.parametrize(
    "body",
    [
        'insert Person { email: "ann", name: "Ann" }',
        'insert Person { email: "dan", name: "D" } insert Person { email: "dan", name: "D" }',
        'upsert Person { email: "dan", name: "D" } insert Person { email: "dan", name: "D" }',
        'insert Note { id: "n1", title: "b" }',
        'insert Knows { id: "k1", from: "cat", to: "ann" }',
        'update Person set { age: 1 } where id = "ann" insert Person { email: "ann", name: "A" }',
    ],
)
def test_an_insert_of_what_exists_is_a_conflict(graph: Graph, body: str) -> None:
    head = graph.snapshot().commit_id

    with pytest.raises(ValidationFailedError) as error:
        run(graph, body)

    assert {reason for _, reason in reasons(error)} == {"id_exists"}
    assert graph.snapshot().commit_id == head


def test_a_deleted_entity_can_be_inserted_again_without_its_edges(graph: Graph) -> None:
    result = run(
        graph, 'delete Person where email = "bob" insert Person { email: "bob", name: "B" }'
    )

    assert nodes(graph, "Person")["bob"]["age"] is None
    assert edges(graph, "Knows") == {}
    counts = result.tables["node:Person"]
    assert (counts.inserted, counts.updated, counts.deleted) == (0, 1, 0)
    assert [each.edges for each in result.statements] == [2, 0]


def test_a_replacement_sets_the_whole_entity_and_keeps_its_edges(graph: Graph) -> None:
    run(graph, 'replace Person { email: "ann", name: "Other" }')

    ann = nodes(graph, "Person")["ann"]
    assert (ann["name"], ann["age"], ann["photo"], ann["tags"]) == ("Other", None, None, None)
    assert set(edges(graph, "Knows")) == {"k1", "k2"}


def test_an_upsert_keeps_what_it_does_not_assign(graph: Graph) -> None:
    before = nodes(graph, "Person")["ann"]

    result = run(
        graph,
        'upsert Person { email: "ann", name: "One" } upsert Person { email: "ann", weight: 1.5 } '
        'upsert Person { email: "new", name: "New" }',
    )

    ann = nodes(graph, "Person")["ann"]
    assert ann == {**before, "name": "One", "weight": 1.5}
    counts = result.tables["node:Person"]
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 0)


def test_an_upsert_of_a_match_keeps_what_it_does_not_assign(graph: Graph) -> None:
    before = nodes(graph, "Person")

    run(graph, "match { $p: Person } upsert Person { email: $p.email, name: upper($p.name) }")

    after = nodes(graph, "Person")
    assert after == {key: {**row, "name": row["name"].upper()} for key, row in before.items()}


def test_null_clears_what_an_upsert_assigns(graph: Graph) -> None:
    run(graph, 'upsert Person { email: "ann", age: null }')

    assert nodes(graph, "Person")["ann"]["age"] is None


def test_an_upsert_of_a_new_entity_needs_every_required_property(graph: Graph) -> None:
    with pytest.raises(ValidationFailedError, match="name"):
        run(graph, 'upsert Person { email: "new", age: 3 }')


def test_an_upsert_of_an_edge_can_move_it(graph: Graph) -> None:
    run(graph, 'upsert Knows { id: "k1", from: "cat", to: "ann" }')

    assert edges(graph, "Knows")["k1"] == ("cat", "ann")


def test_an_update_changes_matches_alone_and_keeps_what_it_does_not_set(graph: Graph) -> None:
    result = run(graph, "update Person set { age: age + 1, weight: age / 4 } where age < 30")

    people = nodes(graph, "Person")
    assert {key: row["age"] for key, row in people.items()} == {"ann": 30, "bob": 21, "cat": None}
    assert people["bob"]["weight"] == 5.0
    assert (people["ann"]["photo"], people["bob"]["photo"]) == (b"ann", b"")
    assert result.tables["node:Person"].updated == 1


def test_values_of_one_update_are_those_before_it(graph: Graph) -> None:
    run(graph, 'update Person set { photo: picture, picture: photo } where email = "ann"')

    ann = nodes(graph, "Person")["ann"]
    assert (ann["photo"], ann["picture"]) == (None, b"ann")


@pytest.mark.parametrize(
    "given", [b"new", "base64:" + base64.b64encode(b"new").decode()], ids=["bytes", "text"]
)
def test_a_blob_is_given_as_bytes_or_as_text(graph: Graph, given: object) -> None:
    run(graph, "update Person set { photo: $p } where true", "$p: Blob", p=given)
    run(graph, 'insert Person { email: "dan", name: "D", photo: $p }', "$p: Blob", p=given)

    assert {row["photo"] for row in nodes(graph, "Person").values()} == {b"new"}


def test_an_empty_blob_is_not_a_missing_one(graph: Graph) -> None:
    run(graph, 'update Person set { photo: "base64:" } where email = "ann"')

    assert nodes(graph, "Person")["ann"]["photo"] == b""


def test_text_that_is_no_blob_is_refused(graph: Graph) -> None:
    with pytest.raises(ValidationFailedError) as error:
        run(graph, 'update Person set { photo: "https://x/y" } where true')

    assert set(reasons(error)) == {("node:Person", "wrong_type")}


def test_edges_are_updated_and_deleted_by_their_ends(graph: Graph) -> None:
    run(
        graph,
        'update Knows set { since: date("2020-01-02") } where from = "ann" and to = "bob" '
        'delete Knows where to = "cat"',
    )

    (row,) = graph.scan("Knows").read_all().to_pylist()
    assert (row["id"], row["since"]) == ("k1", dt.date(2020, 1, 2))


def test_deleting_a_node_takes_every_edge_along_also_new_ones(graph: Graph) -> None:
    result = run(
        graph,
        'insert Knows { id: "k3", from: "cat", to: "ann" } '
        'insert Person { email: "dan", name: "D" } '
        'insert Knows { id: "k4", from: "dan", to: "ann" } '
        'delete Person where email = "ann" or email = "dan"',
    )

    assert set(nodes(graph, "Person")) == {"bob", "cat"}
    assert set(edges(graph, "Knows")) == {"k2"}
    assert (edges(graph, "WorksAt"), edges(graph, "Wrote")) == ({}, {})
    assert (result.statements[-1].nodes, result.statements[-1].edges) == (2, 5)
    assert result.tables["edge:Knows"].inserted == 0
    assert graph.maintenance.check().ok


def test_an_edge_that_comes_after_the_delete_of_its_node_is_refused(graph: Graph) -> None:
    with pytest.raises(ValidationFailedError) as error:
        run(graph, 'delete Person where email = "cat" insert Knows { from: "ann", to: "cat" }')

    assert reasons(error) == {("edge:Knows", "missing_endpoint"): 1}


def test_later_statements_see_earlier_ones(graph: Graph) -> None:
    run(
        graph,
        'insert Person { email: "dan", name: "D", age: 1 } '
        "update Person set { age: age + 1 } where age is not null "
        'update Person set { mood: "good" } where age = 2 or age = 31 '
        "delete Person where age = 21",
    )

    people = nodes(graph, "Person")
    assert {key: (row["age"], row["mood"]) for key, row in people.items()} == {
        "ann": (31, "good"),
        "cat": (None, "bad"),
        "dan": (2, "good"),
    }


def test_no_statement_computes_with_values_that_were_replaced(graph: Graph) -> None:
    run(
        graph,
        "update Person set { age: 1 } where age is not null "
        "delete Person where age * 9223372036854775807 > 0",
    )

    assert set(nodes(graph, "Person")) == {"cat"}


@pytest.mark.parametrize(
    "body",
    [
        "delete Person where age > 1000",
        'update Person set { age: 1 } where email = "nobody"',
        "delete Knows where false",
        'insert Person { email: "dan", name: "D" } delete Person where email = "dan"',
    ],
)
def test_without_an_effect_there_is_no_commit(graph: Graph, body: str) -> None:
    head = graph.snapshot().commit_id

    result = run(graph, body)

    assert (result.commit_id, result.tables) == (None, {})
    assert graph.snapshot().commit_id == head


def test_now_is_one_instant_in_a_whole_run(graph: Graph) -> None:
    earlier = dt.datetime.now(dt.UTC)

    run(
        graph,
        "update Person set { seen: now() } where true "
        'insert Person { email: "dan", name: "D", seen: now() }',
    )

    (instant,) = {row["seen"] for row in nodes(graph, "Person").values()}
    assert earlier <= instant <= dt.datetime.now(dt.UTC)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("update Person set { age: age + 140 } where age = 20", ("node:Person", "out_of_range")),
        ('insert Person { email: "d", name: "d" }', ("node:Person", "pattern_mismatch")),
        ("update Person set { mood: $m } where true", ("node:Person", "not_in_enum")),
        (
            "update Person set { age: age * 1000000000 } where age = 20",
            ("node:Person", "does_not_fit"),
        ),
        ('update Company set { city: "Oslo" } where code = "b"', ("node:Company", "not_unique")),
        ('insert Company { code: "c", city: "Oslo" }', ("node:Company", "not_unique")),
        ("update Company set { city: $m } where true", ("node:Company", "not_unique")),
        ('insert Knows { from: "ann", to: "bob" }', ("edge:Knows", "not_unique")),
        ('insert Knows { from: "ann", to: "nobody" }', ("edge:Knows", "missing_endpoint")),
        ('delete WorksAt where id = "w1"', ("edge:WorksAt", "too_few_edges")),
        (
            'insert WorksAt { from: "ann", to: "a" } insert WorksAt { from: "ann", to: "b" }',
            ("edge:WorksAt", "too_many_edges"),
        ),
        ('insert Person { email: "", name: "D" }', ("node:Person", "bad_id")),
    ],
)
def test_the_rules_of_the_schema_hold_after_the_mutation(
    graph: Graph, body: str, expected: tuple[str, str]
) -> None:
    head = graph.snapshot().commit_id
    parameters = {"parameters": "$m: String", "m": "x"} if "$m" in body else {}

    with pytest.raises(ValidationFailedError, match="nothing was written") as error:
        run(graph, body, **parameters)

    assert set(reasons(error)) == {expected}
    assert graph.snapshot().commit_id == head


@pytest.mark.parametrize(
    "body",
    [
        'update Company set { city: "Bergen" } where code = "a" '
        'update Company set { city: "Oslo" } where code = "b"',
        "update Person set { age: 200 } where age = 20 "
        "update Person set { age: 21 } where age = 200",
        'delete WorksAt where from = "ann" insert WorksAt { from: "ann", to: "b" }',
        'insert Knows { from: "ann", to: "dan" } insert Person { email: "dan", name: "D" }',
        'delete Company where city = "Oslo" insert Company { code: "c", city: "Oslo" }'
        'insert WorksAt { from: "ann", to: "c" }',
        'delete Person where email = "ann"',
    ],
)
def test_rules_are_checked_once_over_the_whole_change(graph: Graph, body: str) -> None:
    assert run(graph, body).commit_id is not None
    assert graph.maintenance.check().ok


def test_a_value_that_nothing_can_hold_is_refused_even_if_it_is_deleted_again(
    graph: Graph,
) -> None:
    with pytest.raises(ValidationFailedError):
        run(
            graph,
            "update Person set { mood: $m } where age = 20 delete Person where age = 20",
            "$m: String",
            m="x",
        )


def test_an_integer_that_overflows_is_an_error_of_the_run(graph: Graph) -> None:
    with pytest.raises(QueryFailedError, match="nothing was written"):
        run(graph, "update Person set { age: age * 9223372036854775807 } where age > 1")


def test_a_vector_that_must_be_made_from_a_text_is_refused(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match=r"Page\.meaning is missing"):
        run(graph, 'insert Page { title: "a" }')

    run(graph, 'insert Page { title: "a", meaning: [1, 2] } insert Note { title: "a" }')

    (page,) = nodes(graph, "Page").values()
    assert page["meaning"] == [1.0, 2.0]
    with pytest.raises(InvalidInputError, match=r"Page\.meaning is missing"):
        run(graph, "update Page set { meaning: null } where true")


def test_more_rows_than_a_mutation_may_change_are_counted_and_refused(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "LIMITS", replace(overlay.LIMITS, rows=2))

    with pytest.raises(InvalidInputError, match="3 rows, expected at most 2") as error:
        run(graph, "update Person set { age: 1 } where true")

    assert "omnigraph load --mode merge" in str(error.value)
    assert "nothing was written" in str(error.value)
    with pytest.raises(InvalidInputError, match="delete Person makes the mutation change 6 rows"):
        run(graph, 'delete Person where email = "ann" or email = "bob" delete Note where true')


def test_a_deletion_of_more_nodes_than_fit_runs_as_that_of_a_match(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "LIMITS", replace(overlay.LIMITS, rows=2))
    text = 'query q($least: I32) { delete Person where age >= $least or email = "bob" }'

    previewed = graph.mutate(text, {"least": 25}, dry_run=True)
    done = graph.mutate(text, {"least": 25})

    assert previewed.statements == done.statements
    assert (done.statements[0].nodes, done.statements[0].edges) == (2, 4)
    assert set(nodes(graph, "Person")) == {"cat"}
    assert [graph.count(name) for name in ("Knows", "WorksAt", "Wrote", "Note")] == [0, 0, 0, 1]
    assert graph.maintenance.check().ok


def test_more_memory_than_a_mutation_may_hold_is_refused(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "LIMITS", replace(overlay.LIMITS, bytes=100))

    with pytest.raises(InvalidInputError, match="expected at most 100"):
        run(graph, 'update Person set { name: "A" } where true')
    run(graph, "delete Person where true")
    with pytest.raises(InvalidInputError, match="expected at most 100"):
        run(graph, 'insert Person { email: $e, name: "A" }', "$e: String", e="e" * 2000)


def test_a_text_with_errors_is_refused_with_all_of_them(graph: Graph) -> None:
    with pytest.raises(QueryInvalidError) as error:
        run(graph, "update Persn set { age: 1 } where true delete Person where agee = 1")

    assert len(error.value.diagnostics) == 2


def test_a_query_that_reads_is_refused(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match=r"graph\.query"):
        graph.mutate("query q() { match { $p: Person } return { $p.id } }")


def test_parameters_are_checked_before_anything_runs(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match="is missing"):
        run(graph, "delete Person where age = $age", "$age: I32")
    with pytest.raises(InvalidInputError, match="no parameter"):
        run(graph, "delete Person where true", other=1)


def test_one_of_several_queries_is_chosen_by_name(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "changes.gq"
    path.write_text(
        "query all() { delete Note where true }\n"
        "query one($id: String) { delete Person where id = $id }\n"
    )

    graph.mutate(path, name="one", id="cat")

    assert set(nodes(graph, "Person")) == {"ann", "bob"}
    assert set(nodes(graph, "Note")) == {"n1"}


def test_a_graph_that_is_open_for_reading_is_not_changed(graph: Graph) -> None:
    with pytest.raises(ReadOnlyError):
        run(og.open(graph.root, read_only=True), "delete Person where true")


def test_a_mutation_on_a_branch_leaves_main_alone(graph: Graph) -> None:
    branch = graph.branches.create("dev")

    result = run(branch, 'delete Person where age = 20 insert Note { title: "x" }')

    assert result.commit_id == branch.snapshot().commit_id
    assert set(nodes(branch, "Person")) == {"ann", "cat"}
    assert set(nodes(graph, "Person")) == {"ann", "bob", "cat"}


def test_the_same_operation_changes_once(graph: Graph) -> None:
    text = "query q() { update Person set { age: age + 1 } where true }"
    operation = str(ULID())

    first = graph.mutate(text, operation_id=operation, actor="me")
    second = graph.mutate(text, operation_id=operation)

    assert first.commit_id == second.commit_id
    assert (second.tables, second.statements) == ({}, ())
    assert nodes(graph, "Person")["bob"]["age"] == 21
    assert graph.commits()[0].actor == "me"


def test_the_change_feed_sees_updates_as_updates(graph: Graph) -> None:
    before = graph.snapshot().commit_id
    assert before is not None

    run(
        graph,
        'update Person set { age: 1 } where email = "bob" delete Note where true '
        'insert Person { email: "dan", name: "D" }',
    )

    found = graph.diff(before).rows("node:Person").read_all().to_pylist()
    assert {(row["id"], row["op"]) for row in found} == {("bob", "update"), ("dan", "insert")}
