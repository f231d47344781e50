"""Which modules of the product import which, and the figures that follow from it."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from tests.tidy.sources import HOME, SOURCES, nodes_of

IRREGULAR = re.compile(
    "begun|bound|broken|brought|built|chosen|done|drawn|found|given|gone|got|grown|held|kept|known|"
    "laid|left|lost|made|met|paid|seen|sent|shown|sought|spelled|spent|spoken|stood|taken|thrown|"
    "told|written"
)
"""Past participles that do not end in -ed; those that are verbs as well (`put`) are not here."""
VERBS_IN_ED = frozenset({"embed", "exceed", "feed", "need", "proceed", "seed", "speed"})


@cache
def modules() -> Mapping[str, Path]:
    """Every module of the product by its dotted name; a package is its `__init__`."""
    return {_dotted(path): path for path in SOURCES}


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """The modules of the product that each module imports, anywhere in its text."""
    return {name: frozenset(_targets(path)) - {name} for name, path in modules().items() if name}


def importers() -> Mapping[str, frozenset[str]]:
    """The modules that import each module."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, targets in imports().items():
        for target in targets:
            found[target].add(name)
    return {name: frozenset(found[name]) for name in modules()}


def import_share() -> float:
    """Lines of import statements, in percent of all lines."""
    statements = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    lines = sum(path.read_text().count("\n") for path in SOURCES)
    return 100 * statements / lines


def one_importer_modules() -> list[str]:
    """Modules that only one other module imports."""
    return sorted(
        name
        for name, users in importers().items()
        if len(users) == 1 and not _is_package(modules()[name])
    )


def package_sizes() -> Counter[str]:
    """How many modules each package has, without those of packages below it."""
    return Counter(
        name.rpartition(".")[0] for name, path in modules().items() if not _is_package(path)
    )


def repeated_names() -> list[str]:
    """Last parts of names that more than one module has."""
    counted = Counter(
        name.rpartition(".")[2] for name, path in modules().items() if not _is_package(path)
    )
    return sorted(name for name, count in counted.items() if count > 1)


_PROPERTIES = frozenset({"property", "cached_property"})


def participle_led_functions() -> list[str]:
    """Functions whose name starts with a past participle; properties describe, so they may."""
    return [
        f"{path.relative_to(HOME)}:{node.lineno} {node.name}"
        for path in SOURCES
        for node in nodes_of(path)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and _is_participle(node.name.strip("_").split("_")[0])
        and not any(isinstance(by, ast.Name) and by.id in _PROPERTIES for by in node.decorator_list)
    ]


def cycles() -> list[str]:
    """Modules that import themselves through others."""
    waiting = {name: set(targets) for name, targets in imports().items()}
    while free := {name for name, targets in waiting.items() if not targets & waiting.keys()}:
        waiting = {name: targets for name, targets in waiting.items() if name not in free}
    return sorted(waiting)


def room_of(module: str) -> str:
    """The package or module right below `omnigraph` that a module is or belongs to."""
    return module.split(".")[1] if "." in module else ""


def room_imports() -> Mapping[str, frozenset[str]]:
    """The rooms that each room imports."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, targets in imports().items():
        if room := room_of(name):
            found[room].update(room_of(target) for target in targets)
    return {room: frozenset(targets - {room, ""}) for room, targets in found.items()}


def _is_participle(word: str) -> bool:
    return bool(IRREGULAR.fullmatch(word)) or (
        len(word) > 4 and word.endswith("ed") and word not in VERBS_IN_ED
    )


def _is_package(path: Path) -> bool:
    return path.name == "__init__.py"


def _dotted(path: Path) -> str:
    parts = path.relative_to(HOME / "src").with_suffix("").parts
    return ".".join(parts[:-1] if _is_package(path) else parts)


def _targets(path: Path) -> Iterator[str]:
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _known(alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield from _known(f"{node.module}.{alias.name}")


def _known(dotted: str) -> Iterator[str]:
    """The module of that name, or of the longest part of it that is one."""
    while dotted and dotted not in modules():
        dotted = dotted.rpartition(".")[0]
    if dotted:
        yield dotted
