"""Which files of the project import which, read from their lines: parsing them would cost seconds.

Imports for type checkers do not count. The package itself imports its public modules when a name is
asked for, and programs that a test starts import what they like: both reach everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.gate.seeds import CHECKOUT

PACKAGE: Final = "src/omnigraph_lake/__init__.py"
STARTERS: Final = ("tests/forking/", "tests/cli/commands.py")
"""What starts the command, or code that is a text."""
_ROOTS: Final = ("src", "tests", "benchmarks")
_IMPORT: Final = re.compile(
    r"^(?P<indent> *)(?:import (?P<module>[\w.]+)|from (?P<package>[\w.]+) import (?P<names>.*))"
)
_STARTS: Final = re.compile(r"^ *(?:import subprocess\b|from subprocess\b)", re.MULTILINE)


@cache
def files() -> frozenset[str]:
    """Every Python file of the project, as git spells it."""
    return frozenset(
        str(path.relative_to(CHECKOUT))
        for root in _ROOTS
        for path in (CHECKOUT / root).rglob("*.py")
    )


@cache
def sources() -> frozenset[str]:
    """The files of the product."""
    return frozenset(file for file in files() if file.startswith("src/"))


@cache
def imported_by(file: str) -> frozenset[str]:
    """The files that a file imports, anywhere in its text."""
    text = (CHECKOUT / file).read_text(encoding="utf-8")
    return frozenset(_targets(text)) - {file}


@cache
def reached_by(file: str) -> frozenset[str]:
    """Every file that is imported if a file is, itself included."""
    reached, waiting = {file}, [file]
    while waiting:
        current = waiting.pop()
        found = set(imported_by(current))
        if current == PACKAGE or starts_programs(current):
            found |= sources()
        waiting += found - reached
        reached |= found
    return frozenset(reached)


def starts_programs(file: str) -> bool:
    """Whether a file of the tests starts other processes, which import what they like."""
    if not file.startswith("tests/"):
        return False
    if file.startswith(STARTERS):
        return True
    return _STARTS.search((CHECKOUT / file).read_text(encoding="utf-8")) is not None


def _targets(text: str) -> Iterator[str]:
    lines = iter(text.splitlines())
    for_types: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if for_types is not None and line.strip() and indent <= for_types:
            for_types = None
        if line.lstrip().startswith("if TYPE_CHECKING"):
            for_types = indent
        found = _IMPORT.match(line)
        if found is None:
            continue
        names = found["names"] or ""
        while "(" in names and ")" not in names:
            names += next(lines)
        if for_types is not None:
            continue
        if found["module"]:
            yield from _known(found["module"])
        for name in re.findall(r"[\w.]+", names.partition("#")[0]):
            yield from _known(f"{found['package']}.{name}")


def _known(dotted: str) -> Iterator[str]:
    """The file of that module, or of the longest part of it that has one."""
    modules = _modules()
    while dotted and dotted not in modules:
        dotted = dotted.rpartition(".")[0]
    if dotted:
        yield modules[dotted]


@cache
def _modules() -> Mapping[str, str]:
    return {_dotted(file): file for file in files()}


def _dotted(file: str) -> str:
    parts = Path(file.removeprefix("src/")).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
