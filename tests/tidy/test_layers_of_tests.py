"""Tests under tests/behaviours state promises to users, so they use the public API only.

Whatever must look behind it goes through `tests.behind`: then the source can be rearranged by
changing that one module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import omnigraph_lake as og
from tests.tidy.sources import HOME, nodes_of, place

pytestmark = pytest.mark.unit

BEHAVIOURS = sorted(Path(HOME, "tests/behaviours").glob("*.py"))

EVERYTHING = frozenset({"*"})
PUBLIC: Mapping[str, frozenset[str]] = {
    "omnigraph_lake": frozenset(dir(og)),
    "omnigraph_lake.errors": EVERYTHING,
    "omnigraph_lake.graph": frozenset({"Graph", "GraphView"}),
    "omnigraph_lake.api.options": frozenset({"LoadOptions"}),
    # Types of results and of what they hold, by the module that they are in today.
    "omnigraph_lake.diff.change_feed": frozenset({"BaselineTable", "CommitChanges"}),
    "omnigraph_lake.merge.merge": frozenset({"MergeResult"}),
    "omnigraph_lake.merge.plan": frozenset({"MergeOutcome"}),
    "omnigraph_lake.mutate.mutate": frozenset({"MutationResult"}),
    "omnigraph_lake.commit.publish": frozenset({"OperationStatus"}),
    "omnigraph_lake.merge.conflicts": frozenset({"ConflictKind"}),
    "omnigraph_lake.schema.catalog": EVERYTHING,
    "omnigraph_lake.evolution.plan.plan": frozenset({"StepKind"}),
    "omnigraph_lake.storage.manifest_rows": frozenset({"GraphCommit"}),
    "omnigraph_lake.storage.refs.tags": frozenset({"Tag"}),
}
"""Names that a user may write, by module."""

OTHER_TESTS: Mapping[str, str] = {
    "tests.behaviours": "these tests themselves",
    "tests.behind": "the module that looks behind the API",
    "tests.drawing": "seeds and sizes of random tests",
    "tests.forking": "commands and programs in processes of their own",
    "tests.gate": "the seed of the run, and what only the nightly runs",
    "tests.stores": "where roots and their files are",
    "tests.commit.small_graphs": "a graph made through the public API",
    "tests.crash.processes": "processes that are stopped and killed",
    "tests.merge.oracle": "an oracle in plain Python",
    "tests.query": "the definition of queries and mutations, which works on typed queries",
}
"""What else they may import from the tests, and what it is."""


def offenders() -> Iterator[str]:
    for path in BEHAVIOURS:
        for node in nodes_of(path):
            for offence in offences(node):
                yield f"{place(path, getattr(node, 'lineno', None))}: {offence}"


def offences(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Import(names=aliases):
            yield from (f"import {alias.name}" for alias in aliases if not may_import(alias.name))
        case ast.ImportFrom(module=str(module), names=aliases):
            for alias in aliases:
                if not may_import(module, alias.name):
                    yield f"from {module} import {alias.name}"
        case ast.Attribute(value=value, attr=attribute):
            if is_private(attribute) and not is_self(value):
                yield f"{ast.unparse(value)}.{attribute} is private"
        case ast.Constant(value=str(text)):
            if re.fullmatch(r"omnigraph_lake(\.\w+)+", text) and text not in PUBLIC:
                yield f"{text!r} names a module that is not public"
        case _:
            pass


def may_import(module: str, name: str | None = None) -> bool:
    package = module.partition(".")[0]
    if package == "omnigraph_lake":
        public = PUBLIC.get(module, frozenset())
        return public == EVERYTHING or (
            module == "omnigraph_lake" if name is None else name in public
        )
    if package == "tests":
        full = f"{module}.{name}"
        return any(f"{full}.".startswith(f"{allowed}.") for allowed in OTHER_TESTS)
    return package not in ("benchmarks", "lance")


def is_private(attribute: str) -> bool:
    return attribute.startswith("_") and not attribute.startswith("__")


def is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def test_tests_of_promises_use_the_public_api_only() -> None:
    message = "\n".join(offenders())

    assert BEHAVIOURS
    assert not message, message


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("import omnigraph_lake as og", True),
        ("from omnigraph_lake import failpoints", False),
        ("from omnigraph_lake.errors import NotFoundError", True),
        ("from omnigraph_lake.graph import Graph", True),
        ("from omnigraph_lake.graph import Contracts", False),
        ("import omnigraph_lake.commit.history_compaction", False),
        ("from omnigraph_lake.storage.lance.tables import open_pinned", False),
        ("from tests.behind import row_ids", True),
        ("from tests.behaviours.histories import put", True),
        ("from tests.maintenance.maintenance_graphs import doc", False),
        ("from tests import behind", True),
        ("import lance", False),
        ("graph._objects.list('nodes')", False),
        ("self._objects", True),
        ("type(graph).__name__", True),
        ("patch('omnigraph_lake.commit.history_compaction.FOLD_EVERY', 8)", False),
    ],
)
def test_what_looks_behind_the_api_is_recognised(text: str, is_allowed: bool) -> None:
    told = [offence for node in ast.walk(ast.parse(text)) for offence in offences(node)]

    assert (told == []) == is_allowed


def test_the_list_of_public_names_has_no_dead_entries() -> None:
    imported = {
        node.module
        for path in BEHAVIOURS
        for node in nodes_of(path)
        if isinstance(node, ast.ImportFrom) and node.module
    }

    assert {module for module in PUBLIC if module not in imported | {"omnigraph_lake"}} == set()
