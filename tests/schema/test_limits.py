"""Size limits, and how long a very large schema takes."""

from __future__ import annotations

import time

import pytest

from omnigraph.schema.compile import lint_schema
from omnigraph.schema.format import format_schema
from omnigraph.schema.parser import SCHEMA_BYTES_MAX
from tests.schema.compiling import compiled, rules

pytestmark = pytest.mark.unit

PROPERTIES = (
    'String @description("some words about it")',
    "I64?",
    "[String]",
    "enum(red, green, blue) @index",
    "F64",
    "Vector(8)?",
)
SECONDS_MAX = 3.0


def large_schema(types: int, lines: int) -> str:
    """A schema of so many node types whose bodies fill so many lines."""
    properties = lines // types - 3
    text: list[str] = []
    for i in range(types):
        text.append(f'node Type{i} @description("type number {i}") {{')
        text += [f"    property_{j}: {PROPERTIES[j % len(PROPERTIES)]}" for j in range(properties)]
        text += ["    @unique(property_0, property_1)", "}"]
    return "\n".join(text)


def test_a_schema_of_500_types_and_20000_lines_is_checked_within_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = large_schema(types=500, lines=20_000)
    assert text.count("\n") >= 19_999
    lint_schema("")  # the grammar is compiled once per process

    # Time of this process, because a busy neighbour is not a slow parser.
    started = time.process_time()
    findings = lint_schema(text)
    seconds = time.process_time() - started

    with capsys.disabled():
        print(f" [{seconds:.2f} s for 500 types, 20,000 lines]", end="")
    assert findings == ()
    assert seconds < SECONDS_MAX


@pytest.mark.parametrize(
    "text",
    [
        " ".join(f"node Thing{i} {{}} edge E{i}: Thong{i} -> Thang{i}" for i in range(1000)),
        "node A {" + "".join(f" prop{i}: String @index(prap{i})" for i in range(1000)) + "}",
    ],
    ids=["endpoints", "members"],
)
def test_many_misspelt_names_do_not_take_quadratic_time(text: str) -> None:
    started = time.process_time()
    findings = lint_schema(text)

    assert time.process_time() - started < SECONDS_MAX
    assert len(findings) >= 1000
    assert "did you mean" in findings[0].hint


def test_a_text_above_16_mib_is_refused_without_being_read() -> None:
    comment = "//" + "x" * (SCHEMA_BYTES_MAX - 2)

    assert rules(comment) == []
    assert rules(comment + "x") == ["schema-too-large"]
    assert rules("//" + "ü" * (SCHEMA_BYTES_MAX // 2)) == ["schema-too-large"]


@pytest.mark.parametrize("character", ["\x00", "\x07", "\x0c", "\x7f", "\x85", "\ufeff", "\ud800"])
@pytest.mark.parametrize("place", ["{}node A {{}}", "// {}", '@x("{}")', "/* {} */"])
def test_control_characters_are_refused_everywhere(character: str, place: str) -> None:
    assert rules(place.format(character)) == ["invalid-character"]


def test_names_of_255_characters_are_accepted() -> None:
    name = "a" * 255

    assert (
        name
        in compiled(f"node A{'b' * 254} {{ {name}: enum({name}) }}")
        .nodes[f"A{'b' * 254}"]
        .properties
    )


def test_a_deeply_wrong_text_costs_no_recursion() -> None:
    assert rules("node A { a: " + "[" * 100_000) == ["list-item"]
    assert rules("node A { " + "a: String " * 20_000 + "}")[:2] == ["duplicate-property"] * 2
    assert format_schema("/**/" * 20_000).count("/**/") == 20_000
