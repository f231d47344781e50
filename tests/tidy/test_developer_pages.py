"""The pages for developers name what there is: folders, packages, layers, files, and who draws."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from typing import Final

import pytest

from tests.tidy.sources import HOME, SOURCE, SOURCES, nodes_of, place

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("_parsed_sources")]

ARCHITECTURE: Final = (HOME / "ARCHITECTURE.md").read_text()
CONTRIBUTING: Final = (HOME / "CONTRIBUTING.md").read_text()
PROTOCOL: Final = ("commit", "creation", "merge", "mutate", "storage/manifest", "storage/refs")
"""Rooms that get time and ids as arguments: invariant 13."""
OWN_SOURCES: Final = frozenset({"random", "secrets", "time", "uuid"})
NAMES_A_STEP: Final = frozenset(
    {
        *("StorageUnavailableError", "UnsafeStoreError", "ReadOnlyError", "DriftNeedsRepairError"),
        *("ContentionError", "HeadMovedError", "SchemaChangedError", "RecoveryRequiredError"),
        *("OutcomeUnknownError", "OperationRunningError", "OperationRolledBackError"),
        *("FormatTooNewError", "OtherFormatError", "NoLongerKeptError", "QueryBudgetError"),
        *("SparkUnavailableError", "SparkJobFailedError", "MaintenanceIncompleteError"),
    }
)
"""Errors that always name the next command or setting: invariant 12."""


def test_every_folder_of_tests_is_in_both_pages_and_no_other_is() -> None:
    folders = {path.parent.name for path in HOME.glob("tests/*/test_*.py")}
    of_contributing = _column(CONTRIBUTING, "## Where a test goes", 1)
    of_architecture = _column(ARCHITECTURE, "## Tests", 0)

    assert {name.split("/")[0] for name in _words(of_contributing)} == folders
    assert {name.removeprefix("tests/") for name in _words(of_architecture)} == folders


def test_the_layers_of_the_page_are_those_that_are_enforced() -> None:
    project = tomllib.loads((HOME / "pyproject.toml").read_text())
    (contract,) = (
        contract
        for contract in project["tool"]["importlinter"]["contracts"]
        if contract.get("containers") == ["omnigraph_lake"]
    )
    (block,) = re.findall(
        r"`lint-imports` enforces it:\n\n```text\n(.*?)```", ARCHITECTURE, re.DOTALL
    )

    assert block.splitlines() == contract["layers"]


def test_every_package_is_in_the_code_map_with_files_that_exist() -> None:
    rows = _rows(ARCHITECTURE, "## Code map")
    mapped = {_words([row[0]])[0].rstrip("/"): row for row in rows}
    packages = {path.parent.relative_to(SOURCE) for path in SOURCE.glob("*/__init__.py")}
    modules = {path.relative_to(SOURCE) for path in SOURCE.glob("[!_]*.py")}

    assert {str(path) for path in packages | modules} - set(mapped) == set()
    for name, row in mapped.items():
        for file in re.findall(r"`([\w/]+\.py)`", row[2]):
            assert (SOURCE / name / file).is_file(), f"{name}: {file}"


@pytest.mark.parametrize(
    "page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/dev/guarantees.md", "docs/dev/testing.md"]
)
def test_files_that_a_page_names_with_their_folder_exist(page: str) -> None:
    named = re.findall(r"`((?:\w+/)+[\w.-]+\.(?:py|md|pg))`", (HOME / page).read_text())

    assert [
        path
        for path in named
        if not any((root / path).exists() for root in (HOME, SOURCE, HOME / "tests"))
    ] == []


def test_the_protocol_has_no_clock_and_no_randomness_of_its_own() -> None:
    def offenders() -> Iterator[str]:
        for path in SOURCES:
            if not str(path.relative_to(SOURCE)).startswith(PROTOCOL):
                continue
            for node in nodes_of(path):
                if isinstance(node, ast.Import | ast.ImportFrom) and OWN_SOURCES & _imported(node):
                    yield place(path, node.lineno)
                if isinstance(node, ast.Attribute) and ast.unparse(node) == "datetime.now":
                    yield place(path, node.lineno)

    assert list(offenders()) == []


def test_errors_that_an_operator_gets_name_the_next_step() -> None:
    given = {
        node.name
        for node in nodes_of(SOURCE / "errors.py")
        if isinstance(node, ast.ClassDef) and "next_step=" in ast.unparse(_maker(node))
    }

    def offenders() -> Iterator[str]:
        for path in SOURCES:
            for node in nodes_of(path):
                name = _called(node)
                if name not in NAMES_A_STEP - given or not isinstance(node, ast.Call):
                    continue
                if "next_step" not in {keyword.arg for keyword in node.keywords}:
                    yield f"{place(path, node.lineno)}: {name}"

    assert list(offenders()) == []


def _imported(node: ast.Import | ast.ImportFrom) -> set[str]:
    if isinstance(node, ast.ImportFrom):
        return {node.module or ""}
    return {alias.name for alias in node.names}


def _called(node: ast.AST) -> str:
    """The last word of what a call names; nothing for other nodes."""
    match node:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name
        case _:
            return ""


def _maker(declared: ast.ClassDef) -> ast.Module:
    """The bodies of `__init__`, without their arguments."""
    bodies = [
        line
        for node in declared.body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        if "next_step" not in ast.unparse(node.args)
        for line in node.body
    ]
    return ast.Module(body=bodies, type_ignores=[])


def _rows(text: str, heading: str) -> list[list[str]]:
    section = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[2:]]


def _column(text: str, heading: str, number: int) -> list[str]:
    return [row[number] for row in _rows(text, heading)]


def _words(cells: list[str]) -> list[str]:
    return [word for cell in cells for word in re.findall(r"`([^`]+)`", cell)]
