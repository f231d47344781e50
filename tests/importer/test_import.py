"""Imports through the public interface: accounts, policies, repetition, inputs of all kinds."""

from __future__ import annotations

import json
import shlex
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import networkx as nx
import pandas as pd  # type: ignore[import-untyped]
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

import omnigraph_lake as og
from omnigraph_lake import ImportOptions, ImportReport, InvalidInputError, LoadRefusedError
from omnigraph_lake.load.formats import document_files
from omnigraph_lake.schema.show import show_type
from tests.importer.shapes import write_csv, write_lines

pytestmark = pytest.mark.unit


def people(folder: Path) -> list[str]:
    return [
        write_csv(folder / "people.csv", "id,name,company_id\n1,Ann,1\n2,Bob,2\n3,Cyd,"),
        write_csv(folder / "companies.csv", "id,name\n1,Acme\n2,Beta"),
    ]


def rows(root: str, type_name: str) -> list[dict[str, Any]]:
    table = og.open(root, read_only=True).scan(type_name).read_all()
    return sorted(table.to_pylist(), key=lambda row: str(row["id"]))


def account(report: ImportReport) -> tuple[int, int]:
    """What was read, and what came of it."""
    assert report.load is not None
    load = report.load
    outcomes = (load.written, load.already_there, load.quarantined)
    return load.read, sum(sum(outcome.values()) for outcome in outcomes)


def test_a_query_is_answered_after_one_call(tmp_path: Path) -> None:
    root = str(tmp_path / "g")

    report = og.import_data(root, people(tmp_path))

    answer = og.open(root).query(
        "query q() { match { $p: Person $p hasCompany $c } return { $p.name, $c.name } }"
    )
    assert answer.to_pylist() == [
        {"p.name": "Ann", "c.name": "Acme"},
        {"p.name": "Bob", "c.name": "Beta"},
    ]
    assert str(report).startswith("imported 7 rows from 2 sources in ")
    command = shlex.split(report.next_steps[1])
    assert og.open(command[2]).query(command[4]).to_pylist() == [
        {"a.name": "Ann", "b.name": "Acme"},
        {"a.name": "Bob", "b.name": "Beta"},
    ]
    assert "HasCompany" in report._repr_html_()
    assert report.created
    assert og.open(root).commits()[0].message == "import people.csv, companies.csv"
    assert (tmp_path / "g.pg").read_text().endswith(f"\n{report.schema}")
    assert (tmp_path / "g.map.toml").read_text().endswith(f"\n{report.mapping}")


def test_the_message_of_an_import_names_three_of_its_inputs_or_is_that_of_the_caller(
    tmp_path: Path,
) -> None:
    root = str(tmp_path / "g")
    files = [write_csv(tmp_path / f"{name}.csv", f"{name}_id\n1") for name in "abcde"]

    og.import_data(root, files)
    more = pa.table({"a_id": ["2"]})
    og.import_data(root, {"a": more}, mapping=tmp_path / "g.map.toml", message="by hand")

    assert [commit.message for commit in og.open(root).commits()][:2] == [
        "by hand",
        "import a.csv, b.csv, c.csv and 2 more",
    ]


