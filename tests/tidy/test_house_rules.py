"""House rules that no other tool checks. A rule that repeats in reviews becomes a test here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph import errors, names

pytestmark = pytest.mark.unit

HOME = Path(__file__).parent.parent.parent
SOURCES = sorted(Path(HOME, "src").rglob("*.py"))
TEXTS = sorted(
    path
    for folder in ("src", "tests", "docs", "benchmarks", "examples", ".ci", ".")
    for path in (HOME.glob("*") if folder == "." else Path(HOME, folder).rglob("*"))
    if path.is_file()
    and path.suffix in {".py", ".md", ".toml", ".pg", ".txt", ".lark", ".yml", ""}
    and path.name != "LICENSE"
)

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
BANNED_MODULES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}
BANNED_CLASS_ENDINGS = ("Manager", "Helper", "Util", "Utils", "Service", "Impl")

ON_DISK_NAMES = {
    value
    for name, value in vars(names).items()
    if name.isupper() and isinstance(value, str) and re.search(r"[_.:/]", value)
}


def ids(paths: list[Path]) -> list[str]:
    return [str(path.relative_to(HOME)) for path in paths]


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_a_module_stays_small_and_says_what_it_is_for(path: Path) -> None:
    lines = path.read_text().splitlines()
    tree = ast.parse(path.read_text())

    assert len(lines) <= MODULE_LINES_MAX, "which noun is hiding in it?"
    assert path.stem not in BANNED_MODULES, "name a module after what it knows"
    assert ast.get_docstring(tree), "a module docstring states the invariant it owns"


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_functions_stay_short_and_classes_are_named_after_what_they_hold(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION_LINES_MAX + 10 * _is_match(node), (
                f"{node.name} is too long"
            )
        if isinstance(node, ast.ClassDef):
            assert not node.name.endswith(BANNED_CLASS_ENDINGS), node.name


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_on_disk_names_are_spelled_in_one_module_only(path: Path) -> None:
    if path.name == "names.py":
        return
    found = {
        literal
        for literal in _literals(path)
        for name in ON_DISK_NAMES
        if literal == name or (name in literal and len(name) > 8 and " " not in literal)
    }

    assert found == set(), "use omnigraph.names"


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_datasets_are_created_in_one_place_that_switches_stable_row_ids_on(path: Path) -> None:
    calls = re.findall(r"write_dataset\(", path.read_text())

    assert not calls or path.name == "datasets.py"


def test_the_one_place_that_creates_datasets_switches_stable_row_ids_on() -> None:
    tree = ast.parse(Path(HOME, "src/omnigraph/storage/datasets.py").read_text())
    creations = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "write_dataset"
    ]

    assert creations
    for call in creations:
        flags = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert flags["enable_stable_row_ids"] == "True"


def test_every_error_has_one_root_and_a_name_that_ends_in_error() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, BaseException)
    ]

    assert len(classes) > 5
    for kind in classes:
        assert issubclass(kind, errors.OmnigraphError)
        assert kind.__name__.endswith("Error")
        assert kind.__name__ in (errors.__doc__ or ""), "draw it in the tree of the docstring"


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_errors_are_declared_in_the_error_tree_only(path: Path) -> None:
    if path.name == "errors.py":
        return
    declared = [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and node.name.endswith(("Error", "Exception"))
    ]

    assert declared == []


@pytest.mark.parametrize("path", TEXTS, ids=ids(TEXTS))
def test_no_text_carries_machine_paths_or_registry_addresses(path: Path) -> None:
    content = path.read_text()

    for pattern in (r"/root/", r"/work/", r"index[-]url", r"files\.pythonhosted"):
        if path == Path(__file__):
            continue
        assert not re.search(pattern, content), pattern


def test_every_migration_has_a_test_that_opens_its_old_shape() -> None:
    steps = sorted(Path(HOME, "src/omnigraph/maintenance/migrations").glob("v*.py"))

    assert [int(step.stem[1:5]) for step in steps] == list(range(2, names.STAMP + 1))
    tests = Path(HOME, "tests/maintenance/test_migrations.py").read_text()
    assert f"[{', '.join(str(stamp) for stamp in range(1, names.STAMP))}]" in tests


def test_every_record_of_a_decision_has_a_status() -> None:
    records = sorted(Path(HOME, "docs/adr").glob("[0-9]*.md"))

    assert records
    for record in records:
        assert re.search(
            r"^Status: (open|accepted|rejected|superseded)", record.read_text(), re.MULTILINE
        )


def _literals(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.value


def _is_match(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """One exhaustive match over a union may be a little longer: splitting it hides the union."""
    return len(node.body) == 1 and isinstance(node.body[0], ast.Match)
