"""Size limits, and how long a very large schema takes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from omnigraph_lake.language.diagnostics import Diagnostic
from omnigraph_lake.schema.compile import lint_schema
from omnigraph_lake.schema.format import format_schema
from omnigraph_lake.schema.parser import SCHEMA_BYTES_MAX
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
TOLERANCE = 3
"""Ten times the lines may take thirty times as long before it counts as not linear."""


def large_schema(types: int, lines: int) -> str:
    """A schema of so many node types whose bodies fill so many lines."""
    properties = lines // types - 3
    text: list[str] = []
    for i in range(types):
        text.append(f'node Type{i} @description("type number {i}") {{')
        text += [f"    property_{j}: {PROPERTIES[j % len(PROPERTIES)]}" for j in range(properties)]
        text += ["    @unique(property_0, property_1)", "}"]
    return "\n".join(text)


def test_a_schema_of_500_types_takes_ten_times_as_long_as_one_of_50() -> None:
    small, large = (large_schema(types=n, lines=40 * n) for n in (50, 500))
    assert large.count("\n") >= 19_999
    lint_schema("")  # the grammar is compiled once per process

    seconds, findings = timed_lint(large)

    assert findings == ()
    assert seconds < 10 * TOLERANCE * timed_lint(small)[0]


MEMORY = """
import resource, sys
from omnigraph_lake.schema.compile import lint_schema
from omnigraph_lake.query.parser import parse_queries
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
lint_schema("node A {}")
parse_queries('query q() { match { $a: A } return { $a } }')
before = peak()
text = "x y" * (10_000_000 // 3)
lint_schema(f'node A @description("{text}") {{}}')
lint_schema(f'node A @description("{text}')
parse_queries(f'query q() {{ match {{ $a: A  $a.b = "{text}" }} return {{ $a }} }}')
print(peak() - before)
"""


def test_a_text_of_ten_megabytes_takes_ten_times_its_size_at_most() -> None:
    grown = subprocess.run(
        [sys.executable, "-c", MEMORY], check=True, capture_output=True, text=True
    ).stdout

    assert int(grown) < 100  # it was 1,600 with a matcher that remembers every character


def timed_lint(text: str) -> tuple[float, tuple[Diagnostic, ...]]:
    """The findings, and CPU seconds: a busy neighbour is not a slow parser."""
    started = time.process_time()
    findings = lint_schema(text)
    return time.process_time() - started, findings


def misspelt_endpoints(count: int) -> str:
    return " ".join(f"node Thing{i} {{}} edge E{i}: Thong{i} -> Thang{i}" for i in range(count))


def misspelt_members(count: int) -> str:
    return "node A {" + "".join(f" prop{i}: String @index(prap{i})" for i in range(count)) + "}"


@pytest.mark.parametrize("text_of", [misspelt_endpoints, misspelt_members])
def test_many_misspelt_names_do_not_take_quadratic_time(text_of: Callable[[int], str]) -> None:
    seconds, findings = timed_lint(text_of(1000))

    assert seconds < 10 * TOLERANCE * timed_lint(text_of(100))[0]
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