def test_a_changed_reference_moves_its_edge(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    files = people(tmp_path)
    og.import_data(root, files)
    write_csv(tmp_path / "people.csv", "id,name,company_id\n1,Ann,2\n2,Bob,2\n4,Dan,1")

    again = og.import_data(root, files)

    assert again.load is not None
    assert again.load.inserted["Person"] == 1
    ends = {(row["src"], row["dst"]) for row in rows(root, "HasCompany")}
    assert ends == {("1", "2"), ("2", "2"), ("4", "1")}


def test_rejected_records_are_grouped_by_cause_with_the_fix(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    header = "id,age\n"
    good = "".join(f"{number},{number % 90}\n" for number in range(100))
    og.import_data(root, write_csv(tmp_path / "people.csv", header + good))
    bad = "100,old\n101,older\n102\n,7\n"
    write_csv(tmp_path / "people.csv", header + good + bad)

    report = og.import_data(root, str(tmp_path / "people.csv"))

    read, accounted = account(report)
    assert read == accounted == 104
    causes = {(cause.count, cause.reason, cause.column) for cause in report.causes}
    assert causes == {
        (2, "wrong_type", "age"),
        (1, "malformed", ""),
        (1, "missing_required", "person_id"),
    }
    (wrong, *_) = report.causes
    assert wrong.example == "found 'old', expected I64"
    assert "`parse`" in wrong.fix
    assert report.load is not None
    assert report.load.quarantine is not None


def test_more_rejected_records_than_allowed_are_refused_with_causes(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    path = write_csv(tmp_path / "people.csv", "id,age\n1,2\n2,3")
    og.import_data(root, path)
    write_csv(tmp_path / "people.csv", "id,age\n1,x\n2,y\n3,4")

    with pytest.raises(LoadRefusedError, match=r"2 wrong_type: Person\.age: found 'x'") as refused:
        og.import_data(root, path)

    assert "--map" in str(refused.value)
    assert [row["age"] for row in rows(root, "Person")] == [2, 3]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_unknown_columns_are_a_choice(tmp_path: Path, ending: str) -> None:
    root = str(tmp_path / "g")

    def write(records: list[dict[str, Any]]) -> str:
        path = tmp_path / f"people.{ending}"
        if ending == "jsonl":
            return write_lines(path, records)
        lines = [",".join(map(str, record.values())) for record in records]
        return write_csv(path, "\n".join([",".join(records[0]), *lines]))

    keep = ImportOptions(unknown_columns="keep", max_rejected="100%")
    og.import_data(root, write([{"id": 1, "name": "Ann"}]), options=keep)
    path = write([{"id": 2, "name": "Bob", "nmae": "B"}])

    kept = og.import_data(root, path, options=keep)
    ignored = og.import_data(root, path, options=ImportOptions(unknown_columns="ignore"))

    assert account(kept) == account(ignored) == (1, 1)
    assert rows(root, "Person")[1]["extra"] == '{"nmae":"B"}'
    error = ImportOptions(unknown_columns="error")
    with pytest.raises((InvalidInputError, LoadRefusedError), match="'nmae'; did you mean `name`"):
        og.import_data(root, path, options=error)


def test_unknown_columns_are_kept_only_where_a_property_is_for_them(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    og.import_data(root, people(tmp_path))

    with pytest.raises(InvalidInputError, match="has no property for those of people"):
        og.import_data(root, people(tmp_path), options=ImportOptions(unknown_columns="keep"))


def test_missing_endpoints_are_rejected_or_created(tmp_path: Path) -> None:
    files = [
        write_csv(
            tmp_path / "people.csv", "id,name,company_id\n1,Ann,1\n2,Bob,2\n3,Cyd,3\n4,Dan,4"
        ),
        write_csv(tmp_path / "companies.csv", "id,name\n1,Acme\n2,Beta\n3,Gamma"),
    ]
    few = ImportOptions(max_rejected=1)
    rejecting = og.import_data(str(tmp_path / "r"), files, options=few)
    create = ImportOptions(missing_endpoints="create")
    creating = og.import_data(str(tmp_path / "c"), files, options=create)

    assert account(rejecting)[0] == account(rejecting)[1]
    assert [(cause.reason, cause.count) for cause in rejecting.causes] == [("missing_endpoint", 1)]
    assert "--missing-endpoints create" in rejecting.causes[0].fix
    assert creating.causes == ()
    again = og.import_data(str(tmp_path / "c"), files, options=create)
    assert again.causes == ()
    with pytest.raises(InvalidInputError, match="Company cannot be created: name need"):
        og.import_data(str(tmp_path / "r"), files, options=create)
    assert [row["name"] for row in rows(str(tmp_path / "c"), "Company")] == [
        "Acme",
        "Beta",
        "Gamma",
        None,
    ]


def test_edited_mappings_rename_split_parse_and_default(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "people.csv",
        "nr,who,born,score,langs,flag,friends\n1,Ann,17.05.1990,'1.234.5',de/en,J,2;3\n"
        "2,Bob,n/a,,,N,\n3,Cyd,01.01.2000,7,fr,,1",
    )
    schema = """
node Person { nr: I64 @key name: String born: Date? score: F64? langs: [String]? flag: Bool }
edge Knows: Person -> Person
"""
    mapping = """
version = 1
[[source]]
name = "people"
[[source.node]]
type = "Person"
[source.node.properties]
nr = "nr"
name = "who"
born = { column = "born", parse = "date", format = "%d.%m.%Y", null = "n/a" }
score = { column = "score", parse = "number", null = "'1.234.5'" }
langs = { column = "langs", split = "/" }
flag = { column = "flag", parse = "boolean", true = "J", false = "N", default = false }
[[source.edge]]
type = "Knows"
each = "friends"
each_split = ";"
from = { type = "Person", key = { nr = "nr" } }
to = { type = "Person", key = { nr = "friends" } }
"""
    root = str(tmp_path / "g")

    report = og.import_data(root, path, mapping=mapping, schema=schema, on_error="fail")

    assert report.load is not None
    assert dict(report.load.written) == {"Person": 3, "Knows": 3}
    ann, bob, cyd = rows(root, "Person")
    assert (ann["name"], str(ann["born"]), ann["langs"], ann["flag"]) == (
        "Ann",
        "1990-05-17",
        ["de", "en"],
        True,
    )
    assert (bob["born"], bob["langs"], bob["flag"]) == (None, None, False)
    assert (cyd["score"], cyd["flag"]) == (7.0, False)
    assert {(e["src"], e["dst"]) for e in rows(root, "Knows")} == {
        ("1", "2"),
        ("1", "3"),
        ("3", "1"),
    }


FRAMES = {
    "people": {"id": [1, 2], "name": ["Ann", "Bob"], "town_id": ["u", None]},
    "towns": {"code": ["u"], "size": [1.5]},
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "frame",
    [pa.table, pl.DataFrame, pd.DataFrame, lambda data: pa.table(data).to_pylist()],
    ids=["arrow", "polars", "pandas", "dicts"],
)
def test_frames_are_imported_by_name(tmp_path: Path, frame: Any) -> None:
    root = str(tmp_path / "g")

    report = og.import_data(root, {name: frame(data) for name, data in FRAMES.items()})

    assert report.load is not None
    assert dict(report.load.written) == {"Person": 2, "Town": 1, "HasTown": 1}
    assert [row["name"] for row in rows(root, "Person")] == ["Ann", "Bob"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [nx.DiGraph, nx.MultiDiGraph])
def test_networkx_graphs_are_imported(tmp_path: Path, kind: Any) -> None:
    graph = kind()
    graph.add_node("a", size=1)
    graph.add_node("b", size=2)
    graph.add_edge("a", "b", weight=0.5)
    graph.add_edge("a", "b", weight=0.7)

    report = og.import_data(str(tmp_path / "g"), graph)

    assert report.load is not None
    edges = 2 if graph.is_multigraph() else 1
    assert dict(report.load.written) == {"Node": 2, "Edges": edges}


def test_files_that_may_have_been_edited_are_not_overwritten(tmp_path: Path) -> None:
    files = people(tmp_path)
    (tmp_path / "g.pg").write_text("// mine\n")

    with pytest.raises(InvalidInputError, match="was edited or not written by an import"):
        og.import_data(str(tmp_path / "g"), files)

    assert (tmp_path / "g.pg").read_text() == "// mine\n"
    assert not (tmp_path / "g").exists()


def test_a_refused_import_leaves_no_graph_and_can_be_repeated_otherwise(tmp_path: Path) -> None:
    files = [
        write_csv(tmp_path / "people.csv", "id,company_id\n1,1\n2,2\n3,3\n4,4"),
        write_csv(tmp_path / "companies.csv", "id,name\n1,Acme\n2,Beta"),
    ]
    root = str(tmp_path / "g")

    with pytest.raises(LoadRefusedError, match="--missing-endpoints create"):
        og.import_data(root, files)

    assert not (tmp_path / "g").exists()
    assert (tmp_path / "g.map.toml").exists()
    create = ImportOptions(missing_endpoints="create")
    assert og.import_data(root, files, options=create).causes == ()


def test_a_new_graph_is_made_from_a_mapping_and_the_schema_that_it_names(tmp_path: Path) -> None:
    files = people(tmp_path)
    og.import_data(str(tmp_path / "g"), files)

    second = og.import_data(str(tmp_path / "h"), files, mapping=tmp_path / "g.map.toml")

    assert second.created
    assert second.mapping_file is None
    assert rows(str(tmp_path / "h"), "Person") == rows(str(tmp_path / "g"), "Person")


def test_a_graph_without_a_mapping_is_not_guessed_at(tmp_path: Path) -> None:
    og.init(str(tmp_path / "g"), schema="node Person { name: String @key }")

    with pytest.raises(InvalidInputError, match=r"its mapping .* does not"):
        og.import_data(str(tmp_path / "g"), people(tmp_path))


def test_an_import_into_a_branch_leaves_main_alone(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    files = people(tmp_path)
    og.import_data(root, files)
    write_csv(tmp_path / "people.csv", "id,name,company_id\n9,Eve,1")

    og.import_data(root, files, options=ImportOptions(branch="dev"))

    graph = og.open(root)
    assert graph.count("Person") == 3
    assert graph.checkout("dev").count("Person") == 4


def test_records_without_a_key_have_ids_of_their_content(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    path = write_csv(tmp_path / "logs.csv", "level,text,code\n1,a,5\n1,b,5\n2,a,5\n1,a,5")

    first = og.import_data(root, path)
    again = og.import_data(root, path)

    assert "digest of the record" in first.schema
    assert account(first) == (4, 4)
    assert len(rows(root, "Log")) == 4
    assert again.load is not None
    assert again.load.already_there == {"Log": 4}
    assert again.load.commit_id is None


def test_parallel_edges_are_told_apart(tmp_path: Path) -> None:
    path = write_csv(
        tmp_path / "payments.csv",
        "from,to,amount,day\na,b,5,2024-01-01\na,b,5,2024-01-02\nb,a,1,2024-01-01",
    )

    report = og.import_data(str(tmp_path / "g"), path)

    assert report.load is not None
    assert dict(report.load.written) == {"Node": 2, "Payments": 3}


def test_tables_of_a_json_document_are_sources(tmp_path: Path) -> None:
    document = {
        "users": [{"id": 1, "team_id": "x"}, {"id": 2, "team_id": "x"}],
        "teams": [{"id": "x", "size": 2}],
    }
    (tmp_path / "dump.json").write_text(json.dumps(document, indent=1))

    report = og.import_data(str(tmp_path / "g"), str(tmp_path / "dump.json"))

    assert report.load is not None
    assert dict(report.load.written) == {"User": 2, "Team": 1, "HasTeam": 2}


@pytest.mark.parametrize("piece", [3, 1 << 20])
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a":', "expecting value at line 1, column 6"),
        ('[{"k": 1},\n {"k": 2},\n {"k": x}]', "expecting value at line 3, column 8"),
        ('{"people": [{"k": 1}\n  {"k": 2}]}', "found '{', expected ']' at line 2, column 3"),
        ('[{"k": 1},\n {"k": 2}', "found 'the end', expected ']' at line 2, column 10"),
    ],
)
def test_a_malformed_document_is_refused_by_name_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, fault: str, piece: int
) -> None:
    monkeypatch.setattr(document_files, "_PIECE", piece)
    path = tmp_path / "dump.json"
    path.write_text(text, errors="surrogateescape")

    with pytest.raises(InvalidInputError) as refused:
        og.import_data(str(tmp_path / "g"), str(path))

    assert f"{path} is not valid JSON: {fault}" in str(refused.value)


def test_entities_of_xml_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.graphml"
    path.write_text(
        '<?xml version="1.0"?><!DOCTYPE g [<!ENTITY a "x">]><graphml><graph>'
        '<node id="&a;"/></graph></graphml>'
    )

    with pytest.raises(InvalidInputError, match="document type"):
        og.import_data(str(tmp_path / "g"), str(path))

    assert not (tmp_path / "g").exists()


def test_servers_are_refused_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="CSV or Parquet"):
        og.import_data(str(tmp_path / "g"), "mysql://localhost/db")


def write_decimals(path: Path, ids: list[int], **columns: tuple[pa.DataType, list[Any]]) -> str:
    arrays = {name: pa.array(values, kind) for name, (kind, values) in columns.items()}
    pq.write_table(pa.table({"id": ids, **arrays}), path)
    return str(path)


def test_decimals_of_parquet_keep_their_digits(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    price, small = Decimal("1234567890123456.78"), Decimal("0.0000000000000000000000000001")
    wide = Decimal("1234567890123456789012345678901234567890.5")
    source = write_decimals(
        tmp_path / "items.parquet",
        [1, 2],
        price=(pa.decimal128(18, 2), [price, None]),
        small=(pa.decimal128(38, 28), [small, -small]),
        whole=(pa.decimal128(20, 0), [Decimal(10**19), Decimal(-1)]),
        count=(pa.decimal128(9, 0), [Decimal(7), Decimal(8)]),
        fits=(pa.decimal256(60, 30), [Decimal("12.5"), Decimal("-0.125")]),
        wide=(pa.decimal256(60, 1), [wide, None]),
    )

    og.import_data(root, source)

    properties = og.open(root).schema.catalog.nodes["Item"].properties.values()
    assert {prop.name: show_type(prop.type) for prop in properties} == {
        "item_id": "I64",
        "price": "Decimal(18, 2)",
        "small": "Decimal(38, 28)",
        "whole": "Decimal(20, 0)",
        "count": "I64",
        "fits": "Decimal(28, 3)",
        "wide": "String",
    }
    first, second = rows(root, "Item")
    assert (first["price"], first["small"], first["whole"]) == (price, small, Decimal(10**19))
    assert (first["fits"], first["wide"], first["count"]) == (Decimal("12.5"), str(wide), 7)
    assert (second["fits"], second["small"]) == (Decimal("-0.125"), -small)


def test_files_with_decimals_of_other_digits_share_a_type(tmp_path: Path) -> None:
    root, folder = str(tmp_path / "g"), tmp_path / "items"
    folder.mkdir()
    for number, (kind, value) in enumerate(
        (
            (pa.decimal128(12, 2), "1.25"),
            (pa.decimal128(9, 4), "2.0625"),
            (pa.decimal128(5, 0), "7"),
        )
    ):
        write_decimals(folder / f"part-{number}.parquet", [number], cost=(kind, [Decimal(value)]))

    og.import_data(root, str(folder))

    (node,) = og.open(root).schema.catalog.nodes.values()
    assert show_type(node.properties["cost"].type) == "Decimal(23, 4)"
    assert [row["cost"] for row in rows(root, node.name)] == [
        Decimal("1.25"),
        Decimal("2.0625"),
        Decimal(7),
    ]


def test_lists_of_structs_of_parquet_become_nodes(tmp_path: Path) -> None:
    items = [[{"sku": "x", "n": 1}, {"sku": "x", "n": 2}], []]
    pq.write_table(pa.table({"id": [1, 2], "items": items}), tmp_path / "orders.parquet")
    root = str(tmp_path / "g")

    report = og.import_data(root, str(tmp_path / "orders.parquet"))

    assert report.load is not None
    assert dict(report.load.written) == {"Order": 2, "Item": 2, "HasItem": 2}
    assert [row["id"] for row in rows(root, "Item")] == ['["1","0"]', '["1","1"]']


def test_exports_of_neo4j_with_several_kinds_of_one_label(tmp_path: Path) -> None:
    """What some nodes of a type lack is nullable; edges have one kind of nodes at each end."""
    ann = {"id": "0", "labels": ["User"]}
    bob = {"id": "1", "labels": ["User", "Admin"]}
    team = {"id": "2", "labels": ["Team"]}
    records = [
        {"type": "node", **ann, "properties": {"name": "Ann", "rank": 1}},
        {"type": "node", **bob, "properties": {"name": "Bob", "rank": 1.5, "since": 2020}},
        {"type": "node", **team, "properties": {"name": "Red"}},
        {"type": "relationship", "id": "0", "label": "KNOWS", "start": ann, "end": bob},
        {"type": "relationship", "id": "1", "label": "KNOWS", "start": bob, "end": team},
    ]
    root = str(tmp_path / "g")

    report = og.import_data(root, write_lines(tmp_path / "all.jsonl", records), on_error="fail")

    assert report.load is not None
    assert report.load.written == {"User": 2, "Team": 1, "Knows": 1, "UserKnowsTeam": 1}
    assert [(row["rank"], row["since"]) for row in rows(root, "User")] == [(1.0, None), (1.5, 2020)]


def test_files_of_one_neo4j_label_are_one_type(tmp_path: Path) -> None:
    files = [
        write_csv(tmp_path / "a.csv", "id:ID,name,age:int,:LABEL\n1,Ann,41,Person"),
        write_csv(tmp_path / "b.csv", "id:ID,name,town,:LABEL\n2,Bob,Ulm,Person"),
    ]
    root = str(tmp_path / "g")

    report = og.import_data(root, files, on_error="fail")

    assert report.load is not None
    assert report.load.written == {"Person": 2}
    assert [(row["age"], row["town"]) for row in rows(root, "Person")] == [
        (41, None),
        (None, "Ulm"),
    ]


def test_a_text_in_a_column_of_integers_of_sqlite_is_one_rejected_record(tmp_path: Path) -> None:
    root, path = str(tmp_path / "g"), tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("create table item (id integer primary key, amount integer)")
        rows_of_items = [(n, "many" if n == 7 else n * 2) for n in range(1, 31)]
        database.executemany("insert into item values (?, ?)", rows_of_items)
    database.close()

    report = og.import_data(root, str(path))

    (cause,) = report.causes
    assert (cause.count, cause.line, cause.column) == (1, 7, "amount")
    assert "'many'" in cause.example
    assert report.load is not None
    assert dict(report.load.written) == {"Item": 29}
    assert "amount: I64" in report.schema


def test_views_and_lists_of_dictionaries_of_arrow_are_read(tmp_path: Path) -> None:
    categories = pa.array(
        [["a"], ["b", "a"], None], pa.list_(pa.dictionary(pa.int8(), pa.string()))
    )
    scans = pa.array([b"\xff", None, b"b"], pa.binary_view())
    table = pa.table({"id": [1, 2, 3], "categories": categories, "scan": scans})
    feather.write_feather(table, str(tmp_path / "books.arrow"), compression="uncompressed")

    report = og.import_data(str(tmp_path / "g"), str(tmp_path / "books.arrow"))

    assert "categories: [String]?" in report.schema
    assert "scan: Blob?" in report.schema
    books = rows(str(tmp_path / "g"), "Book")
    assert [row["categories"] for row in books] == [["a"], ["b", "a"], None]


def test_rejected_records_of_a_database_are_numbered_in_their_table(tmp_path: Path) -> None:
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(
            "CREATE TABLE a (id INTEGER PRIMARY KEY, n INTEGER);"
            "CREATE TABLE b (id INTEGER PRIMARY KEY, n INTEGER);"
            "INSERT INTO a VALUES (1, 5), (2, 5), (3, 5); INSERT INTO b VALUES (1, 5), (2, 6);"
        )
    og.import_data(str(tmp_path / "g"), str(path))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE b SET n = 'many' WHERE id = 2")
    database.close()

    report = og.import_data(str(tmp_path / "g"), str(path), options=ImportOptions(max_rejected=1))

    (cause,) = report.causes
    assert (cause.source, cause.line) == (f"{path}#b", 2)


def test_causes_of_a_refused_import_count_all_records(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    path = write_csv(tmp_path / "people.csv", "id,age\n1,2\n2,3")
    og.import_data(root, path)
    write_csv(tmp_path / "people.csv", "id,age\n" + "".join(f"{n},x\n" for n in range(50)))

    with pytest.raises(LoadRefusedError, match=r"50 wrong_type: Person\.age: found 'x'"):
        og.import_data(root, path)


def test_lists_in_texts_have_no_empty_items(tmp_path: Path) -> None:
    """In CSV as in JSON."""
    schema = "node A { id_: I64 @key } edge E: A -> A"
    mapping = """
version = 1
[[source]]
name = "a"
[[source.node]]
type = "A"
[source.node.properties]
id_ = "n"
[[source.edge]]
type = "E"
each = "to"
each_split = ";"
from = { type = "A", key = { id_ = "n" } }
to = { type = "A", key = { id_ = "to" } }
"""
    csv_path = write_csv(tmp_path / "a.csv", "n,to\n1,2;; 1 ;\n2,")
    lines_path = write_lines(tmp_path / "a.jsonl", [{"n": 1, "to": "2;; 1 ;"}, {"n": 2}])

    written = [
        og.import_data(
            str(tmp_path / f"g{number}"), path, mapping=mapping, schema=schema, on_error="fail"
        ).load
        for number, path in enumerate((csv_path, lines_path))
    ]

    assert [load and load.written for load in written] == [{"A": 2, "E": 2}] * 2


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_items_of_records_without_a_key_belong_to_their_records(
    tmp_path: Path, ending: str
) -> None:
    records = [
        {"level": 1, "parts": [{"n": 1}, {"n": 1}]},
        {"level": 1, "parts": [{"n": 1}]},
        {"level": 1, "parts": []},
    ]
    path = tmp_path / f"logs.{ending}"
    if ending == "jsonl":
        write_lines(path, records)
    else:
        pq.write_table(pa.Table.from_pylist(records), path)
    root = str(tmp_path / "g")

    report = og.import_data(root, str(path), on_error="fail")

    assert report.load is not None
    assert dict(report.load.written) == {"Log": 3, "Part": 3, "HasPart": 3}
    sources = [edge["src"] for edge in rows(root, "HasPart")]
    assert sorted(map(sources.count, set(sources))) == [1, 2]


def test_records_with_ends_and_lists_of_objects_are_nodes(tmp_path: Path) -> None:
    """An edge cannot have edges to its items."""
    records = [{"from": "a", "to": "b", "stops": [{"at": 1}]}, {"from": "a", "to": "c"}]

    report = og.import_data(
        str(tmp_path / "g"), write_lines(tmp_path / "trips.jsonl", records), on_error="fail"
    )

    assert report.load is not None
    assert dict(report.load.written) == {"Trip": 2, "Stop": 1, "HasStop": 1}


@pytest.mark.parametrize(
    ("first", "last"),
    [(5, [{"a": 1}]), (5, {"a": 1}), ({"a": 1}, [{"a": 1}]), ([{"a": 1}], "x")],
)
def test_what_is_nested_in_some_records_only_is_kept_as_json(
    tmp_path: Path, first: Any, last: Any
) -> None:
    """Also if each batch of records alone would be something else."""
    path = tmp_path / "things.jsonl"
    lines = [{"id": 1, "value": first}, {"id": 2, "value": last}]
    # A line that has no end is a batch of its own.
    path.write_text("\n".join(map(json.dumps, lines)))
    root = str(tmp_path / "g")

    og.import_data(root, str(path), on_error="fail")

    values = [row["value"] for row in rows(root, "Thing")]
    assert [
        value if isinstance(value, str) and value == "x" else json.loads(value) for value in values
    ] == [first, last]


@pytest.mark.parametrize("values", [["", "a"], [[0.5] * 8, [1.5] * 8]], ids=["empty", "list"])
def test_what_no_id_can_be_made_of_is_no_key(tmp_path: Path, values: list[Any]) -> None:
    records = [{"user_id": value, "parent": n} for n, value in enumerate(values)]

    report = og.import_data(
        str(tmp_path / "g"), write_lines(tmp_path / "logs.jsonl", records), on_error="fail"
    )

    assert "@key" not in report.schema


def test_frames_may_be_called_like_paths(tmp_path: Path) -> None:
    root = str(tmp_path / "g")

    report = og.import_data(root, {"../up/people": [{"id": 1, "name": "Ann"}]})

    assert report.load is not None
    assert sum(report.load.written.values()) == 1
