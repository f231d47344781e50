"""A place of a query text: what may be written there, and what the token there means.

Invariant: what a name means is what the checks of the compiler decided; see `QueryDocument`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from omnigraph_lake.editor import content
from omnigraph_lake.language.grammars import Lexeme
from omnigraph_lake.names import SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.query import ast
from omnigraph_lake.query.checks.calls import FUNCTIONS, Family
from omnigraph_lake.query.checks.infer import own_properties
from omnigraph_lake.query.checks.inserted_ends import END_WORDS
from omnigraph_lake.query.checks.scope import (
    ANONYMOUS,
    Bound,
    KnownProperty,
    Scope,
    edges_bound,
    interface_bound,
    node_bound,
)
from omnigraph_lake.query.checks.writes import assignable_names
from omnigraph_lake.query.functions import NODE
from omnigraph_lake.query.tokens import KEYWORDS, SUB_PATTERNS
from omnigraph_lake.query.types import EdgeOf, NodeOf, PathOf, is_number, show, show_with_null
from omnigraph_lake.schema.catalog import (
    Catalog,
    EdgeEnd,
    EdgeType,
    EnumType,
    InterfaceType,
    NodeType,
)
from omnigraph_lake.schema.show import property_facts, show_declaration

_PARTS: Final = frozenset({"MATCH", "RETURN", "HAVING", "ORDER", "LIMIT", "OFFSET"})
_STATEMENTS: Final = frozenset({"INSERT", "UPSERT", "UPDATE", "DELETE"})
_BODY_STARTS: Final = frozenset({"LBRACE", "MATCH", *_STATEMENTS})
_STATEMENTS_OF_ROWS: Final = frozenset({"UPDATE", "DELETE"})
"""Statements that can read the properties of rows."""
VARIABLES: Final = frozenset({"VARIABLE", "EDGE_VARIABLE"})
_FAMILIES: Final[Mapping[str, frozenset[Family]]] = {
    "MATCH": frozenset({Family.VALUE, Family.CONDITION}),
    "RETURN": frozenset({Family.VALUE, Family.RANKING, Family.AGGREGATE}),
    "HAVING": frozenset({Family.VALUE, Family.AGGREGATE}),
    "ORDER": frozenset({Family.VALUE, Family.RANKING, Family.AGGREGATE}),
    "LIMIT": frozenset(),
    "OFFSET": frozenset(),
}
"""The functions of a part of a query; a mutation has those of `match`."""
_ANNOTATIONS: Final = ("description", "instruction")


def kind_at(tokens: Sequence[Lexeme], position: int) -> str:
    """The kind of a token; empty if there is none."""
    return tokens[position].kind if 0 <= position < len(tokens) else ""


def aliases_of(declaration: ast.QueryDeclaration | None) -> dict[str, ast.Name]:
    """The aliases of the columns of a query."""
    if declaration is None or not isinstance(declaration.body, ast.ReadBody):
        return {}
    names = [projection.alias for projection in declaration.body.projections]
    return {name.text: name for name in names if name is not None and name.text}


_Declared: TypeAlias = InterfaceType | NodeType | EdgeType


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPlace:
    """A place of a query: the tokens before it, and what names mean there.

    `scope` is None without a schema, or if nothing could be read of the query.
    """

    before: Sequence[Lexeme]
    catalog: Catalog | None
    declaration: ast.QueryDeclaration | None
    scope: Scope | None

    def completions(self, expected: frozenset[str]) -> Iterator[content.Completion]:
        """Every word that can be written here, of the kinds that the grammar accepts."""
        if "VARIABLE" in expected:
            yield from self._variables()
        if "NAME" in expected:
            yield from self._names(expected)
        if "TYPE_NAME" in expected:
            yield from self._types()
        if "EDGE_NAME" in expected or self._begins_edge():
            yield from self._edges()
        if "STRING" in expected:
            yield from self.values()
        if "ANNOTATION" in expected:
            for name in _ANNOTATIONS:
                yield content.complete_annotation(name)
        for kind in sorted(expected):
            word = kind.lower()
            if word in KEYWORDS or word in self._sub_patterns():
                yield content.Completion(text=word, kind=content.CompletionKind.KEYWORD)

    def values(self) -> Iterator[content.Completion]:
        """The values of the enum that is compared with, or assigned, here."""
        known = self._operand()
        if known is not None and isinstance(known.type, EnumType):
            for value in known.type.values:
                yield content.Completion(
                    text=f'"{value}"', kind=content.CompletionKind.VALUE, detail=show(known.type)
                )

    def explain(self, token: Lexeme, following: str) -> tuple[str, str] | None:
        """The code and the text that explain a token."""
        if token.kind in VARIABLES:
            return self._explain_variable(token.text[1:])
        if token.kind == "NAME" and following == "LPAR" and self._last() != "QUERY":
            return content.FUNCTIONS_EXPLAINED.get(token.text)
        if token.kind == "ANNOTATION":
            return content.ANNOTATIONS_EXPLAINED.get(token.text[1:])
        if token.kind == "TYPE_NAME" and not self._in_body():
            meaning = content.TYPES_EXPLAINED.get(token.text)
            return None if meaning is None else (token.text, meaning)
        declared = self._type_named(token)
        if declared is not None:
            return show_declaration(declared), ""
        return self._explain_property(token, following)

    def element(self, token: Lexeme, following: str) -> content.SchemaElement | None:
        """The type or the property of the schema that a token names."""
        declared = self._type_named(token)
        if declared is not None:
            return content.SchemaElement(kind=_element_kind(declared), type=declared.name)
        owner = self._owner(following) if token.kind == "NAME" else None
        if owner is None or token.text not in owner.properties:
            return None
        return content.SchemaElement(
            kind=_element_kind(owner), type=owner.name, property=token.text
        )

    def _last(self, back: int = 1) -> str:
        return self.before[-back].kind if len(self.before) >= back else ""

    def _in_body(self) -> bool:
        return any(token.kind in _BODY_STARTS for token in self.before)

    def _part(self) -> str:
        """The keyword of the part of the query that the place is in."""
        return next((token.kind for token in reversed(self.before) if token.kind in _PARTS), "")

    def _sub_patterns(self) -> frozenset[str]:
        """The words of sub-patterns, without those that are functions of the part, too."""
        part = self._part()
        if part == "MATCH":
            return SUB_PATTERNS
        return SUB_PATTERNS - FUNCTIONS.keys() if part in ("RETURN", "ORDER") else frozenset()

    def _variables(self) -> Iterator[content.Completion]:
        if not self._in_body():
            return
        if self.scope is None:
            for name in dict.fromkeys(
                token.text for token in self.before if token.kind in VARIABLES
            ):
                yield content.Completion(text=name, kind=content.CompletionKind.VARIABLE)
            return
        for name, parameter in self.scope.parameters.items():
            detail = "parameter"
            if parameter is not None:
                detail += f": {show_with_null(parameter.type, nullable=parameter.nullable)}"
            yield content.Completion(
                text=f"${name}", kind=content.CompletionKind.VARIABLE, detail=detail
            )
        if self._part() in ("LIMIT", "OFFSET"):
            return
        for name, bound in self.scope.variables.items():
            if name and not name.startswith(f"{ANONYMOUS}."):
                shown = "" if bound is None else show(bound.type)
                yield content.Completion(
                    text=f"${name}", kind=content.CompletionKind.VARIABLE, detail=shown
                )

    def _names(self, expected: frozenset[str]) -> Iterator[content.Completion]:
        if self._last() in ("AS", "QUERY"):
            return
        if self._last() == "DOT" or "STRING" not in expected:
            yield from self._property_items("COLON")
            return
        own = self._own_type(_STATEMENTS_OF_ROWS)
        if own is not None:
            yield from _property_completions(own_properties(own), own)
        if self._part() in ("HAVING", "ORDER"):
            for name in aliases_of(self.declaration):
                yield content.Completion(
                    text=name, kind=content.CompletionKind.VALUE, detail="column"
                )
        families = _FAMILIES.get(self._part(), _FAMILIES["MATCH"])
        for name, (signature, meaning) in content.FUNCTIONS_EXPLAINED.items():
            is_possible = name != NODE or self._end_of_insert() is not None
            if FUNCTIONS[name].family in families and is_possible:
                yield content.Completion(
                    text=name,
                    kind=content.CompletionKind.FUNCTION,
                    detail=signature,
                    description=meaning,
                )

    def _property_items(self, following: str) -> Iterator[content.Completion]:
        """The properties of the variable in front of a dot, or those that can be assigned."""
        owner, known = self._owner(following), self.properties(following)
        written = self._names_assigned() if self._last() != "DOT" else frozenset()
        yield from _property_completions(
            {name: prop for name, prop in known.items() if name not in written}, owner
        )

    def _types(self) -> Iterator[content.Completion]:
        if not self._in_body():
            for name, meaning in content.TYPES_EXPLAINED.items():
                yield content.Completion(
                    text=name, kind=content.CompletionKind.TYPE, description=meaning
                )
            return
        if self.catalog is None:
            return
        for item in self._types_expected(self.catalog):
            yield content.Completion(
                text=item.name,
                kind=content.CompletionKind.TYPE,
                detail=show_declaration(item).partition("\n")[0],
                description="" if isinstance(item, InterfaceType) else item.description or "",
            )

    def _types_expected(self, catalog: Catalog) -> Iterator[_Declared]:
        if self._last() == "LPAR" and self._last(2) == "NAME":
            end = self._end_of_insert(back=2) if self.before[-2].text == NODE else None
            yield from (catalog.nodes[name] for name in (() if end is None else end.names))
            return
        yield from catalog.nodes.values()
        is_statement = self._last() in _STATEMENTS
        yield from catalog.edges.values() if is_statement else catalog.interfaces.values()

    def _end_of_insert(self, back: int = 0) -> EdgeEnd | None:
        """The end that is assigned here, or so many tokens back: `to:` of an inserted edge."""
        own, colon = self._own_type(), len(self.before) - 1 - back
        if not isinstance(own, EdgeType) or kind_at(self.before, colon) != "COLON" or colon < 1:
            return None
        column = END_WORDS.get(self.before[colon - 1].text)
        return {SOURCE_COLUMN: own.source, TARGET_COLUMN: own.target}.get(column or "")

    def _begins_edge(self) -> bool:
        """After `$a <` and `$a $e:`, which are something else to the grammar until more follows."""
        kinds = [token.kind for token in self._before_alternatives()[-3:]]
        return kinds[-2:] == ["VARIABLE", "LESS"] or kinds == ["VARIABLE", "VARIABLE", "COLON"]

    def _edges(self) -> Iterator[content.Completion]:
        if self.catalog is None or not self.before:
            return
        before = self._before_alternatives()
        last = before[-1].kind if before else ""
        back = 3 if last == "COLON" else 2 if last in ("LESS", "BACKWARD") else 1
        bound = self._binding(before[-back].text[1:]) if len(before) >= back else None
        types = bound.type.types if bound is not None and isinstance(bound.type, NodeOf) else None
        for edge in self.catalog.edges.values():
            if types is None or {*edge.source.names, *edge.target.names} & set(types):
                yield content.Completion(
                    text=edge.name[:1].lower() + edge.name[1:],
                    kind=content.CompletionKind.EDGE,
                    detail=f"{edge.source} -> {edge.target}",
                    description=edge.description or "",
                )

    def _names_weight(self) -> bool:
        """After `as $path by`."""
        return [token.kind for token in self.before[-3:]] == ["AS", "VARIABLE", "BY"]

    def _edges_of_path(self) -> tuple[str, ...]:
        """The edge types of the path whose weight is named here."""
        assert self.catalog is not None
        words: list[str] = []
        for token in reversed(self.before):
            if token.kind == "EDGE_NAME":
                words.append(token.text.casefold())
            elif words and token.kind != "PIPE":
                break
        return tuple(
            name for name in self.catalog.edges if words == [ANONYMOUS] or name.casefold() in words
        )

    def _before_alternatives(self) -> Sequence[Lexeme]:
        """The tokens before the edges that `|` joins to the one that is written here."""
        before = self.before
        while len(before) > 1 and before[-1].kind == "PIPE":
            before = before[:-2]
        return before

    def _binding(self, variable: str) -> Bound | None:
        return None if self.scope is None else self.scope.variables.get(variable)

    def _own_type(self, statements: frozenset[str] = _STATEMENTS) -> NodeType | EdgeType | None:
        """The type of the statement of a mutation that the place is in, if it is one of these."""
        for position in range(len(self.before) - 2, -1, -1):
            statement = self.before[position].kind
            if statement in _STATEMENTS and self.catalog is not None:
                name = self.before[position + 1].text if statement in statements else ""
                return self.catalog.nodes.get(name) or self.catalog.edges.get(name)
        return None

    def _braces(self) -> int | None:
        """The position of the brace that is open here."""
        depth = 0
        for position in range(len(self.before) - 1, -1, -1):
            kind = self.before[position].kind
            depth += (kind == "RBRACE") - (kind == "LBRACE")
            if depth < 0:
                return position
        return None

    def _names_assigned(self) -> frozenset[str]:
        """The properties that the open braces assign already."""
        braces = self._braces()
        tokens = self.before[braces + 1 :] if braces is not None else ()
        return frozenset(
            token.text
            for position, token in enumerate(tokens)
            if kind_at(tokens, position + 1) == "COLON"
        )

    def _owner(self, following: str) -> _Declared | None:
        """The type whose property a name is here; `following` is the kind of the token after it."""
        if self.catalog is None:
            return None
        if self._last() == "DOT" and len(self.before) > 1:
            return _type_of(self._binding(self.before[-2].text[1:]), self.catalog)
        if self._names_weight():
            edges = self._edges_of_path()
            return self.catalog.edges[edges[0]] if len(edges) == 1 else None
        braces = self._braces()
        if (
            following == "COLON"
            and braces is not None
            and kind_at(self.before, braces - 1) != "SET"
        ):
            name = self.before[braces - 1].text
            known: Mapping[str, _Declared] = {
                **self.catalog.edges,
                **self.catalog.interfaces,
                **self.catalog.nodes,
            }
            return known.get(name) if self.before[braces - 1].kind == "TYPE_NAME" else None
        return self._own_type()

    def properties(self, following: str) -> Mapping[str, KnownProperty]:
        """The properties of `_owner`, and the columns that every entity has."""
        if self._last() == "DOT" and len(self.before) > 1:
            bound = self._binding(self.before[-2].text[1:])
            return {} if bound is None else bound.properties
        if self._names_weight() and self.catalog is not None:
            shared = edges_bound(self.catalog, self._edges_of_path()).properties
            return {name: known for name, known in shared.items() if is_number(known.type)}
        owner, own = self._owner(following), self._own_type()
        if owner is None or self.catalog is None:
            return {}
        if own is not None and not isinstance(owner, InterfaceType):
            known = own_properties(own)
            names = assignable_names(own) if following == "COLON" else tuple(known)
            return {name: known[name] for name in names if name in known}
        if isinstance(owner, InterfaceType):
            return interface_bound(self.catalog, owner).properties
        return (
            node_bound(self.catalog, owner.name).properties
            if owner.name in self.catalog.nodes
            else {}
        )

    def _operand(self) -> KnownProperty | None:
        """The property that a literal at this place is compared with, or assigned to."""
        position = len(self.before) - 1
        while position > 0 and self.before[position].kind in ("STRING", "COMMA", "LSQB"):
            position -= 1
        if kind_at(self.before, position) not in ("EQUAL", "NOT_EQUAL", "IN", "COLON"):
            return None
        name = self.before[position - 1]
        place = replace(self, before=self.before[: position - 1])
        return place.properties(self.before[position].kind).get(name.text)

    def _type_named(self, token: Lexeme) -> _Declared | None:
        catalog = self.catalog
        if catalog is None:
            return None
        if token.kind == "EDGE_NAME":
            edges = catalog.edges.values()
            return next(
                (edge for edge in edges if edge.name.casefold() == token.text.casefold()), None
            )
        if token.kind != "TYPE_NAME" or not self._in_body():
            return None
        node = catalog.nodes.get(token.text)
        if self._last() in _STATEMENTS:
            return node or catalog.edges.get(token.text)
        return node or catalog.interfaces.get(token.text)

    def _explain_variable(self, name: str) -> tuple[str, str] | None:
        if self.scope is None or self.catalog is None:
            return None
        parameter = self.scope.parameters.get(name)
        if parameter is not None:
            shown = show_with_null(parameter.type, nullable=parameter.nullable)
            return f"${name}: {shown}", "A parameter of the query."
        bound = self.scope.variables.get(name)
        if bound is None:
            return None
        declared = _type_of(bound, self.catalog)
        code = f"${name}: {show(bound.type)}{'?' if bound.nullable else ''}"
        return (code if declared is None else f"{code}\n\n{show_declaration(declared)}"), ""

    def _explain_property(self, token: Lexeme, following: str) -> tuple[str, str] | None:
        known = self.properties(following).get(token.text)
        if token.kind != "NAME" or known is None:
            return None
        owner = self._owner(following)
        shown = show_with_null(known.type, nullable=known.nullable)
        if owner is None or token.text not in owner.properties:
            return f"{token.text}: {shown}", "A column that every entity of this kind has."
        facts = ", ".join(property_facts(owner, owner.properties[token.text]))
        return f"{owner.name}.{token.text}: {shown}\n    {facts}".rstrip(), ""


def _property_completions(
    known: Mapping[str, KnownProperty], owner: _Declared | None
) -> Iterator[content.Completion]:
    for name, prop in known.items():
        declared = None if owner is None else owner.properties.get(name)
        facts = () if owner is None or declared is None else property_facts(owner, declared)
        yield content.Completion(
            text=name,
            kind=content.CompletionKind.PROPERTY,
            detail=show_with_null(prop.type, nullable=prop.nullable),
            description=", ".join(facts),
        )


def _type_of(bound: Bound | None, catalog: Catalog) -> _Declared | None:
    if bound is None:
        return None
    match bound.type:
        case NodeOf(interface=interface, types=types):
            if interface is not None:
                return catalog.interfaces.get(interface)
            return catalog.nodes.get(types[0]) if len(types) == 1 else None
        case EdgeOf(types=names) | PathOf(edges=names):
            return catalog.edges.get(names[0]) if len(names) == 1 else None
        case _:
            assert_never(bound.type)


def _element_kind(declared: _Declared) -> content.ElementKind:
    match declared:
        case InterfaceType():
            return content.ElementKind.INTERFACE
        case NodeType():
            return content.ElementKind.NODE
        case EdgeType():
            return content.ElementKind.EDGE
        case _:
            assert_never(declared)
