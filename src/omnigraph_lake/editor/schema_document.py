"""A schema text in an editor.

Names are found in the syntax tree. A property that an interface declares is one name in the
interface and in every node that implements it.

Invariant: every method accepts any text and any place in it; only `rename` refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, assert_never

from lark.exceptions import UnexpectedInput

from omnigraph_lake.editor import content
from omnigraph_lake.editor.content import ElementKind, SchemaElement, TextRange
from omnigraph_lake.errors import InvalidInputError, SchemaInvalidError
from omnigraph_lake.language.diagnostics import Diagnostic, Severity, Span
from omnigraph_lake.schema import ast
from omnigraph_lake.schema.catalog import Catalog, EdgeType, InterfaceType, NodeType
from omnigraph_lake.schema.compile import compile_schema, lint_schema
from omnigraph_lake.schema.format import format_schema
from omnigraph_lake.schema.parser import CONSTRAINT_WORDS, METRICS, parse_schema, schema_grammar
from omnigraph_lake.schema.show import property_facts, show_declaration, show_property_type

_TYPE_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9_]*")
_PROPERTY_NAME: Final = re.compile(r"[a-z_][A-Za-z0-9_]*")
_WORD: Final = re.compile(r"@?\w+")
_DECLARATION_START: Final = re.compile(r"^[ \t]*(?:interface|node|edge)\b", re.MULTILINE)
_DECLARED_NAME: Final = re.compile(r"\b(interface|node|edge)\s+([A-Z]\w*)")
_DECLARED_PROPERTY: Final = re.compile(r"\b([a-z_]\w*)\s*:")
_KEYWORDS: Final = ("interface", "node", "edge", "implements", "enum")
_HEADER_ANNOTATIONS: Final = ("description", "instruction", "meta", "rename_from")
_PROPERTY_ANNOTATIONS: Final = (
    *("key", "unique", "index", "range", "check"),
    *("description", "embed", "meta", "rename_from", "backfill", "rename_value"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Occurrence:
    """A name in the text, and what it names."""

    range: TextRange
    element: SchemaElement
    is_declaration: bool


class SchemaDocument:
    """A schema text."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _schema(self) -> ast.Schema | None:
        parsed = parse_schema(self.text)
        return None if isinstance(parsed, Diagnostic) else parsed

    @cached_property
    def catalog(self) -> Catalog | None:
        """The catalog of the text; None if it has an error."""
        try:
            return compile_schema(self.text, filename="schema", identity_domain="editor")
        except SchemaInvalidError:
            return None

    @cached_property
    def _occurrences(self) -> tuple[_Occurrence, ...]:
        return () if self._schema is None else tuple(_names_in(self._schema))

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        return lint_schema(self.text)

    def completions(self, offset: int) -> content.Completions:
        word = content.word_at(self.text, offset)
        if word.kind is not content.WordKind.WORD:
            return content.Completions(range=word.range, items=())
        items = _SchemaPlace(self.text, word.range.start).completions()
        return content.Completions(range=word.range, items=tuple(dict.fromkeys(items)))

    def hover(self, offset: int) -> content.Hover | None:
        occurrence = self._at(offset)
        if occurrence is not None:
            return content.Hover(range=occurrence.range, code=self._explain(occurrence.element))
        for word in _WORD.finditer(self.text):
            if word.start() <= offset <= word.end():
                explained = _explain_word(word.group())
                if explained is not None:
                    where = TextRange(start=word.start(), end=word.end())
                    return content.Hover(range=where, code=explained[0], description=explained[1])
        return None

    def definition(self, offset: int) -> TextRange | SchemaElement | None:
        occurrence = self._at(offset)
        return None if occurrence is None else self.find(occurrence.element)

    def find(self, element: SchemaElement) -> TextRange | None:
        """Where a type or a property is declared."""
        family = self._family(element)
        declared = [
            occurrence
            for occurrence in self._occurrences
            if occurrence.is_declaration and occurrence.element in family
        ]
        own = [occurrence for occurrence in declared if occurrence.element == element]
        return (own or declared)[0].range if declared else None

    def renamable(self, offset: int) -> TextRange | None:
        occurrence = self._at(offset)
        return None if occurrence is None else occurrence.range

    def rename(self, offset: int, name: str) -> tuple[TextRange, ...]:
        findings = self.diagnostics()
        if self._schema is None:
            raise InvalidInputError(
                f"the text does not parse: line {findings[0].span.line}: {findings[0].message}",
                next_step="Correct it, then rename.",
            )
        occurrence = self._at(offset)
        if occurrence is None:
            raise InvalidInputError(
                "there is no type or property to rename",
                next_step="Place the cursor on the name of a type or of a property.",
            )
        is_type = occurrence.element.property is None
        if not (_TYPE_NAME if is_type else _PROPERTY_NAME).fullmatch(name):
            letter = "a capital letter" if is_type else "a small letter or `_`"
            raise InvalidInputError(
                f"`{name}` is not a name here", next_step=f"Names of this kind start with {letter}."
            )
        family = self._family(occurrence.element)
        places = tuple(other.range for other in self._occurrences if other.element in family)
        renamed = SchemaDocument(content.replace_places(self.text, places, name)).diagnostics()
        new_errors = [finding for finding in renamed if finding.severity is Severity.ERROR]
        if len(new_errors) > sum(finding.severity is Severity.ERROR for finding in findings):
            raise InvalidInputError(
                f"renamed to `{name}`, the schema has an error: {new_errors[0].message}",
                next_step="Choose another name.",
            )
        return places

    def format(self) -> str | None:
        try:
            return format_schema(self.text)
        except SchemaInvalidError:
            return None

    def _at(self, offset: int) -> _Occurrence | None:
        return next(
            (
                occurrence
                for occurrence in self._occurrences
                if occurrence.range.start <= offset <= occurrence.range.end
            ),
            None,
        )

    def _family(self, element: SchemaElement) -> frozenset[SchemaElement]:
        """The elements that share the name: a property, in interfaces and what implements them."""
        if element.property is None or element.kind is ElementKind.EDGE or self._schema is None:
            return frozenset({element})
        links = list(_implementations(self._schema, element.property))
        family = {element}
        while True:
            more = {other for link in links if link & family for other in link} - family
            if not more:
                return frozenset(family)
            family |= more

    def _explain(self, element: SchemaElement) -> str:
        declared = None if self.catalog is None else _type_of(self.catalog, element)
        if declared is None:
            return f"{element.kind.value} {element.type}"
        if element.property is None:
            return show_declaration(declared)
        prop = declared.properties.get(element.property)
        if prop is None:
            return f"{element.type}.{element.property}"
        shown = show_property_type(prop)
        facts = ", ".join(property_facts(declared, prop))
        return f"{element.type}.{element.property}: {shown}\n    {facts}".rstrip()


