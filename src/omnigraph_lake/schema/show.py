"""A catalog as readable text.

Invariant: plain text without control codes, the same for equal catalogs; not meant to be
parsed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, assert_never

from omnigraph_lake.schema import catalog as ct

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def show_catalog(catalog: ct.Catalog) -> str:
    """Every type with its properties and constraints, interfaces first."""
    declared = (catalog.interfaces, catalog.nodes, catalog.edges)
    blocks = [show_declaration(one) for types in declared for one in types.values()]
    return "\n\n".join(blocks) + "\n" if blocks else "no types\n"


def show_declaration(declaration: ct.InterfaceType | ct.NodeType | ct.EdgeType) -> str:
    """One type with its properties and constraints."""
    match declaration:
        case ct.InterfaceType():
            return _block(_interface(declaration))
        case ct.NodeType():
            return _block(_node(declaration))
        case ct.EdgeType():
            return _block(_edge(declaration))
        case _:
            assert_never(declaration)


def property_facts(
    declaration: ct.InterfaceType | ct.NodeType | ct.EdgeType, prop: ct.Property
) -> tuple[str, ...]:
    """What a schema says of a property beside its type: constraints, origin, description."""
    groups = _groups(declaration)
    together = (
        f"{_word(group)} ({', '.join(group.properties)})"
        for group in groups
        if len(group.properties) > 1 and prop.name in group.properties
    )
    words = _words_by_property(groups)
    if isinstance(declaration, ct.NodeType):
        _add_value_words(declaration, words)
    return (*words.get(prop.name, ()), *together, *_facts(prop))


def show_type(property_type: ct.PropertyType) -> str:
    """A property type in schema spelling."""
    match property_type:
        case ct.ScalarType():
            return property_type.scalar.value
        case ct.DecimalType():
            return f"Decimal({property_type.precision}, {property_type.scale})"
        case ct.ListType():
            return f"[{property_type.item.value}]"
        case ct.EnumType():
            return f"enum({', '.join(property_type.values)})"
        case ct.VectorType():
            return f"Vector({property_type.size})"
        case _:
            assert_never(property_type)


def show_property_type(prop: ct.Property) -> str:
    """The type of a property with `?` and its default, in schema spelling."""
    default = "" if prop.default is None else f" = {show_literal(prop.default)}"
    return f"{show_type(prop.type)}{'?' if prop.nullable else ''}{default}"


def show_annotation(metadata: ct.Metadata) -> str:
    """Metadata in schema spelling."""
    arguments = [] if metadata.value is None else [show_literal(metadata.value)]
    arguments += [f"{keyword.name}={show_literal(keyword.value)}" for keyword in metadata.keywords]
    return f"@{metadata.name}({', '.join(arguments)})" if arguments else f"@{metadata.name}"


def show_literal(value: ct.Literal) -> str:
    """A value in schema spelling."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case _:
            return _bound(value)


def quote(text: str) -> str:
    """A string in schema spelling."""
    return f'"{text.translate(_ESCAPES)}"'


def show_cardinality(cardinality: ct.Cardinality) -> str:
    maximum = "" if cardinality.maximum is None else str(cardinality.maximum)
    return f"{cardinality.minimum}..{maximum}"


