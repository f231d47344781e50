"""The account of an import: what became of every record, by source and type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph_lake as og
from omnigraph_lake import ImportOptions, LoadRefusedError
from omnigraph_lake.load.report import LoadReport
from tests.importer.shapes import write_csv, write_lines

pytestmark = pytest.mark.unit

SCHEMA = """
node Person { person_id: I64 @key name: String age: I32? }
node Town { name: String @key size: I64? }
edge LivesIn: Person -> Town
edge Knows: Person -> Person
"""
MAPPING = """
version = 1
[[source]]
name = "people"
unknown_columns = "ignore"
[[source.node]]
type = "Person"
where = { kind = "person" }
[source.node.properties]
person_id = "id"
name = "name"
age = "age"
[[source.edge]]
type = "LivesIn"
where = { kind = "person" }
from = { type = "Person", key = { person_id = "id" } }
to = { type = "Town", key = { name = "town" }, missing = "create" }
single = true
optional = true
[[source.edge]]
type = "Knows"
each = "friends"
from = { type = "Person", key = { person_id = "id" } }
to = { type = "Person", key = { person_id = "friends" } }
[[source]]
name = "towns"
[[source.node]]
type = "Town"
[source.node.properties]
name = "name"
size = "size"
"""
PEOPLE: list[Any] = [
    {"kind": "person", "id": 1, "name": "Ann", "age": 41, "town": "Ulm", "friends": [2, 3]},
    {"kind": "person", "id": 2, "name": "Bob", "age": 7, "town": "Bonn"},
    {"kind": "person", "id": 1, "name": "Anne", "age": 42, "town": "Bonn", "friends": [2, 9]},
    {"kind": "person", "id": 3, "name": "Cyd", "age": "old", "town": "Ulm"},
    {"kind": "person", "id": 4, "name": "Dan", "friends": []},
    {"kind": "robot"},
    5,
]
TOWNS = "name,size\nUlm,120\nKiel,5\nUlm,130\n"


def lines_of(load: LoadReport | None) -> dict[tuple[str, str | None], dict[str, Any]]:
    assert load is not None
    lines = {}
    for line in load.accounts:
        outcomes = (line.written, line.already_there, line.replaced, line.skipped)
        assert line.records == sum(outcomes) + sum(line.rejected.values())
        counts = {name: getattr(line, name) for name in line.__dataclass_fields__}
        key = (counts.pop("source"), counts.pop("type"))
        lines[key] = {name: count for name, count in counts.items() if count}
    return lines


def imported(folder: Path, *, towns_first: bool = False, **options: Any) -> og.ImportReport:
    files = [
        write_lines(folder / "people.jsonl", PEOPLE),
        write_csv(folder / "towns.csv", TOWNS),
    ]
    if towns_first:
        files.reverse()
    loose = ImportOptions(max_rejected=None if "on_error" in options else "100%")
    root = str(folder / "g")
    return og.import_data(root, files, mapping=MAPPING, schema=SCHEMA, options=loose, **options)


EXPECTED = {
    ("people", "Person"): {
        "records": 6,
        "written": 3,
        "replaced": 1,
        "rejected": {"wrong_type": 1},
        "skipped": 1,
    },
    ("people", "LivesIn"): {
        "records": 6,
        "written": 2,
        "replaced": 1,
        "rejected": {"missing_endpoint": 1},
        "skipped": 2,
    },
    ("people", "Knows"): {
        "records": 4,
        "written": 1,
        "replaced": 1,
        "rejected": {"missing_endpoint": 2},
    },
    ("people", "Town"): {"records": 1, "written": 1, "distinct": True},
    ("people", None): {"records": 1, "rejected": {"malformed": 1}},
    ("towns", "Town"): {"records": 3, "written": 2, "replaced": 1},
}


def test_every_record_is_accounted_for(tmp_path: Path) -> None:
    assert lines_of(imported(tmp_path).load) == EXPECTED


def test_a_second_import_has_every_record_already_there(tmp_path: Path) -> None:
    imported(tmp_path)

    lines = lines_of(imported(tmp_path).load)

    assert not any("written" in line for line in lines.values())
    assert lines["people", "Person"]["already_there"] == 3
    assert lines["towns", "Town"] == {"records": 3, "already_there": 2, "replaced": 1}


def test_a_refused_import_and_a_dry_run_have_the_same_account(tmp_path: Path) -> None:
    with pytest.raises(LoadRefusedError) as refused:
        imported(tmp_path, on_error="fail")
    report = refused.value.report
    assert isinstance(report, LoadReport)

    published = lines_of(imported(tmp_path).load)

    assert lines_of(report) == published
    assert lines_of(imported(tmp_path, dry_run=True).load).keys() == published.keys()


@pytest.mark.parametrize("towns_first", [False, True])
def test_a_created_node_does_not_replace_the_record_of_its_key(
    towns_first: bool, tmp_path: Path
) -> None:
    report = imported(tmp_path, towns_first=towns_first)

    assert lines_of(report.load) == EXPECTED
    towns = og.open(str(tmp_path / "g")).scan("Town").read_all().to_pylist()
    assert {row["name"]: row["size"] for row in towns} == {"Ulm": 130, "Bonn": None, "Kiel": 5}


CUSTOMERS = ["customer_id,name", *(f"C{n},n{n}" for n in range(50)), "C7,Changed"]


@pytest.mark.parametrize(
    ("choice", "name", "replaced"),
    [("last", "Changed", (9, 52)), ("first", "n7", (52, 9))],
)
def test_one_of_several_records_with_a_key_stands(
    choice: str, name: str, replaced: tuple[int, int], tmp_path: Path
) -> None:
    root, path = str(tmp_path / "g"), tmp_path / "customers.csv"
    og.import_data(root, write_csv(path, "\n".join(CUSTOMERS[:-1])))
    write_csv(path, "\n".join(CUSTOMERS))

    report = og.import_data(root, str(path), on_duplicate=choice)  # type: ignore[arg-type]

    rows = {row["id"]: row["name"] for row in og.open(root).scan("Customer").read_all().to_pylist()}
    assert (len(rows), rows["C7"]) == (50, name)
    assert report.load is not None
    (record,) = report.load.replaced
    lost, stood = replaced
    assert str(record) == f"{path}:{lost}: customer_id C7 was replaced by {path}:{stood}"


def test_records_with_the_key_of_another_one_can_be_faults(tmp_path: Path) -> None:
    root, path = str(tmp_path / "g"), tmp_path / "customers.csv"
    og.import_data(root, write_csv(path, "\n".join(CUSTOMERS[:-1])))
    write_csv(path, "\n".join(CUSTOMERS))

    with pytest.raises(LoadRefusedError, match="duplicate_id"):
        og.import_data(root, str(path), on_duplicate="fail", on_error="fail")
    report = og.import_data(root, str(path), on_duplicate="fail")

    lines = lines_of(report.load)
    assert lines["customers", "Customer"] == {
        "records": 51,
        "already_there": 50,
        "rejected": {"duplicate_id": 1},
    }
    (cause,) = report.causes
    assert (cause.reason, cause.line) == ("duplicate_id", 52)


NESTED = """
version = 1
[[source]]
name = "shops"
unknown_columns = "ignore"
[[source.node]]
type = "Shop"
[source.node.properties]
name = "name"
[[source.node]]
type = "Product"
each = "EACH"
[source.node.properties]
sku = "EACH.sku"
"""
SHOPS = [{"name": "a", "products": [{"sku": "x", "related": [{"sku": "y"}]}]}, {"name": "b"}]


@pytest.mark.parametrize(
    ("each", "message"),
    [
        ("prodcts", "no record has 'prodcts'; did you mean `products`"),
        (
            "products.related",
            "its list is inside another list, and a rule takes the items of one list",
        ),
    ],
)
def test_a_rule_that_yields_nothing_is_an_error(each: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(og.InvalidInputError, match=message):
        og.import_data(
            str(tmp_path / "g"),
            write_lines(tmp_path / "shops.jsonl", SHOPS),
            mapping=NESTED.replace("EACH", each),
            schema="node Shop { name: String @key } node Product { sku: String @key }",
        )

    assert not (tmp_path / "g").exists()


def test_records_that_are_arrays_are_rows(tmp_path: Path) -> None:
    (tmp_path / "cities.json").write_text('[["Ulm", "DE"], ["Bonn", "DE"]]')
    files = [str(tmp_path / "cities.json"), write_csv(tmp_path / "towns.csv", TOWNS)]

    report = og.import_data(str(tmp_path / "g"), files)

    assert report.load is not None
    assert report.load.written["City"] == 2


def test_a_source_without_a_usable_record_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cities.json").write_text('["Ulm", "Bonn"]')
    files = [str(tmp_path / "cities.json"), write_csv(tmp_path / "towns.csv", TOWNS)]

    with pytest.raises(og.InvalidInputError, match="has no record that can be imported"):
        og.import_data(str(tmp_path / "g"), files)


def test_causes_come_before_what_follows_from_them(tmp_path: Path) -> None:
    towns = "name,size\n" + "".join(f"t{n},{n}\n" for n in range(20))
    people = "id,name,town\n" + "".join(f"{n},p{n},t{n % 20}\n" for n in range(60))
    paths = [write_csv(tmp_path / "towns.csv", towns), write_csv(tmp_path / "people.csv", people)]
    og.import_data(str(tmp_path / "g"), paths)
    write_csv(tmp_path / "towns.csv", "name,size\n" + "".join(f"u{n},big\n" for n in range(30)))
    write_csv(tmp_path / "people.csv", people + "".join(f"{n},q,u1\n" for n in range(60, 95)))

    report = og.import_data(str(tmp_path / "g"), paths, options=ImportOptions(max_rejected="100%"))

    causes = [(c.reason, c.type, c.column, c.count, Path(c.source).name) for c in report.causes]
    assert causes == [
        ("wrong_type", "Town", "size", 30, "towns.csv"),
        ("missing_endpoint", "HasTown", "dst", 35, "people.csv"),
    ]
    assert all(cause.example and cause.line for cause in report.causes)


def test_the_account_is_shown_by_source(tmp_path: Path) -> None:
    lines = imported(tmp_path)._page().text_lines(width=80, now=None)

    assert [line for line in lines if line.startswith(("people ", "towns ", "Town"))] == [
        "people           records  written  replaced  rejected  skipped",
        "Town (distinct)                 1         0         0        0",
        "towns  records  written  replaced",
        "Town         3        2         1",
    ]