def _type_of(
    catalog: Catalog, element: SchemaElement
) -> InterfaceType | NodeType | EdgeType | None:
    match element.kind:
        case ElementKind.INTERFACE:
            return catalog.interfaces.get(element.type)
        case ElementKind.NODE:
            return catalog.nodes.get(element.type)
        case ElementKind.EDGE:
            return catalog.edges.get(element.type)
        case _:
            assert_never(element.kind)


def _explain_word(word: str) -> tuple[str, str] | None:
    if word.startswith("@"):
        return content.ANNOTATIONS_EXPLAINED.get(word[1:])
    meaning = content.TYPES_EXPLAINED.get(word)
    return None if meaning is None else (word, meaning)


def _kind_of(declaration: ast.Declaration) -> ElementKind:
    match declaration:
        case ast.InterfaceDeclaration():
            return ElementKind.INTERFACE
        case ast.NodeDeclaration():
            return ElementKind.NODE
        case ast.EdgeDeclaration():
            return ElementKind.EDGE
        case _:
            assert_never(declaration)


def _implementations(schema: ast.Schema, name: str) -> Iterator[frozenset[SchemaElement]]:
    """A property of every interface that declares it, and of the same name in each node of it."""
    interfaces = {
        declaration.name.text
        for declaration in schema.declarations
        if isinstance(declaration, ast.InterfaceDeclaration)
        and any(prop.name.text == name for prop in ast.properties_of(declaration))
    }
    for declaration in schema.declarations:
        if isinstance(declaration, ast.NodeDeclaration):
            node = SchemaElement(kind=ElementKind.NODE, type=declaration.name.text, property=name)
            for interface in declaration.implements:
                if interface.text in interfaces:
                    kind = ElementKind.INTERFACE
                    yield frozenset(
                        {node, SchemaElement(kind=kind, type=interface.text, property=name)}
                    )


