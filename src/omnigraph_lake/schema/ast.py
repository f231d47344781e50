"""The syntax tree of a schema text, with source positions for diagnostics.

Invariant: nodes hold the source text only. Nothing is resolved, checked or defaulted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from omnigraph_lake.language.diagnostics import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """An identifier, or an enum value."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class StringLiteral:
    """A string as written, quotes and escapes included."""

    raw: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberLiteral:
    """A number as written."""

    raw: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A bare word among arguments: a property name, `true` or `false`."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeLiteral:
    """`low..high`, either side may be open."""

    low: NumberLiteral | None
    high: NumberLiteral | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword:
    """`name=value` among the arguments of an annotation."""

    name: Name
    value: StringLiteral | NumberLiteral | Word
    span: Span


Literal: TypeAlias = StringLiteral | NumberLiteral | Word
Argument: TypeAlias = StringLiteral | NumberLiteral | Word | RangeLiteral | Keyword


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """`@name` or `@name(...)`; `arguments` is None without parentheses."""

    name: str
    arguments: tuple[Argument, ...] | None
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseType:
    """`String`, `Vector(8)` or `Decimal(12, 2)`: a type name, perhaps with sizes."""

    name: str
    sizes: tuple[NumberLiteral, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """`[String]`."""

    item: BaseType
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class EnumOf:
    """`enum(a, b)`."""

    values: tuple[Name, ...]
    span: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeExpression:
    """A property's type and whether `?` follows it."""

    core: BaseType | ListOf | EnumOf
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyDeclaration:
    """`name: Type = default @annotation ...`."""

    name: Name
    type: TypeExpression
    annotations: tuple[Annotation, ...]
    default: Literal | None = None


Member: TypeAlias = PropertyDeclaration | Annotation
"""An annotation in a body that belongs to no property: a constraint, or misplaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceDeclaration:
    """`interface Name { ... }`."""

    name: Name
    body: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDeclaration:
    """`node Name @annotation implements A, B { ... }`."""

    name: Name
    annotations: tuple[Annotation, ...]
    implements: tuple[Name, ...]
    body: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeDeclaration:
    """`edge Name: Source -> A | B @card(0..1) { ... }`; `body` is None without braces."""

    name: Name
    sources: tuple[Name, ...]
    targets: tuple[Name, ...]
    annotations: tuple[Annotation, ...]
    body: tuple[Member, ...] | None


Declaration: TypeAlias = InterfaceDeclaration | NodeDeclaration | EdgeDeclaration


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """All declarations in source order."""

    declarations: tuple[Declaration, ...]


def properties_of(declaration: Declaration) -> tuple[PropertyDeclaration, ...]:
    """The properties in the body, in source order."""
    members = declaration.body or ()
    return tuple(member for member in members if isinstance(member, PropertyDeclaration))


def body_annotations_of(declaration: Declaration) -> tuple[Annotation, ...]:
    """The annotations in the body that belong to no property, in source order."""
    return tuple(member for member in declaration.body or () if isinstance(member, Annotation))
