"""What is inferred from common shapes of data is what a person would write, and loads whole."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph_lake as og
from omnigraph_lake.importer.mapping_file import read_mapping, write_mapping
from omnigraph_lake.schema.compile import compile_schema
from omnigraph_lake.schema.show import show_catalog
from tests.importer.shapes import SHAPES, Shape

pytestmark = pytest.mark.unit


def shown(schema: str) -> str:
    """The types of a schema, whatever the layout and the comments of its text."""
    return show_catalog(compile_schema(schema, filename="schema", identity_domain="d"))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_shape_gets_the_schema_a_person_writes_and_is_imported_whole_and_once(
    shape: Shape, tmp_path: Path
) -> None:
    root = str(tmp_path / "g")
    files = shape.make(tmp_path)

    first = og.import_data(root, files, on_error="fail")

    assert shown(first.schema) == shown(shape.schema), first.schema
    assert first.load is not None
    assert dict(first.load.written) == dict(shape.written)
    graph = og.open(root)
    assert {name: graph.count(name) for name in shape.written} == dict(shape.written)
    mapping_file = read_mapping(first.mapping, name="g.map.toml")
    assert write_mapping(mapping_file.mappings, schema="g.pg") == first.mapping

    again = og.import_data(root, files, on_error="fail")

    assert again.load is not None
    assert not any(again.load.inserted.values())
    assert {name: graph.count(name) for name in shape.written} == dict(shape.written)