def _names_in(schema: ast.Schema) -> Iterator[_Occurrence]:
    """Every name of a type or a property."""
    names_of = {
        kind: {one.name.text for one in schema.declarations if _kind_of(one) is kind}
        for kind in ElementKind
    }
    nodes, interfaces = names_of[ElementKind.NODE], names_of[ElementKind.INTERFACE]
    for declaration in schema.declarations:
        kind, owner = _kind_of(declaration), declaration.name.text
        yield _occurrence(declaration.name.span, kind, owner, is_declaration=True)
        if isinstance(declaration, ast.NodeDeclaration):
            for interface in declaration.implements:
                yield _occurrence(interface.span, ElementKind.INTERFACE, interface.text)
        if isinstance(declaration, ast.EdgeDeclaration):
            for end in (*declaration.sources, *declaration.targets):
                is_interface = end.text in interfaces and end.text not in nodes
                end_kind = ElementKind.INTERFACE if is_interface else ElementKind.NODE
                yield _occurrence(end.span, end_kind, end.text)
        for prop in ast.properties_of(declaration):
            yield _occurrence(
                prop.name.span, kind, owner, property=prop.name.text, is_declaration=True
            )
        for name, span in _property_uses(declaration):
            yield _occurrence(span, kind, owner, property=name)


def _occurrence(
    span: Span,
    kind: ElementKind,
    type: str,  # noqa: A002 - the word for it
    *,
    property: str | None = None,  # noqa: A002 - the word for it
    is_declaration: bool = False,
) -> _Occurrence:
    return _Occurrence(
        range=TextRange(start=span.offset, end=span.end),
        element=SchemaElement(kind=kind, type=type, property=property),
        is_declaration=is_declaration,
    )


def _property_uses(declaration: ast.Declaration) -> Iterator[tuple[str, Span]]:
    """The properties that constraints and `@embed` name."""
    annotations = [
        *ast.body_annotations_of(declaration),
        *(note for prop in ast.properties_of(declaration) for note in prop.annotations),
    ]
    for annotation in annotations:
        if annotation.name in CONSTRAINT_WORDS:
            for argument in annotation.arguments or ():
                if isinstance(argument, ast.Word):
                    yield argument.text, argument.span
        if annotation.name == "embed" and annotation.arguments:
            source = annotation.arguments[0]
            if isinstance(source, ast.Word):
                yield source.text, source.span
            elif isinstance(source, ast.StringLiteral):
                span = source.span
                inner = Span(
                    offset=span.offset + 1, line=span.line, column=span.column + 1, end=span.end - 1
                )
                yield source.raw[1:-1], inner


