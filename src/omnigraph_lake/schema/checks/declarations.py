"""Checks declarations: type names, endpoints and interfaces, and the properties of each body.

Invariants:

- Node, edge and interface names live in separate namespaces, each free of duplicates even after
  folding case, because table engines fold it.
- The columns of a type that passes have distinct names in every engine, and none of them collides
  with a column of Omnigraph or of the storage.
- Every type expression that passes resolves.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, assert_never

from omnigraph_lake.language.diagnostics import Diagnostic, Suggestions
from omnigraph_lake.names import END_TYPE_WORDS, LANCE_COLUMNS, SYSTEM_COLUMNS
from omnigraph_lake.schema import ast
from omnigraph_lake.schema.catalog import (
    DECIMAL_DIGITS_MAX,
    DecimalType,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph_lake.schema.diagnostics import Rule, error
from omnigraph_lake.schema.parser import BASE_TYPE_NAMES, type_hint
from omnigraph_lake.schema.resolve import (
    DECIMAL,
    DECIMAL_HINT,
    VECTOR,
    VECTOR_SIZE_MAX,
    number_value,
    resolve_type,
)

NAME_CHARACTERS_MAX: Final = 255


def check_declarations(
    schema: ast.Schema,
    *,
    nodes: Collection[str],
    interfaces: Mapping[str, ast.InterfaceDeclaration],
    suggestions: Suggestions,
) -> Iterator[Diagnostic]:
    """Checks that need more than one declaration."""
    yield from _names_are_unique(schema.declarations)
    implemented = {
        interface.text
        for declaration in schema.declarations
        if isinstance(declaration, ast.NodeDeclaration)
        for interface in declaration.implements
    }
    for declaration in schema.declarations:
        yield from name_length(declaration.name)
        match declaration:
            case ast.EdgeDeclaration():
                yield from _endpoints_exist(declaration, nodes, interfaces, suggestions)
                yield from _ends_have_nodes(declaration, nodes, interfaces, implemented)
            case ast.NodeDeclaration():
                yield from _implements(declaration, nodes, interfaces, suggestions)
                yield from _interface_types_agree(declaration, interfaces)
            case ast.InterfaceDeclaration():
                pass
            case _:
                assert_never(declaration)


def name_length(name: ast.Name) -> Iterator[Diagnostic]:
    if len(name.text) > NAME_CHARACTERS_MAX:
        yield error(
            Rule.NAME_TOO_LONG,
            name.span,
            f"this name has {len(name.text)} characters, at most {NAME_CHARACTERS_MAX} are allowed",
        )


def kind_word(declaration: ast.Declaration) -> str:
    """The word that starts this kind of declaration."""
    match declaration:
        case ast.InterfaceDeclaration():
            return "interface"
        case ast.NodeDeclaration():
            return "node"
        case ast.EdgeDeclaration():
            return "edge"
        case _:
            assert_never(declaration)


def _names_are_unique(declarations: Iterable[ast.Declaration]) -> Iterator[Diagnostic]:
    first: dict[tuple[str, str], ast.Name] = {}
    for declaration in declarations:
        kind, name = kind_word(declaration), declaration.name
        earlier = first.setdefault((kind, name.text.casefold()), name)
        if earlier is name:
            continue
        if earlier.text == name.text:
            yield error(
                Rule.DUPLICATE_TYPE,
                name.span,
                f"{kind} `{name.text}` is declared twice, first on line {earlier.span.line}",
                "merge the two declarations, or rename one",
            )
        else:
            yield error(
                Rule.TYPE_NAME_CASE,
                name.span,
                f"{kind} `{name.text}` differs only in case from `{earlier.text}` "
                f"on line {earlier.span.line}",
                "rename one; query engines fold case",
            )


def _endpoints_exist(
    edge: ast.EdgeDeclaration,
    nodes: Collection[str],
    interfaces: Collection[str],
    suggestions: Suggestions,
) -> Iterator[Diagnostic]:
    for endpoint in (*edge.sources, *edge.targets):
        if endpoint.text in nodes or endpoint.text in interfaces:
            continue
        yield error(
            Rule.UNKNOWN_ENDPOINT,
            endpoint.span,
            f"edge `{edge.name.text}` names the node type `{endpoint.text}`, which does not exist",
            suggestions.closest(endpoint.text, (*nodes, *interfaces))
            or f"declare it: `node {endpoint.text} {{ ... }}`",
        )
    for names in (edge.sources, edge.targets):
        yield from _ends_are_distinct(edge, names)


def _ends_are_distinct(
    edge: ast.EdgeDeclaration, names: Sequence[ast.Name]
) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for name in names:
        if name.text in seen:
            yield error(
                Rule.DUPLICATE_END,
                name.span,
                f"edge `{edge.name.text}` names `{name.text}` twice at one end",
                "remove one",
            )
        seen.add(name.text)


def _ends_have_nodes(
    edge: ast.EdgeDeclaration,
    nodes: Collection[str],
    interfaces: Collection[str],
    implemented: Collection[str],
) -> Iterator[Diagnostic]:
    for end in (*edge.sources, *edge.targets):
        if end.text in interfaces and end.text not in nodes and end.text not in implemented:
            yield error(
                Rule.UNKNOWN_ENDPOINT,
                end.span,
                f"edge `{edge.name.text}` joins nodes of the interface `{end.text}`, "
                "which no node type implements",
                f"write `implements {end.text}` in the header of a node type",
            )


def _implements(
    node: ast.NodeDeclaration,
    nodes: Collection[str],
    interfaces: Collection[str],
    suggestions: Suggestions,
) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for name in node.implements:
        if name.text in seen:
            yield error(
                Rule.DUPLICATE_INTERFACE,
                name.span,
                f"node `{node.name.text}` implements `{name.text}` twice",
                "remove one",
            )
        elif name.text not in interfaces:
            if name.text in nodes:
                hint = f"`{name.text}` is a node; only interfaces can be implemented"
            else:
                hint = suggestions.closest(name.text, interfaces)
            yield error(
                Rule.UNKNOWN_INTERFACE,
                name.span,
                f"node `{node.name.text}` implements the interface `{name.text}`, "
                "which does not exist",
                hint or f"declare it: `interface {name.text} {{ ... }}`",
            )
        seen.add(name.text)


def _differs_in_case(promised: ast.Name, similar: str, interface: ast.Name) -> Diagnostic:
    return error(
        Rule.PROPERTY_NAME_CASE,
        interface.span,
        f"the interface `{interface.text}` brings the property `{promised.text}`, "
        f"which differs only in case from `{similar}`",
        "rename one; query engines fold case",
    )


def _interface_types_agree(
    node: ast.NodeDeclaration, interfaces: Mapping[str, ast.InterfaceDeclaration]
) -> Iterator[Diagnostic]:
    held_properties = {
        property_declaration.name.text: (property_declaration, node.name.text)
        for property_declaration in reversed(ast.properties_of(node))
    }
    own_names = frozenset(held_properties)
    folded_names = {property_name.casefold(): property_name for property_name in held_properties}
    for name in node.implements:
        interface = interfaces.get(name.text)
        for promised in ast.properties_of(interface) if interface is not None else ():
            similar = folded_names.setdefault(promised.name.text.casefold(), promised.name.text)
            if similar != promised.name.text:
                yield _differs_in_case(promised.name, similar, name)
                continue
            present, holder = held_properties.setdefault(promised.name.text, (promised, name.text))
            here, there = resolve_type(present.type), resolve_type(promised.type)
            if here is None or there is None:
                continue
            if (here, present.type.nullable) == (there, promised.type.nullable):
                continue
            span = present.name.span if promised.name.text in own_names else name.span
            yield error(
                Rule.INTERFACE_CONFLICT,
                span,
                f"property `{promised.name.text}` has another type in `{holder}` "
                f"than in the interface `{name.text}`",
                "use the same type and the same `?`, or rename one of the properties",
            )


_RESERVED: Final = frozenset(LANCE_COLUMNS)
_SYSTEM: Final = frozenset(SYSTEM_COLUMNS)
_END_TYPES: Final = frozenset({*END_TYPE_WORDS, *END_TYPE_WORDS.values()})


def check_properties(declaration: ast.Declaration, nodes: Collection[str]) -> Iterator[Diagnostic]:
    """The names and types of the properties in one body, in a schema with these node types."""
    yield from _end_types_are_free(declaration, nodes)
    first_names: dict[str, ast.Name] = {}
    for property_declaration in ast.properties_of(declaration):
        name = property_declaration.name
        folded_name = name.text.casefold()
        earlier = first_names.setdefault(folded_name, name)
        if earlier is not name:
            yield _repeated(name, earlier)
        yield from name_length(name)
        if folded_name in _SYSTEM or name.text in _RESERVED:
            yield error(
                Rule.RESERVED_PROPERTY,
                name.span,
                f"the property name `{name.text}` is reserved",
                "every type has its own `id` (edges also `src`, `dst`); choose another name",
            )
        if isinstance(property_declaration.type.core, ast.EnumOf):
            yield from _enum_values(property_declaration.type.core)
        elif resolve_type(property_declaration.type) is None:
            yield from _explain_type(property_declaration.type.core)


def _end_types_are_free(
    declaration: ast.Declaration, nodes: Collection[str]
) -> Iterator[Diagnostic]:
    if not isinstance(declaration, ast.EdgeDeclaration):
        return
    ends = (declaration.sources, declaration.targets)
    if not any(len(names) > 1 or names[0].text not in nodes for names in ends):
        return
    for prop in ast.properties_of(declaration):
        if prop.name.text.casefold() in _END_TYPES:
            yield error(
                Rule.RESERVED_PROPERTY,
                prop.name.span,
                f"the property name `{prop.name.text}` is reserved",
                "an edge with several node types at an end names them in `src_type` and "
                "`dst_type`, or `from_type` and `to_type`; choose another name",
            )


def _repeated(name: ast.Name, earlier: ast.Name) -> Diagnostic:
    if earlier.text == name.text:
        return error(
            Rule.DUPLICATE_PROPERTY,
            name.span,
            f"property `{name.text}` is declared twice, first on line {earlier.span.line}",
            "remove one",
        )
    return error(
        Rule.PROPERTY_NAME_CASE,
        name.span,
        f"property `{name.text}` differs only in case from `{earlier.text}` "
        f"on line {earlier.span.line}",
        "rename one; query engines fold case",
    )


def _explain_type(core: ast.BaseType | ast.ListOf) -> Iterator[Diagnostic]:
    match core:
        case ast.BaseType():
            yield from _explain_base(core)
        case ast.ListOf():
            yield from _explain_item(core.item)
        case _:
            assert_never(core)


def _explain_base(base: ast.BaseType) -> Iterator[Diagnostic]:
    if base.name == VECTOR:
        yield _vector_size(base)
    elif base.name == DECIMAL:
        yield _decimal_size(base)
    elif base.name not in BASE_TYPE_NAMES:
        yield error(
            Rule.UNKNOWN_TYPE,
            base.span,
            f"`{base.name}` is not a type",
            type_hint(base.name),
        )
    elif base.sizes:
        yield error(
            Rule.UNEXPECTED_SIZE,
            base.span,
            f"`{base.name}` takes no size",
            f"write `{base.name}`; only `Vector(n)` and `Decimal(p, s)` have a size",
        )


def _vector_size(base: ast.BaseType) -> Diagnostic:
    if not base.sizes:
        return error(
            Rule.VECTOR_SIZE, base.span, "`Vector` needs a size", "write it as `Vector(768)`"
        )
    if len(base.sizes) > 1:
        return error(
            Rule.VECTOR_SIZE, base.span, "`Vector` has one size", "write it as `Vector(768)`"
        )
    size = base.sizes[0]
    shown = size.raw if number_value(size) is not None else "that many digits"
    return error(
        Rule.VECTOR_SIZE,
        size.span,
        f"a vector has between 1 and {VECTOR_SIZE_MAX} numbers, not {shown}",
        "write a whole number, such as `Vector(768)`",
    )


def _decimal_size(base: ast.BaseType) -> Diagnostic:
    if len(base.sizes) != 2:
        message = "`Decimal` needs a precision and a scale"
        return error(Rule.DECIMAL_SIZE, base.span, message, DECIMAL_HINT)
    precision = number_value(base.sizes[0])
    if not isinstance(precision, int) or not 1 <= precision <= DECIMAL_DIGITS_MAX:
        message = f"a decimal has between 1 and {DECIMAL_DIGITS_MAX} digits"
        return error(Rule.DECIMAL_SIZE, base.sizes[0].span, message, DECIMAL_HINT)
    message = f"the scale of a decimal with {precision} digits is between 0 and {precision}"
    return error(Rule.DECIMAL_SIZE, base.sizes[1].span, message, DECIMAL_HINT)


def _explain_item(item: ast.BaseType) -> Iterator[Diagnostic]:
    resolved = resolve_type(ast.TypeExpression(core=item, nullable=False))
    if resolved is None:
        yield from _explain_base(item)
        return
    if resolved == ScalarType(scalar=Scalar.JSON):
        yield error(
            Rule.LIST_ITEM,
            item.span,
            "a list of Json does not exist",
            "write `Json`: an array is a value of it",
        )
        return
    match resolved:
        case DecimalType():
            what = "decimals"
        case VectorType():
            what = "vectors"
        case _:
            what = "blobs"
    yield error(
        Rule.LIST_ITEM,
        item.span,
        f"a list of {what} does not exist",
        "put each item on a node of its own and join them with an edge",
    )


def _enum_values(core: ast.EnumOf) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for value in core.values:
        yield from name_length(value)
        if value.text in seen:
            yield error(
                Rule.DUPLICATE_ENUM_VALUE,
                value.span,
                f"the enum value `{value.text}` is listed twice",
                "remove one",
            )
        seen.add(value.text)
