"""Generated schemas: valid ones compile, and formatting changes nothing but white space."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given

from omnigraph_lake.language.diagnostics import Diagnostic, Span
from omnigraph_lake.schema.ast import Schema
from omnigraph_lake.schema.format import format_schema
from omnigraph_lake.schema.model import decode_model, encode_model, shape_hash
from omnigraph_lake.schema.parser import lexemes, parse_schema
from omnigraph_lake.schema.printing import print_schema
from tests.drawing import drawn
from tests.schema.compiling import compiled
from tests.schema.schemas import texts

pytestmark = pytest.mark.random


def without_spans(value: Any) -> Any:
    if isinstance(value, Span):
        return None
    if isinstance(value, tuple):
        return tuple(without_spans(each) for each in value)
    if dataclasses.is_dataclass(value):
        fields = [field.name for field in dataclasses.fields(value)]
        return type(value).__name__, {name: without_spans(getattr(value, name)) for name in fields}
    return value


def comments_in(text: str) -> list[str]:
    """Comments in order, found between the tokens, without white space at the ends of lines."""
    tokens = lexemes(text)
    assert not isinstance(tokens, Diagnostic)
    found: list[str] = []
    end = 0
    for start, next_end in [*((each.offset, each.end) for each in tokens), (len(text), 0)]:
        found += re.findall(r"//[^\n]*|/\*[\s\S]*?\*/", text[end:start])
        end = next_end
    return ["\n".join(line.rstrip() for line in each.split("\n")) for each in found]


@drawn(15)
@given(texts())
def test_formatting_keeps_the_tree_and_every_comment_and_is_stable(text: str) -> None:
    before = parse_schema(text)
    assert isinstance(before, Schema)

    formatted = format_schema(text)

    after = parse_schema(formatted)
    assert isinstance(after, Schema)
    assert without_spans(after) == without_spans(before)
    assert comments_in(formatted) == comments_in(text)
    assert format_schema(formatted) == formatted


@drawn(5, one_in=4)
@given(texts())
def test_a_generated_schema_compiles_and_its_model_survives_json(text: str) -> None:
    catalog = compiled(text)

    assert decode_model(encode_model(catalog)) == catalog
    assert shape_hash(compiled(format_schema(text))) == shape_hash(catalog)


@drawn(15)
@given(texts())
def test_a_printed_catalog_compiles_to_the_same_shape(text: str) -> None:
    catalog = compiled(text)

    assert shape_hash(compiled(print_schema(catalog))) == shape_hash(catalog)
