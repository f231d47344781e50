"""Places in the units of an editor, and which schema a query file has."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.editor.workspace import Encoding, Positions, Schemas, nearest_schema
from omnigraph_lake.schema.catalog import Catalog
from tests.editor.marked import SCHEMA

pytestmark = [pytest.mark.unit, pytest.mark.local_disk("an editor opens files of a disk")]

TEXT = "é🙂a\r\nb\u2028c\rd\n"


@pytest.mark.parametrize(
    ("encoding", "column"), [(Encoding.UTF_8, 6), (Encoding.UTF_16, 3), (Encoding.UTF_32, 2)]
)
def test_positions_count_the_units_of_the_editor(encoding: Encoding, column: int) -> None:
    positions = Positions(TEXT, encoding)

    assert positions.position(TEXT.index("a")) == (0, column)
    assert positions.position(TEXT.index("d")) == (2, 0)
    assert positions.position(len(TEXT)) == (3, 0)
    for offset in set(range(len(TEXT) + 1)) - {TEXT.index("\n")}:
        assert positions.offset(*positions.position(offset)) == offset


def test_positions_that_are_not_there_are_the_closest_before_them() -> None:
    positions = Positions(TEXT, Encoding.UTF_16)

    assert positions.offset(0, 2) == 1, "within a character of two units"
    assert positions.offset(0, 99) == TEXT.index("\r")
    assert positions.offset(99, 0) == len(TEXT)


def test_the_nearest_schema_is_in_the_closest_folder_within_the_workspace(tmp_path: Path) -> None:
    inner = tmp_path / "project" / "queries"
    inner.mkdir(parents=True)
    query = inner / "people.gq"
    (tmp_path / "outside.pg").touch()

    assert "no schema file" in str(nearest_schema(query, [tmp_path / "project"]))
    (tmp_path / "project" / "all.pg").touch()
    assert nearest_schema(query, [tmp_path / "project"]) == tmp_path / "project" / "all.pg"
    assert "no schema file" in str(nearest_schema(query, [])), "only its own folder"
    (inner / "one.pg").touch()
    assert nearest_schema(query, [tmp_path / "project"]) == inner / "one.pg"
    (inner / "two.pg").touch()
    assert "several schema files (one.pg, two.pg)" in str(nearest_schema(query, []))
    (inner / "people.pg").touch()
    assert nearest_schema(query, []) == inner / "people.pg"


def test_a_schema_is_read_again_when_it_changes_and_the_last_valid_one_stays(
    tmp_path: Path,
) -> None:
    file, open_texts = tmp_path / "people.pg", dict[Path, str]()
    schemas = Schemas(schema=file, graph=None, read_graph=read_graph, read_open=open_texts.get)

    assert "cannot read" in schemas.find(tmp_path / "q.gq").problem
    file.write_text(SCHEMA)
    first = schemas.find(tmp_path / "q.gq")
    assert first.catalog is schemas.find(tmp_path / "q.gq").catalog
    file.write_text("node A {")
    broken = schemas.find(tmp_path / "q.gq")
    assert (broken.catalog, bool(broken.problem)) == (first.catalog, True)
    open_texts[file] = "node Z {}"
    unsaved = schemas.find(tmp_path / "q.gq").catalog
    assert unsaved is not None
    assert list(unsaved.nodes) == ["Z"]


def test_a_graph_that_is_not_there_is_a_problem_and_no_error(tmp_path: Path) -> None:
    root = str(tmp_path / "g")
    schemas = Schemas(schema=None, graph=root, read_graph=read_graph, read_open=lambda _: None)

    problem = schemas.find(tmp_path / "q.gq").problem

    assert problem.startswith(f"cannot read the schema of {root}: there is no graph at")


def read_graph(root: str) -> Catalog:
    return og.open(root, read_only=True).schema.catalog