def _block(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _interface(interface_type: ct.InterfaceType) -> Iterator[str]:
    yield f"interface {interface_type.name}"
    groups = _groups(interface_type)
    yield from _properties(interface_type.properties, _words_by_property(groups))
    yield from _composites(groups)


def _node(node_type: ct.NodeType) -> Iterator[str]:
    implements = f" implements {', '.join(node_type.implements)}" if node_type.implements else ""
    yield f"node {node_type.name}{implements}"
    yield from _notes(node_type)
    groups = _groups(node_type)
    words = _words_by_property(groups)
    _add_value_words(node_type, words)
    yield from _properties(node_type.properties, words)
    yield from _composites(groups)


def _edge(edge_type: ct.EdgeType) -> Iterator[str]:
    cardinality = show_cardinality(edge_type.cardinality)
    yield (
        f"edge {edge_type.name}: {edge_type.source} -> {edge_type.target}, "
        f"{cardinality} per {edge_type.source}" + (", clustered" if edge_type.is_clustered else "")
    )
    yield from _notes(edge_type)
    groups = _groups(edge_type)
    yield from _properties(edge_type.properties, _words_by_property(groups))
    yield from _composites(groups, implicit=edge_type.properties)


def _notes(declared_type: ct.NodeType | ct.EdgeType) -> Iterator[str]:
    if declared_type.description is not None:
        yield f"    {_one_line(declared_type.description)}"
    if declared_type.instruction is not None:
        yield f"    instruction: {_one_line(declared_type.instruction)}"
    for metadata in declared_type.metadata:
        yield f"    {show_annotation(metadata)}"


def _groups(
    declaration: ct.InterfaceType | ct.NodeType | ct.EdgeType,
) -> list[ct.Key | ct.Unique | ct.Index]:
    key = None if isinstance(declaration, ct.EdgeType) else declaration.key
    keys = () if key is None else (key,)
    return [*keys, *declaration.uniques, *declaration.indexes]


def _add_value_words(node_type: ct.NodeType, words: dict[str, list[str]]) -> None:
    for range_constraint in node_type.ranges:
        words.setdefault(range_constraint.property, []).append(
            f"range {show_bounds(range_constraint)}"
        )
    for check in node_type.checks:
        words.setdefault(check.property, []).append(f"matches {_quote(check.pattern)}")


def _word(group: ct.Key | ct.Unique | ct.Index) -> str:
    match group:
        case ct.Key():
            return "key"
        case ct.Unique():
            return "unique"
        case ct.Index():
            return "index" if group.metric is None else f"index by {group.metric}"
        case _:
            assert_never(group)


def _words_by_property(groups: Iterable[ct.Key | ct.Unique | ct.Index]) -> dict[str, list[str]]:
    words: dict[str, list[str]] = {}
    for group in groups:
        if len(group.properties) == 1:
            words.setdefault(group.properties[0], []).append(_word(group))
    return words


def _composites(
    groups: Iterable[ct.Key | ct.Unique | ct.Index], implicit: ct.ByName[ct.Property] | None = None
) -> Iterator[str]:
    for group in groups:
        hidden = implicit is not None and group.properties[0] not in implicit
        if len(group.properties) > 1 or hidden:
            yield f"    {_word(group)} ({', '.join(group.properties)})"


def _properties(properties: ct.ByName[ct.Property], words: dict[str, list[str]]) -> Iterator[str]:
    rows = [(prop.name, show_property_type(prop), prop) for prop in properties.values()]
    # One very long enum must not push every other line to the right.
    name_width = min(max((len(name) for name, _, _ in rows), default=0), 32)
    type_width = min(max((len(shown) for _, shown, _ in rows), default=0), 24)
    for name, shown, prop in rows:
        facts = [*words.get(name, ()), *_facts(prop)]
        line = f"    {name:<{name_width}}  {shown:<{type_width}}  {', '.join(facts)}"
        yield line.rstrip()


def _facts(prop: ct.Property) -> Iterator[str]:
    if prop.embed is not None:
        model = f" by {_one_line(prop.embed.model)}" if prop.embed.model else ""
        yield f"embeds {prop.embed.source}{model}"
    if not prop.declared:
        yield f"from {prop.interfaces[0]}"
    yield from map(show_annotation, prop.metadata)
    if prop.description is not None:
        yield _quote(prop.description)


def show_bounds(range_constraint: ct.Range) -> str:
    """The bounds of a range in schema spelling; an open side is empty."""
    return f"{_bound(range_constraint.low)}..{_bound(range_constraint.high)}"


def _bound(value: ct.Number | None) -> str:
    return "" if value is None else f"{value:f}" if not isinstance(value, int) else str(value)


def _quote(text: str) -> str:
    return f'"{_one_line(text)}"'


def _one_line(text: str) -> str:
    return " ".join(text.split())
