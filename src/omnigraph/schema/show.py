"""A catalog as readable text.

Invariant: plain text without control codes, the same for equal catalogs; not meant to be
parsed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from omnigraph.schema.catalog import (
    ByName,
    Cardinality,
    Catalog,
    EdgeType,
    EnumType,
    Index,
    InterfaceType,
    Key,
    ListType,
    NodeType,
    Number,
    Property,
    PropertyType,
    Range,
    ScalarType,
    Unique,
    VectorType,
)


def show_catalog(catalog: Catalog) -> str:
    """Every type with its properties and constraints, interfaces first."""
    blocks = [
        *(_block(_interface(each)) for each in catalog.interfaces.values()),
        *(_block(_node(each)) for each in catalog.nodes.values()),
        *(_block(_edge(each)) for each in catalog.edges.values()),
    ]
    return "\n\n".join(blocks) + "\n" if blocks else "no types\n"


def show_type(each: PropertyType) -> str:
    """A property type in schema spelling."""
    match each:
        case ScalarType():
            return each.scalar.value
        case ListType():
            return f"[{each.item.value}]"
        case EnumType():
            return f"enum({', '.join(each.values)})"
        case VectorType():
            return f"Vector({each.size})"
        case _:
            assert_never(each)


def show_cardinality(cardinality: Cardinality) -> str:
    maximum = "" if cardinality.maximum is None else str(cardinality.maximum)
    return f"{cardinality.minimum}..{maximum}"


def _block(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _interface(each: InterfaceType) -> Iterator[str]:
    yield f"interface {each.name}"
    groups: list[Key | Unique | Index] = [*_keys(each.key), *each.uniques, *each.indexes]
    yield from _properties(each.properties, _words_by_property(groups))
    yield from _composites(groups)


def _node(each: NodeType) -> Iterator[str]:
    implements = f" implements {', '.join(each.implements)}" if each.implements else ""
    yield f"node {each.name}{implements}"
    yield from _notes(each)
    groups: list[Key | Unique | Index] = [*_keys(each.key), *each.uniques, *each.indexes]
    words = _words_by_property(groups)
    for one in each.ranges:
        words.setdefault(one.property, []).append(f"range {_range(one)}")
    for check in each.checks:
        words.setdefault(check.property, []).append(f"matches {_quoted(check.pattern)}")
    yield from _properties(each.properties, words)
    yield from _composites(groups)


def _edge(each: EdgeType) -> Iterator[str]:
    cardinality = show_cardinality(each.cardinality)
    yield f"edge {each.name}: {each.source} -> {each.target}, {cardinality} per {each.source}"
    yield from _notes(each)
    groups: list[Key | Unique | Index] = [*each.uniques, *each.indexes]
    yield from _properties(each.properties, _words_by_property(groups))
    yield from _composites(groups, implicit=each.properties)


def _notes(each: NodeType | EdgeType) -> Iterator[str]:
    if each.description is not None:
        yield f"    {_one_line(each.description)}"
    if each.instruction is not None:
        yield f"    instruction: {_one_line(each.instruction)}"


def _keys(key: Key | None) -> tuple[Key, ...]:
    return () if key is None else (key,)


def _word(group: Key | Unique | Index) -> str:
    match group:
        case Key():
            return "key"
        case Unique():
            return "unique"
        case Index():
            return "index" if group.metric is None else f"index by {group.metric}"
        case _:
            assert_never(group)


def _words_by_property(groups: Iterable[Key | Unique | Index]) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {}
    for group in groups:
        if len(group.properties) == 1:
            words.setdefault(group.properties[0], []).append(_word(group))
    return words


def _composites(
    groups: Iterable[Key | Unique | Index], implicit: ByName[Property] | None = None
) -> Iterator[str]:
    for group in groups:
        hidden = implicit is not None and group.properties[0] not in implicit
        if len(group.properties) > 1 or hidden:
            yield f"    {_word(group)} ({', '.join(group.properties)})"


def _properties(properties: ByName[Property], words: dict[str, list[str]]) -> Iterator[str]:
    rows = [
        (each.name, show_type(each.type) + ("?" if each.nullable else ""), each)
        for each in properties.values()
    ]
    # One very long enum must not push every other line to the right.
    name_width = min(max((len(name) for name, _, _ in rows), default=0), 32)
    type_width = min(max((len(shown) for _, shown, _ in rows), default=0), 24)
    for name, shown, each in rows:
        facts = [*words.get(name, ()), *_facts(each)]
        line = f"    {name:<{name_width}}  {shown:<{type_width}}  {', '.join(facts)}"
        yield line.rstrip()


def _facts(each: Property) -> Iterator[str]:
    if each.embed is not None:
        model = f" by {_one_line(each.embed.model)}" if each.embed.model else ""
        yield f"embeds {each.embed.source}{model}"
    if not each.declared:
        yield f"from {each.interfaces[0]}"
    for one in each.metadata:
        yield f"@{one.name}"
    if each.description is not None:
        yield _quoted(each.description)


def _range(each: Range) -> str:
    return f"{_bound(each.low)}..{_bound(each.high)}"


def _bound(value: Number | None) -> str:
    return "" if value is None else f"{value:f}" if not isinstance(value, int) else str(value)


def _quoted(text: str) -> str:
    return f'"{_one_line(text)}"'


def _one_line(text: str) -> str:
    return " ".join(text.split())