class _SchemaPlace:
    """A place of a schema text: the tokens before it, and what the grammar accepts there."""

    def __init__(self, text: str, offset: int) -> None:
        starts = [start.start() for start in _DECLARATION_START.finditer(text, 0, offset)]
        following = _DECLARATION_START.search(text, offset)
        self._text = text
        self._declaration = text[
            (starts or [0])[-1] : len(text) if following is None else following.start()
        ]
        self._expected: frozenset[str] = frozenset()
        self._before: list[tuple[str, str]] = []
        # An error further up must not matter, so that the declaration alone is read then.
        for start in dict.fromkeys((0, *starts[-1:])):
            if self._read(text[start:offset]):
                break

    def _read(self, text: str) -> bool:
        interactive: Any = schema_grammar().parse_interactive(text)
        self._before = []
        try:
            for token in interactive.iter_parse():
                self._before.append((token.type, str(token)))
        except UnexpectedInput:
            return False
        finally:
            self._expected = frozenset(interactive.accepts())
        return True

    def completions(self) -> Iterator[content.Completion]:
        yield from self._types()
        if "ANNOTATION" in self._expected:
            yield from self._annotations()
        if "NAME" in self._expected and "STRING" in self._expected:
            yield from self._arguments()
        for keyword in _KEYWORDS:
            if keyword.upper() in self._expected:
                yield content.Completion(text=keyword, kind=content.CompletionKind.KEYWORD)

    def _last(self, back: int = 1) -> str:
        return self._before[-back][0] if len(self._before) >= back else ""

    def _types(self) -> Iterator[content.Completion]:
        if "TYPE_NAME" not in self._expected or self._last() in ("NODE", "EDGE", "INTERFACE"):
            return
        is_end = self._last() in ("_ARROW", "VBAR") or (
            self._last() == "COLON" and self._last(3) == "EDGE"
        )
        if is_end:
            yield from self._names_of("node")
            yield from self._names_of("interface")
        elif self._last() in ("IMPLEMENTS", "COMMA"):
            yield from self._names_of("interface")
        else:
            for name, meaning in content.TYPES_EXPLAINED.items():
                yield content.Completion(
                    text=name, kind=content.CompletionKind.TYPE, description=meaning
                )

    def _names_of(self, kind: str) -> Iterator[content.Completion]:
        for declaration in _DECLARED_NAME.finditer(self._text):
            if declaration.group(1) == kind:
                yield content.Completion(
                    text=declaration.group(2), kind=content.CompletionKind.TYPE, detail=kind
                )

    def _annotations(self) -> Iterator[content.Completion]:
        in_body = any(kind == "LBRACE" for kind, _ in self._tokens_of_declaration())
        is_edge = any(kind == "EDGE" for kind, _ in self._tokens_of_declaration())
        names = _PROPERTY_ANNOTATIONS if in_body else _HEADER_ANNOTATIONS
        for name in (*names, *(("card", "cluster") if is_edge and not in_body else ())):
            yield content.complete_annotation(name)

    def _tokens_of_declaration(self) -> list[tuple[str, str]]:
        for position in range(len(self._before) - 1, -1, -1):
            if self._before[position][0] in ("NODE", "EDGE", "INTERFACE"):
                return self._before[position:]
        return []

    def _arguments(self) -> Iterator[content.Completion]:
        if self._last() == "EQUAL" and self._before[-2][1] == "metric":
            for metric in METRICS:
                yield content.Completion(text=metric, kind=content.CompletionKind.VALUE)
            return
        if self._last() == "EQUAL" and self._last(2) != "NAME":
            yield from self._default_values()
            return
        annotation = next(
            (text for kind, text in reversed(self._before) if kind == "ANNOTATION"), ""
        )
        if annotation[1:] in {*CONSTRAINT_WORDS, "embed"}:
            for name in dict.fromkeys(_DECLARED_PROPERTY.findall(self._declaration)):
                yield content.Completion(text=name, kind=content.CompletionKind.PROPERTY)

    def _default_values(self) -> Iterator[content.Completion]:
        """The values that a default can be, of types that have few."""
        declared = [token for token in self._before[:-1] if token[0] != "QUESTION"]
        values: tuple[str, ...] = ()
        if declared[-1][1] == "Bool":
            values = ("true", "false")
        elif declared[-1][0] == "RPAR":
            start = max(place for place, (kind, _) in enumerate(declared) if kind == "LPAR")
            values = tuple(text for kind, text in declared[start:] if kind == "ENUM_VALUE")
        for value in values:
            yield content.Completion(text=value, kind=content.CompletionKind.VALUE)
