"""The source of the product, parsed once for all tests that look at it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

HOME = Path(__file__).parent.parent.parent
SOURCE = Path(HOME, "src", "omnigraph_lake")
SOURCES = sorted(Path(HOME, "src").rglob("*.py"))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """Every node of a module's tree."""
    return tuple(ast.walk(tree_of(path)))


def place(path: Path, line: int | None = None) -> str:
    """Where an offender is, as a terminal links it."""
    return str(path.relative_to(HOME)) + ("" if line is None else f":{line}")
