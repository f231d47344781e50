"""What is inferred from common shapes of data is what a person would write, and loads whole."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.show import show_catalog
from tests.importer.shapes import SHAPES, Shape

pytestmark = pytest.mark.unit


def shown(schema: str) -> str:
    """The types of a schema, whatever the layout and the comments of its text."""
    return show_catalog(compile_schema(schema, filename="schema", identity_domain="d"))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_inferred_schema_is_the_one_a_person_writes(shape: Shape, tmp_path: Path) -> None:
    files = shape.make(tmp_path)

    report = omnigraph.import_data(str(tmp_path / "g"), files, dry_run=True)

    assert shown(report.schema) == shown(shape.schema), report.schema
    assert not (tmp_path / "g").exists()


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_everything_is_written_and_a_second_import_changes_nothing(
    shape: Shape, tmp_path: Path
) -> None:
    root = str(tmp_path / "g")
    files = shape.make(tmp_path)
    first = omnigraph.import_data(root, files, on_error="fail")
    graph = omnigraph.open(root)
    rows = {name: graph.count(name) for name in shape.written}

    again = omnigraph.import_data(root, files, on_error="fail")

    assert first.load is not None
    assert again.load is not None
    assert dict(first.load.written) == dict(shape.written)
    assert rows == dict(shape.written)
    assert not any(again.load.inserted.values())
    assert {name: graph.count(name) for name in shape.written} == rows
