"""Choices for a graph that exists edit its mapping and its schema; a dry run shows what changes."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.importer.mapping_edits import SchemaEdit
from tests.cli.commands import run
from tests.importer.shapes import write_csv

pytestmark = pytest.mark.unit

PEOPLE = "id,name,boss,n\n1,Ann,2,1\n2,Bob,1,2\n3,Cyd,3,3"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = [
        write_csv(tmp_path / "people.csv", PEOPLE),
        write_csv(tmp_path / "companies.csv", "id,name\n1,Acme\n2,Beta"),
    ]
    og.import_data(str(tmp_path / "g"), files)
    return tmp_path


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_choices_edit_mapping_and_schema_and_keep_what_a_person_wrote(folder: Path) -> None:
    mapping = folder / "g.map.toml"
    mapping.write_text(mapping.read_text().replace("# Edit it", "# Mine: edit it"))
    people = write_csv(folder / "people.csv", "id,name,boss,n\n1,Ann,2,1\n4,unknown,1,4")
    options = og.ImportOptions(edges={"Person.boss": "Company"}, null_words=["unknown"])

    report = og.import_data(str(folder / "g"), people, options=options)
    again = og.import_data(str(folder / "g"), people)

    assert report.load is not None
    assert report.load.inserted == {"Person": 1, "HasBoss": 1, "PersonHasBoss": 2}
    assert "# Mine: edit it" in mapping.read_text()
    assert 'name = { column = "name", null = "unknown" }' in mapping.read_text()
    assert "edge PersonHasBoss: Person -> Company @card(0..1)" in (folder / "g.pg").read_text()
    assert again.load is not None
    assert again.load.commit_id is None
    asked = og.open(str(folder / "g")).query(
        "query q() { match { $p: Person { person_id: 4 } $p personHasBoss $c } "
        "return { $p.name, $c.name } }"
    )
    assert asked.to_pylist() == [{"p.name": None, "c.name": "Acme"}]


def test_forms_of_texts_are_kept_for_later_files(folder: Path) -> None:
    people = write_csv(folder / "people.csv", "id;name;boss;n\n5;Eve;1;5")

    report = og.import_data(
        str(folder / "g"), people, options=og.ImportOptions(delimiter=";", encoding="cp1252")
    )

    assert report.edits == ('+delimiter = ";"', '+encoding = "cp1252"')
    assert 'delimiter = ";"\nencoding = "cp1252"' in (folder / "g.map.toml").read_text()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"keys": {"Person": "name"}}, og.InvalidInputError, "published rows would get other ids"),
        ({"types": {"Person.name": "Date"}}, og.SchemaRefusedError, "from String to Date"),
        ({"edges": {"Person.bos": "Company"}}, og.InvalidInputError, "Person.bos"),
        ({"edges": {"Person.boss": "Firm"}}, og.InvalidInputError, "no type with a key"),
    ],
)
def test_choices_that_cannot_be_made_are_refused_and_change_nothing(
    folder: Path, options: dict[str, object], error: type[Exception], message: str
) -> None:
    before = tree(folder)

    with pytest.raises(error, match=message):
        og.import_data(
            str(folder / "g"),
            str(folder / "people.csv"),
            options=og.ImportOptions(**options),  # type: ignore[arg-type]
        )

    files = ("g.pg", "g.map.toml")
    assert [before[str(folder / name)] for name in files] == [
        (folder / name).read_bytes() for name in files
    ]
    assert len(og.open(str(folder / "g")).commits()) == 2


def test_a_dry_run_shows_what_would_change_and_writes_nothing(folder: Path) -> None:
    write_csv(folder / "people.csv", "id,name,boss,n\n1,Ann,2,1\n2,Bob,1,7\n4,Dan,2,4\nx,Eve,1,1")
    before = tree(folder)

    done = run(*("import", "./g", "people.csv", "--dry-run", "--max-rejected", "100%"), cwd=folder)
    choosing = run("import", "./g", "people.csv", "--dry-run", "--null", "Dan", cwd=folder)

    assert done.returncode == choosing.returncode == 0, done.stderr + choosing.stderr
    assert "Person          1        1" in done.stdout
    assert "  ~ 2: n 2 -> 7\n" in done.stdout
    assert "[[source]]" not in done.stdout
    assert "~Person.name: String -> String?" in choosing.stdout
    assert tree(folder) == before


def test_a_property_of_an_interface_is_not_changed_for_one_type(tmp_path: Path) -> None:
    schema = (
        "interface Named { name: String }\nnode Person implements Named { person_id: I64 @key }\n"
    )
    mapping = (
        'version = 1\n[[source]]\nname = "people"\n[[source.node]]\ntype = "Person"\n'
        '[source.node.properties]\nperson_id = "id"\nname = "name"\n'
    )
    people = write_csv(tmp_path / "people.csv", "id,name\n1,Ann")
    og.import_data(str(tmp_path / "g"), people, mapping=mapping, schema=schema)
    options = og.ImportOptions(null_words=["Ann"])

    with pytest.raises(og.InvalidInputError, match="Person does not declare it"):
        og.import_data(str(tmp_path / "g"), people, mapping=mapping, options=options)


def test_a_type_that_holds_every_value_replaces_that_of_a_property(tmp_path: Path) -> None:
    schema = "node Day { day: I64 @key  n: I32?  // not I32: yet\n}\n"
    mapping = (
        'version = 1\n[[source]]\nname = "days"\n[[source.node]]\ntype = "Day"\n'
        '[source.node.properties]\nday = "day"\nn = "n"\n'
    )
    days = write_csv(tmp_path / "days.csv", "day,n\n1,2")
    og.import_data(str(tmp_path / "g"), days, mapping=mapping, schema=schema)
    write_csv(tmp_path / "days.csv", "day,n\n1,2.5")

    report = og.import_data(
        str(tmp_path / "g"), days, mapping=mapping, options=og.ImportOptions(types={"Day.n": "F64"})
    )

    assert report.edits == ("~Day.n: I32? -> F64?",)
    assert "n: F64?  // not I32: yet" in report.schema


def test_a_property_is_changed_in_the_type_that_is_named_only() -> None:
    having, other = "node A {\n    n: I32\n}\n", "node B {\n    n: I32\n}\n"
    lacking = "node A {\n    k: String\n}\n"
    edit = SchemaEdit(owner="A", name="n", before="I32", after="I64")

    assert edit.apply(having + other) == having.replace("I32", "I64") + other
    assert edit.apply(lacking + other) == lacking + other
