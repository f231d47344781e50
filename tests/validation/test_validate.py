from __future__ import annotations

import pyarrow as pa
import pytest

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.validation.constraints import WriteMode
from tests.schema.compiling import compiled
from tests.validation.graphs import PEOPLE, checked, edge, findings, person

pytestmark = pytest.mark.unit


def test_a_clean_write_gives_tables_by_key_ready_to_store() -> None:
    write = checked({"Knows": [edge(None, "a", "b")], "Person": [{"email": "a"}, {"email": "b"}]})

    assert write.report.ok
    assert list(write.tables) == ["node:Person", "edge:Knows"]
    assert write.tables["edge:Knows"].to_pylist() == [{"id": "new1", "src": "a", "dst": "b"}]
    assert write.bad_rows == {}
    assert write.deletions == {}


def test_validated_tables_can_be_validated_again() -> None:
    first = checked({"Knows": [edge(None, "a", "b")], "Person": [{"email": "a"}, {"email": "b"}]})

    second = checked(first.tables)

    assert second.report.ok
    assert second.tables == first.tables


def test_all_kinds_of_faults_come_in_one_report() -> None:
    inputs = {
        "Person": [{"email": "a", "nick": 5}, {"email": ""}, {"emial": "x"}],
        "Knows": [edge("k", "a", "zed"), edge("k", "a", "a")],
    }

    write = checked(inputs)

    assert sorted(findings(write), key=str) == sorted(
        [
            ("unknown_column", "emial", None),
            ("wrong_type", "nick", 0),
            ("missing_required", "email", 2),
            ("bad_id", "id", 1),
            ("missing_endpoint", "dst", 0),
        ],
        key=str,
    )
    assert {key: rows.to_pylist() for key, rows in write.bad_rows.items()} == {
        "node:Person": [0, 1, 2],
        "edge:Knows": [0],
    }


def test_a_row_with_a_fault_is_still_an_endpoint() -> None:
    inputs = {"Person": [{"email": "a", "nick": 5}], "Knows": [edge(None, "a", "a")]}

    assert findings(checked(inputs)) == [("wrong_type", "nick", 0)]


@pytest.mark.parametrize("mode", WriteMode)
@pytest.mark.parametrize("source", [[], pa.table({}), pa.table({"email": pa.nulls(0)})])
def test_an_empty_input_is_a_clean_write(mode: WriteMode, source: object) -> None:
    write = checked({"Person": source, "Knows": []}, mode=mode)

    assert write.report.ok
    assert len(write.tables["node:Person"]) == 0


def test_a_node_with_nothing_but_optional_properties_may_be_empty() -> None:
    write = checked({"Pet": [{}, {}]})

    assert write.tables["node:Pet"]["id"].to_pylist() == ["new1", "new2"]
    assert write.report.ok


def test_an_unknown_type_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidInputError, match="no type 'Persn'; did you mean `Person`"):
        checked({"Persn": []})


def test_a_name_shared_by_a_node_and_an_edge_type_is_spelt_as_table_key() -> None:
    catalog = compiled("node Link { a: String @key } edge Link: Link -> Link")

    write = checked({"node:Link": [{"a": "x"}], "edge:Link": []}, catalog=catalog)

    assert list(write.tables) == ["node:Link", "edge:Link"]
    with pytest.raises(InvalidInputError, match="node type and an edge type"):
        checked({"Link": []}, catalog=catalog)


def test_one_type_named_twice_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="twice"):
        checked({"Person": [], "node:Person": []})


@pytest.mark.parametrize(
    "ids", [["p"], pa.array(["p", "p", None]), pa.chunked_array([["p"]]), {"p"}]
)
def test_ids_to_delete_come_as_any_list_of_strings(ids: object) -> None:
    write = checked({}, rows={"node:Person": [person("p")]}, deleted={"Person": ids})

    assert write.deletions["node:Person"].to_pylist() == ["p"]


@pytest.mark.parametrize("ids", ["ann", 5, [5], ["a\ud800"]])
def test_ids_to_delete_that_are_no_strings_are_refused(ids: object) -> None:
    with pytest.raises(InvalidInputError, match="ids of Person to delete"):
        checked({}, deleted={"Person": ids})


def test_counts_stay_exact_beyond_what_is_spelt_out() -> None:
    write = checked({"Person": pa.table({"email": pa.nulls(1000), "nick": ["n"] * 1000})})

    assert write.report.total == 1000
    assert len(write.report.kept) == 100
    assert len(write.bad_rows["node:Person"]) == 1000


def test_the_schema_of_a_table_is_the_schema_of_its_type() -> None:
    write = checked({"Owns": pa.table({"dst": pa.array(["x"]).dictionary_encode(), "src": ["y"]})})

    assert write.tables["edge:Owns"].schema.names == ["id", "src", "dst", "since"]
    assert len(PEOPLE.edges) == 2
