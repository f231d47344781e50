"""Loads that are merged only if queries find nothing wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import omnigraph_lake as og
from omnigraph_lake.api.audit_queries import FailedCheck
from omnigraph_lake.api.options import LoadOptions
from omnigraph_lake.errors import InvalidInputError, QueryInvalidError, ValidationFailedError
from omnigraph_lake.graph import Graph

pytestmark = pytest.mark.unit

CHECKS = """
query too_old() @description("Nobody is older than 120")
{
    match { $p: Person  $p.age > 120 }
    return { $p.name as name, $p.age as age }
    order { name }
}

query nameless() { match { $p: Person  $p.name = "" } return { $p.id } }
"""


@pytest.fixture
def graph(graph_root: str) -> Graph:
    return og.init(graph_root, schema="node Person { name: String @key  age: I32? }")


def people(graph: Graph) -> set[str]:
    return set(graph.scan("Person").read_all().column("name").to_pylist())


def load(graph: Graph, audit: object, ages: dict[str, int], **options: object) -> object:
    rows = pa.table({"name": list(ages), "age": pa.array(ages.values(), pa.int32())})
    merged: dict[str, Any] = {"branch": "monday", "into": "main", "audit": audit, **options}
    dry_run = merged.pop("dry_run", False)
    return graph.load({"Person": rows}, dry_run=dry_run, options=LoadOptions(**merged))


def test_a_load_that_passes_its_checks_is_merged(graph: Graph, tmp_path: Path) -> None:
    file = tmp_path / "checks.gq"
    file.write_text(CHECKS)

    load(graph, file, {"Ann": 30})

    assert people(graph) == {"Ann"}


def test_a_check_that_finds_rows_keeps_the_branch_from_being_merged(graph: Graph) -> None:
    ages = {f"old{number}": 121 + number for number in range(9)}

    with pytest.raises(ValidationFailedError) as caught:
        load(graph, CHECKS, {"Ann": 30, **ages})

    said = str(caught.value)
    assert "1 of 2 checks found rows" in said
    assert "too_old: Nobody is older than 120\n  name = old0, age = 121\n" in said
    assert "  ... and more" in said
    (failed,) = cast("tuple[FailedCheck, ...]", caught.value.report)
    assert len(failed.rows) == 5
    assert people(graph) == set()
    assert len(people(graph.checkout("monday"))) == 10


@pytest.mark.parametrize(
    ("checks", "said"),
    [
        ("query q($n: I32) { match { $p: Person  $p.age > $n } return { $p } }", r"needs \$n"),
        ("query q() { delete Person where true }", "is a mutation"),
        ("", "contains no check"),
    ],
)
def test_a_file_that_holds_something_else_is_refused_before_the_load(
    graph: Graph, checks: str, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        load(graph, checks, {"Ann": 30})
    with pytest.raises(QueryInvalidError):
        load(graph, "query q() { match { $p: Persn } return { $p } }", {"Ann": 30})

    assert [each.name for each in graph.branches.list()] == ["main"]


def test_an_audit_needs_a_merge(graph: Graph) -> None:
    with pytest.raises(InvalidInputError, match="no merge was requested"):
        load(graph, CHECKS, {"Ann": 30}, into=None, branch=None)

    assert people(graph) == set()


def test_a_dry_run_only_compiles_the_checks(graph: Graph) -> None:
    load(graph, CHECKS, {"Ann": 300}, dry_run=True)

    assert [each.name for each in graph.branches.list()] == ["main"]
