"""Mapping files are read as they were written, and what is wrong with one is said with its line."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.importer.mapping_file import read_mapping, write_mapping
from omnigraph_lake.load.formats.mapped import parse_texts
from omnigraph_lake.load.formats.mapping import (
    Condition,
    EdgeMapping,
    Endpoint,
    NodeMapping,
    Parse,
    SourceMapping,
    TextForm,
    UnknownColumns,
    ValueMapping,
)
from omnigraph_lake.schema import catalog as ct

pytestmark = pytest.mark.unit

EVERYTHING = SourceMapping(
    name='odd "name"',
    form=TextForm(header=("a", "b"), delimiter="\t", encoding="cp1252", key_column="key"),
    digest=("a.b", 'odd "column"'),
    nodes=(
        NodeMapping(
            type="A",
            id=ValueMapping(column="*"),
            properties={
                "born": ValueMapping(column="b\\d", parse=Parse.DATE, format="%d.%m.%Y"),
                "tags": ValueMapping(column="t", split="|", null=("", "-")),
                "n": ValueMapping(column="n", parse=Parse.NUMBER, thousands=".", decimal=","),
                "ok": ValueMapping(
                    column="o", parse=Parse.BOOLEAN, true=("J",), false=("N",), default="false"
                ),
            },
            each="x.y",
            each_split=";",
            where=(Condition(column="k d", equals=("a", "b")),),
            distinct=True,
            requires=("x.y.id",),
        ),
    ),
    edges=(
        EdgeMapping(
            type="E",
            source=Endpoint(type="A", key={"id": ValueMapping(column="*")}),
            target=Endpoint(type="B", key={"p": ValueMapping(column="q")}, create=True),
            properties={"w": ValueMapping(column="w")},
            id=("w",),
            optional=True,
        ),
        EdgeMapping(
            type="F",
            source=Endpoint(type="A", key={"p": ValueMapping(column="q")}),
            target=Endpoint(type="B", key={"p": ValueMapping(column="q")}),
            new_id=True,
        ),
    ),
    ignored=("unused",),
    unknown=UnknownColumns.KEEP,
    kept_in="extra",
)


def test_a_mapping_is_read_as_it_was_written() -> None:
    text = write_mapping([EVERYTHING], schema="a.pg")

    mapping_file = read_mapping(text, name="a.map.toml")

    assert mapping_file.mappings == (EVERYTHING,)
    assert mapping_file.schema == "a.pg"


SMALL = """version = 1
[[source]]
name = "people"
[[source.node]]
type = "Person"
[source.node.properties]
name = "name"
born = { column = "born", parse = "date" }
[[source.edge]]
type = "Knows"
from = { type = "Person", key = { name = "name" } }
to = { type = "Person", key = { name = "friend" } }
"""
SCHEMA = "node Person { name: String @key born: Date? } edge Knows: Person -> Person"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("version = 1", "version = 2", "version: found 2, expected 1"),
        ("version = 1", "version = ", "is not TOML"),
        ('name = "people"', 'nmae = "people"', "m.toml:3: source.nmae: .* did you mean `name`"),
        ('parse = "date"', 'parse = "dat"', "m.toml:8: .*expected date .* did you mean `date`"),
        ('parse = "date"', 'prase = "date"', "m.toml:8: .*prase: .* did you mean `parse`"),
        ('parse = "date"', 'format = "%Y"', "m.toml:8: .*expected parse"),
        ('type = "Person"\n', 'type = "Persn"\n', "m.toml:5: .* did you mean `Person`"),
        ('name = "name"\nborn', 'nam = "name"\nborn', "m.toml:7: .* did you mean `name`"),
        ('type = "Knows"', 'type = "Know"', "m.toml:10: .* did you mean `Knows`"),
        ('key = { name = "friend" }', 'key = { nme = "friend" }', "m.toml:12: .*expected name"),
        ("from = {", "form = {", "m.toml:11: .* did you mean `from`"),
        ('name = "name"\nborn', "name = 5\nborn", "m.toml:7: .*found 5, expected a column"),
    ],
)
def test_faults_name_line_key_found_and_expected(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    (tmp_path / "people.csv").write_text("name,born,friend\nAnn,2020-01-01,Ann\n")
    path = tmp_path / "m.toml"
    assert old in SMALL
    path.write_text(SMALL.replace(old, new, 1))

    with pytest.raises(InvalidInputError, match=message):
        og.import_data(
            str(tmp_path / "g"), str(tmp_path / "people.csv"), mapping=path, schema=SCHEMA
        )


@pytest.mark.parametrize(
    ("form", "texts"),
    [
        ("%d.%m.%Y", ("31.04.2024", "01.05.2024")),
        ("%Y%m%d", ("20230229", "20230301")),
        ("%d%m%Y", ("31062024", "01072024")),
        ("%B %d, %Y", ("Feb 30, 2024", "March 1, 2024")),
    ],
)
def test_a_day_that_its_month_does_not_have_is_no_date(form: str, texts: tuple[str, str]) -> None:
    value = ValueMapping(column="day", parse=Parse.DATE, format=form)

    cells = parse_texts(pa.array(texts), value, ct.ScalarType(scalar=ct.Scalar.DATE))

    assert cells[0].as_py() == texts[0]
    assert cells[1].as_py() != texts[1]
