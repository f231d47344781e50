"""Importing the package is cheap, and every name it promises is there, documented and typed."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import pydoc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, get_args, get_type_hints

import pytest

import omnigraph_lake
import omnigraph_lake.spark
from tests.surface import NAMESPACES

pytestmark = pytest.mark.unit

FACES = {
    "Graph": omnigraph_lake.Graph,
    "GraphView": omnigraph_lake.GraphView,
    "SparkGraph": omnigraph_lake.spark.SparkGraph,
    **NAMESPACES,
}
UNTYPED_BY_NATURE = {"params", "parameters", "name"}
"""Values of parameters of queries; `name` may be the value of a parameter `$name`."""
ELSEWHERE = {"SparkGraph"}
"""Needs pyspark, so `from omnigraph_lake import *` must not import it."""


def test_every_public_name_resolves_and_the_list_is_sorted() -> None:
    assert omnigraph_lake.__all__ == sorted(omnigraph_lake.__all__)
    assert [name for name in dir(omnigraph_lake) if getattr(omnigraph_lake, name) is None] == []


def test_a_new_process_sees_the_public_names_and_nothing_else() -> None:
    script = "import omnigraph_lake as og; print(*dir(og))"

    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout

    assert shown.split() == dir(omnigraph_lake)


def test_a_star_import_leaves_the_names_of_python_alone() -> None:
    assert set(dir(omnigraph_lake)) - set(omnigraph_lake.__all__) == {"open"}
    assert set(omnigraph_lake.__all__) & set(dir(builtins)) == set()


def test_the_help_of_the_package_lists_its_functions_and_classes() -> None:
    text = pydoc.plain(pydoc.render_doc(omnigraph_lake))

    assert "init(root: 'str', *, schema: " in text
    assert "og.open(" in text
    assert "class Graph(" in text


def test_the_package_runs_as_a_module() -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "omnigraph_lake", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert finished.stdout == f"omnigraph {omnigraph_lake.__version__}\n"


def test_the_package_of_the_published_program_is_imported_beside_this_one(tmp_path: Path) -> None:
    tmp_path.joinpath("omnigraph").mkdir()
    tmp_path.joinpath("omnigraph/__init__.py").write_text("class Client: pass\n")
    script = """
import omnigraph, omnigraph_lake as og
graph = og.init("g", schema="node Person { name: String @key }")
graph.write({"Person": [{"name": "Ann"}]})
print(omnigraph.Client.__module__, graph.count("Person"))
"""

    shown = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout

    assert shown == "omnigraph 1\n"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        omnigraph_lake.nope  # noqa: B018


def test_the_errors_and_the_names_for_spark_are_reached_through_the_package() -> None:
    script = "import omnigraph_lake as og; print(og.errors.NotFoundError, og.spark.SparkTarget)"

    shown = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout

    assert "NotFoundError" in shown
    assert "SparkTarget" in shown


def test_importing_the_package_loads_neither_lance_nor_arrow_nor_spark() -> None:
    script = (
        "import sys, omnigraph_lake, omnigraph_lake.cli.main; "
        "print([m for m in ('lance', 'pyarrow', 'pyspark', 'rich', 'lark') if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout

    assert loaded.strip() == "[]"


def test_every_error_is_public() -> None:
    errors = importlib.import_module("omnigraph_lake.errors")
    raised = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, omnigraph_lake.OmnigraphError)
    }

    assert raised <= set(dir(omnigraph_lake))


@pytest.mark.parametrize("name", dir(omnigraph_lake))
def test_every_public_name_is_documented(name: str) -> None:
    value: Any = getattr(omnigraph_lake, name)
    if not inspect.isclass(value) and not inspect.isfunction(value):
        return  # an alias; its text follows it in its module
    lacking = [] if inspect.getdoc(value) else [name]
    if inspect.isclass(value) and name in FACES:
        lacking += [member for member, part in members(value) if not inspect.getdoc(part)]

    assert lacking == []


@pytest.mark.parametrize("name", [*FACES, *(n for n in dir(omnigraph_lake) if n.islower())])
def test_every_argument_and_result_has_a_type_that_is_public(name: str) -> None:
    value = FACES[name] if name in FACES else getattr(omnigraph_lake, name)
    parts = members(value) if inspect.isclass(value) else [(name, value)]

    assert [fault for member, part in parts for fault in faults(member, part)] == []


def test_the_fields_of_results_have_public_types() -> None:
    """As far as they are enums or dataclasses of ours: those are what a caller looks into."""
    hidden = {
        f"{name}.{field}: {kind.__name__}"
        for name in ("WriteResult", "MergeResult", "CheckReport", "LoadReport", "GraphStatus")
        for field, hint in hints_of(getattr(omnigraph_lake, name)).items()
        for kind in classes_in(hint)
        if is_ours(kind) and kind.__name__ not in dir(omnigraph_lake)
    }

    assert hidden == set()


def members(kind: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class."""
    return [
        (name, part)
        for name, part in inspect.getmembers(kind)
        if not name.startswith("_") and isinstance(part, FunctionType | property)
    ]


def faults(name: str, part: Any) -> Iterator[str]:
    function: Any = part.fget if isinstance(part, property) else part
    hints = hints_of(function)
    for argument in inspect.signature(function).parameters:
        if argument == "self":
            continue
        if argument not in hints:
            yield f"{name}({argument}) has no type"
        elif argument not in UNTYPED_BY_NATURE and hints[argument] in (object, object | None):
            yield f"{name}({argument}) is object"
    if "return" not in hints:
        yield f"{name} has no type of a result"
        return
    for kind in classes_in(hints["return"]):
        if is_ours(kind) and kind.__name__ not in {*dir(omnigraph_lake), *ELSEWHERE}:
            yield f"{name} gives {kind.__name__}, which omnigraph does not export"


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("omnigraph_lake.")


def classes_in(hint: Any) -> Iterator[type]:
    if inspect.isclass(hint) and not get_args(hint):
        yield hint
    for part in get_args(hint):
        yield from classes_in(part)


def hints_of(value: Any) -> dict[str, Any]:
    """The types of a function or class, also those imported for type checkers alone."""
    module = importlib.import_module(value.__module__)
    names: dict[str, Any] = {}
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            source = importlib.import_module(node.module)
            for alias in node.names:
                if hasattr(source, alias.name):
                    names[alias.asname or alias.name] = getattr(source, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    names[alias.asname] = importlib.import_module(alias.name)
    options = vars(importlib.import_module("omnigraph_lake.api.options"))
    spark = importlib.import_module("pyspark.sql")
    names |= {"DataFrame": spark.DataFrame, "SparkSession": spark.SparkSession}
    names |= {"SparkTarget": omnigraph_lake.SparkTarget, "ArrowStream": options["ArrowStream"]}
    return get_type_hints(value, localns=names)


def test_what_users_of_spark_name_is_importable_from_one_place() -> None:
    spark = importlib.import_module("omnigraph_lake.spark")

    named = [spark.OmnigraphDataSource, spark.SparkGraph, spark.SparkTarget]
    assert [kind.__name__ for kind in named] == ["OmnigraphDataSource", "SparkGraph", "SparkTarget"]
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        spark.nope  # noqa: B018
