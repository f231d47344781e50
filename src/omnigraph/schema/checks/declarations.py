"""Type names, endpoints and interfaces: rules between declarations.

Invariant: node, edge and interface names live in separate namespaces, each free of
duplicates even after folding case, because table engines fold it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, assert_never

from omnigraph.language.diagnostics import Diagnostic, Suggestions
from omnigraph.schema.ast import (
    Declaration,
    EdgeDeclaration,
    InterfaceDeclaration,
    Name,
    NodeDeclaration,
    Schema,
    properties_of,
)
from omnigraph.schema.diagnostics import Rule, error
from omnigraph.schema.resolve import resolve_type

NAME_CHARACTERS_MAX: Final = 255


def check_declarations(
    schema: Schema,
    *,
    nodes: Collection[str],
    interfaces: Mapping[str, InterfaceDeclaration],
    suggestions: Suggestions,
) -> Iterator[Diagnostic]:
    """Checks that need more than one declaration."""
    yield from _names_are_unique(schema.declarations)
    for declaration in schema.declarations:
        yield from name_length(declaration.name)
        match declaration:
            case EdgeDeclaration():
                yield from _endpoints_exist(declaration, nodes, interfaces, suggestions)
            case NodeDeclaration():
                yield from _implements(declaration, nodes, interfaces, suggestions)
                yield from _interface_types_agree(declaration, interfaces)
            case InterfaceDeclaration():
                pass
            case _:
                assert_never(declaration)


def name_length(name: Name) -> Iterator[Diagnostic]:
    if len(name.text) > NAME_CHARACTERS_MAX:
        yield error(
            Rule.NAME_TOO_LONG,
            name.span,
            f"this name has {len(name.text)} characters, at most {NAME_CHARACTERS_MAX} are allowed",
        )


def kind_word(declaration: Declaration) -> str:
    """The word that starts this kind of declaration."""
    match declaration:
        case InterfaceDeclaration():
            return "interface"
        case NodeDeclaration():
            return "node"
        case EdgeDeclaration():
            return "edge"
        case _:
            assert_never(declaration)


def _names_are_unique(declarations: Iterable[Declaration]) -> Iterator[Diagnostic]:
    first: dict[tuple[str, str], Name] = {}
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
    edge: EdgeDeclaration,
    nodes: Collection[str],
    interfaces: Collection[str],
    suggestions: Suggestions,
) -> Iterator[Diagnostic]:
    for endpoint in (edge.source, edge.target):
        if endpoint.text in nodes:
            continue
        if endpoint.text in interfaces:
            hint = f"`{endpoint.text}` is an interface; an edge joins node types"
        else:
            hint = suggestions.closest(endpoint.text, nodes)
        yield error(
            Rule.UNKNOWN_ENDPOINT,
            endpoint.span,
            f"edge `{edge.name.text}` names the node type `{endpoint.text}`, which does not exist",
            hint or f"declare it: `node {endpoint.text} {{ ... }}`",
        )


def _implements(
    node: NodeDeclaration,
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


def _differs_in_case(promised: Name, similar: str, interface: Name) -> Diagnostic:
    return error(
        Rule.PROPERTY_NAME_CASE,
        interface.span,
        f"the interface `{interface.text}` brings the property `{promised.text}`, "
        f"which differs only in case from `{similar}`",
        "rename one; query engines fold case",
    )


def _interface_types_agree(
    node: NodeDeclaration, interfaces: Mapping[str, InterfaceDeclaration]
) -> Iterator[Diagnostic]:
    held = {each.name.text: (each, node.name.text) for each in reversed(properties_of(node))}
    own = frozenset(held)
    folded = {each.casefold(): each for each in held}
    for name in node.implements:
        interface = interfaces.get(name.text)
        for promised in properties_of(interface) if interface is not None else ():
            similar = folded.setdefault(promised.name.text.casefold(), promised.name.text)
            if similar != promised.name.text:
                yield _differs_in_case(promised.name, similar, name)
                continue
            present, holder = held.setdefault(promised.name.text, (promised, name.text))
            here, there = resolve_type(present.type), resolve_type(promised.type)
            if here is None or there is None:
                continue
            if (here, present.type.nullable) == (there, promised.type.nullable):
                continue
            span = present.name.span if promised.name.text in own else name.span
            yield error(
                Rule.INTERFACE_CONFLICT,
                span,
                f"property `{promised.name.text}` has another type in `{holder}` "
                f"than in the interface `{name.text}`",
                "use the same type and the same `?`, or rename one of the properties",
            )
