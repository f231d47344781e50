"""House rules that no other tool checks. A rule that repeats in reviews becomes a test here.

Every test looks at all files and lists all offenders at once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from omnigraph_lake import errors, names
from omnigraph_lake.maintenance.migrations import STEPS
from tests.tidy.sources import HOME, SOURCE, SOURCES, nodes_of, place, tree_of

pytestmark = [pytest.mark.unit, pytest.mark.usefixtures("_parsed_sources")]

TEXTS = sorted(
    path
    for folder in ("src", "tests", "docs", "benchmarks", "examples", ".ci", ".")
    for path in (HOME.glob("*") if folder == "." else Path(HOME, folder).rglob("*"))
    if path.is_file()
    and path.suffix in {".py", ".md", ".toml", ".pg", ".txt", ".lark", ".yml", ""}
    and path.name not in {"LICENSE", ".git"}  # a work tree has a file `.git` with a path
)

FUNCTION_LINES_MAX = 60
BANNED_MODULES = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base"}
VAGUE_NAMES = {"each", "found", "told", "spelt", "laid", "mine", "went", "came"}
BANNED_CLASS_ENDINGS = ("Manager", "Helper", "Util", "Utils", "Service", "Impl")

ON_DISK_NAMES = {
    value
    for name, value in vars(names).items()
    if name.isupper() and isinstance(value, str) and re.search(r"[_.:/]", value)
}

# Each is written so that it does not match itself.
FOREIGN_TEXTS = re.compile(r"/[r]oot/|/[w]ork/|index[-]url|\bfiles[.]\w+[h]osted")
"""Paths of one machine, and where one machine gets its packages from."""


RELIANCE = re.compile(r"Relied on in:?(?:\s+`[^`]+`,?)+")
RELIANCE_OF_A_MODULE = re.compile(r"\n\nRelied on in:(?:\s+`[^`]+`,){0,5}\s+`[^`]+`\.\Z")


PRIVATE_WORDS = re.compile(r"\b(?:whoever|nobody|somebody|mends?|upkeep|left_out)\b", re.IGNORECASE)


def require_none(offenders: Iterable[str]) -> None:
    """Fail with all offenders, one on each line."""
    message = "\n".join(offenders)
    assert not message, message


def test_modules_say_what_they_are_for() -> None:
    def offenders() -> Iterator[str]:
        for path in SOURCES:
            if path.stem in BANNED_MODULES:
                yield f"{place(path)}: name a module after what it knows"
            if not ast.get_docstring(tree_of(path)):
                yield f"{place(path)}: a module docstring states the invariant it owns"

    assert SOURCES
    require_none(offenders())


def test_functions_stay_short_and_classes_are_named_after_what_they_hold() -> None:
    def offenders() -> Iterator[str]:
        for path in SOURCES:
            for node in nodes_of(path):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_long(node):
                    yield f"{place(path, node.lineno)}: {node.name} is too long"
                if isinstance(node, ast.ClassDef) and (
                    node.name.endswith(BANNED_CLASS_ENDINGS)
                    or node.name.strip("_").lower() in VAGUE_NAMES
                ):
                    yield f"{place(path, node.lineno)}: {node.name} does not say what it holds"

    require_none(offenders())


def test_local_variables_are_named_after_what_they_hold() -> None:
    """`entry`, `matches` or `sidecars` say what is in them; `each` and `found` do not."""

    def offenders() -> Iterator[str]:
        for path in SOURCES:
            functions = (n for n in nodes_of(path) if isinstance(n, ast.FunctionDef))
            for node in (node for function in functions for node in ast.walk(function)):
                if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
                    continue
                if node.id in VAGUE_NAMES:
                    yield f"{place(path, node.lineno)}: {node.id}"

    require_none(offenders())


def test_on_disk_names_are_spelled_in_one_module_only() -> None:
    def offenders() -> Iterator[str]:
        for path in SOURCES:
            if path.name == "names.py":
                continue
            for literal in _literals(path):
                if _spells_an_on_disk_name(literal):
                    yield f"{place(path)} spells {literal!r}: use omnigraph_lake.names"

    require_none(offenders())


def test_datasets_are_created_in_one_place_that_switches_stable_row_ids_on() -> None:
    home = Path(HOME, "src/omnigraph_lake/storage/lance/datasets.py")
    callers = [path for path in SOURCES if "write_dataset(" in path.read_text()]
    creations = [
        node
        for node in nodes_of(home)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "write_dataset"
    ]

    assert callers == [home]
    assert creations
    for call in creations:
        flags = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        assert flags["enable_stable_row_ids"] == "True"


def test_verbs_write_through_the_protocol_and_build_nothing_of_it_themselves() -> None:
    def callers(name: str) -> list[str]:
        return sorted(
            path.stem
            for path in SOURCES
            for node in nodes_of(path)
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name
        )

    assert callers("WriteRequest") == []  # `WriteRequest.of` alone
    assert callers("fold_if_due") == ["protocol"]
    assert callers("new_sidecar") == ["maintenance", "phases"]


def test_every_error_has_one_root_and_a_name_that_ends_in_error() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, BaseException)
    ]

    def offenders() -> Iterator[str]:
        for kind in classes:
            if not issubclass(kind, errors.OmnigraphError):
                yield f"{kind.__name__} is no OmnigraphError"
            if not kind.__name__.endswith("Error"):
                yield f"{kind.__name__} does not end in Error"
            if kind.__name__ not in (errors.__doc__ or ""):
                yield f"{kind.__name__}: draw it in the tree of the docstring"

    assert len(classes) > 5
    require_none(offenders())


def test_errors_are_declared_in_the_error_tree_only() -> None:
    def offenders() -> Iterator[str]:
        for path in SOURCES:
            if path.name == "errors.py":
                continue
            for node in nodes_of(path):
                if isinstance(node, ast.ClassDef) and node.name.endswith(("Error", "Exception")):
                    yield f"{place(path, node.lineno)}: {node.name}"

    require_none(offenders())


def test_no_text_carries_machine_paths_or_registry_addresses() -> None:
    def offenders() -> Iterator[str]:
        for path in TEXTS:
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                if match := FOREIGN_TEXTS.search(line):
                    yield f"{place(path, number)}: {match.group()}"

    assert TEXTS
    require_none(offenders())


def test_text_for_people_uses_conventional_words() -> None:
    people_read = [path for path in TEXTS if path.relative_to(HOME).parts[0] in {"src", "docs"}]

    require_none(
        f"{place(path, number)}: {line.strip()}"
        for path in people_read
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if PRIVATE_WORDS.search(line)
    )
    assert len(people_read) > 300


def test_machine_paths_and_registry_addresses_are_recognised() -> None:
    for parts in (("/root", "/x"), ("/work", "/x"), ("--index", "-url"), ("files.py", "hosted")):
        assert FOREIGN_TEXTS.search("".join(parts)), parts


def test_every_migration_has_a_test_that_opens_its_old_shape() -> None:
    assert list(STEPS) == list(range(1, names.STAMP))
    tests = Path(HOME, "tests/maintenance/test_migrations.py").read_text()
    assert f"[{', '.join(str(stamp) for stamp in range(1, names.STAMP))}]" in tests


def test_every_record_of_a_decision_has_a_status_and_its_date() -> None:
    records = sorted(Path(HOME, "docs/adr").glob("[0-9]*.md"))
    status = re.compile(
        r"^Status: (open|accepted|rejected|superseded), \d{4}-\d\d-\d\d", re.MULTILINE
    )

    assert records
    assert [place(record) for record in records if not status.search(record.read_text())] == []


def test_every_guard_names_the_files_that_rely_on_it() -> None:
    guards = sorted(Path(HOME, "tests/guards").glob("test_*.py"))

    def offenders() -> Iterator[str]:
        for path in guards:
            if not RELIANCE_OF_A_MODULE.search(ast.get_docstring(tree_of(path)) or ""):
                yield f"{place(path)}: end the docstring with `Relied on in: ...`, of at most six"
            for name in re.findall("`(.+?)`", " ".join(RELIANCE.findall(path.read_text()))):
                if not Path(SOURCE, name).is_file():
                    yield f"{place(path)}: there is no {name}"

    assert guards
    require_none(offenders())


def _spells_an_on_disk_name(literal: str) -> bool:
    return any(
        literal == name or (name in literal and len(name) > 8 and " " not in literal)
        for name in ON_DISK_NAMES
    )


def _literals(path: Path) -> Iterator[str]:
    """Strings in code, without docstrings."""
    docstrings = {
        id(node.body[0].value)
        for node in nodes_of(path)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in nodes_of(path):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.value


def _is_long(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """One exhaustive match over a union may be a little longer: splitting it hides the union.

    So may a command, whose options are a line each twice.
    """
    assert node.end_lineno is not None
    is_match = len(node.body) == 1 and isinstance(node.body[0], ast.Match)
    is_command = len(node.args.kwonlyargs) > 20
    return node.end_lineno - node.lineno >= FUNCTION_LINES_MAX + 10 * (is_match or is_command)
