"""Prints a catalog as schema source.

Invariant: the printed text compiles to a catalog of the same shape. Comments, hints of earlier
changes and the order of annotations are not in a catalog, so they are not in the text either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias, assert_never

from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.show import (
    quote,
    show_annotation,
    show_bounds,
    show_cardinality,
    show_property_type,
)

_Declared: TypeAlias = ct.InterfaceType | ct.NodeType | ct.EdgeType


def print_schema(catalog: ct.Catalog) -> str:
    """The source of a schema with exactly these types, interfaces first."""
    groups = (catalog.interfaces, catalog.nodes, catalog.edges)
    return "\n".join(
        _declaration(declared_type) for group in groups for declared_type in group.values()
    )


def _declaration(declared_type: _Declared) -> str:
    body = [*_properties(declared_type), *_body_constraints(declared_type)]
    header = _header(declared_type)
    if not body:
        return f"{header}\n" if isinstance(declared_type, ct.EdgeType) else f"{header} {{}}\n"
    return "\n".join([f"{header} {{", *(f"    {line}" for line in body), "}", ""])


def _header(declared_type: _Declared) -> str:
    match declared_type:
        case ct.InterfaceType():
            return f"interface {declared_type.name}"
        case ct.NodeType():
            words = [f"node {declared_type.name}", *_notes(declared_type)]
            if declared_type.implements:
                words.append(f"implements {', '.join(declared_type.implements)}")
            return " ".join(words)
        case ct.EdgeType():
            words = [f"edge {declared_type.name}: {declared_type.source} -> {declared_type.target}"]
            if declared_type.cardinality != ct.Cardinality():
                words.append(f"@card({show_cardinality(declared_type.cardinality)})")
            if declared_type.is_clustered:
                words.append("@cluster")
            return " ".join([*words, *_notes(declared_type)])
        case _:
            assert_never(declared_type)


def _notes(declared_type: ct.NodeType | ct.EdgeType) -> Iterator[str]:
    if declared_type.description is not None:
        yield f"@description({quote(declared_type.description)})"
    if declared_type.instruction is not None:
        yield f"@instruction({quote(declared_type.instruction)})"
    yield from map(show_annotation, declared_type.metadata)


def _properties(declared_type: _Declared) -> Iterator[str]:
    words = _property_constraints(declared_type)
    for prop in declared_type.properties.values():
        if not prop.declared:
            continue
        notes: list[str] = []
        if prop.embed is not None:
            model = "" if prop.embed.model is None else f", model={quote(prop.embed.model)}"
            notes.append(f"@embed({prop.embed.source}{model})")
        if prop.description is not None:
            notes.append(f"@description({quote(prop.description)})")
        notes += map(show_annotation, prop.metadata)
        spelling = f"{prop.name}: {show_property_type(prop)}"
        yield " ".join([spelling, *words.get(prop.name, ()), *notes])


def _property_constraints(declared_type: _Declared) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {}
    for constraint in _groups(declared_type):
        if constraint.spelling is ct.Spelling.PROPERTY:
            words.setdefault(constraint.properties[0], []).append(_word(constraint, ()))
    return words


def _body_constraints(declared_type: _Declared) -> Iterator[str]:
    for constraint in _groups(declared_type):
        if constraint.spelling is ct.Spelling.BODY:
            yield _word(constraint, constraint.properties)
    if isinstance(declared_type, ct.NodeType):
        for range_constraint in declared_type.ranges:
            yield f"@range({range_constraint.property}, {show_bounds(range_constraint)})"
        for check in declared_type.checks:
            yield f"@check({check.property}, {quote(check.pattern)})"


def _groups(declared_type: _Declared) -> Iterable[ct.Key | ct.Unique | ct.Index]:
    if not isinstance(declared_type, ct.EdgeType) and declared_type.key is not None:
        yield declared_type.key
    yield from declared_type.uniques
    yield from declared_type.indexes


def _word(constraint: ct.Key | ct.Unique | ct.Index, members: Iterable[str]) -> str:
    arguments = list(members)
    match constraint:
        case ct.Key():
            word = "key"
        case ct.Unique():
            word = "unique"
        case ct.Index():
            word = "index"
            if constraint.metric is not None:
                arguments.append(f"metric={constraint.metric}")
        case _:
            assert_never(constraint)
    return f"@{word}({', '.join(arguments)})" if arguments else f"@{word}"
