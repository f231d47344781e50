"""A checked syntax tree to the catalog of a new graph.

Invariant: numbers come from one allocator in source order, a type before its properties, so
the same text and identity domain always give the same catalog.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from omnigraph.schema.ast import (
    Annotation,
    Declaration,
    EdgeDeclaration,
    InterfaceDeclaration,
    Keyword,
    NodeDeclaration,
    NumberLiteral,
    RangeLiteral,
    Schema,
    StringLiteral,
    Word,
    body_annotations_of,
    properties_of,
)
from omnigraph.schema.catalog import (
    DEFAULT_METRIC,
    ByName,
    Cardinality,
    Catalog,
    Check,
    EdgeType,
    Embed,
    Index,
    InterfaceType,
    Key,
    Literal,
    Metadata,
    MetadataKeyword,
    NodeType,
    Number,
    Property,
    Range,
    Unique,
    VectorMetric,
    VectorType,
)
from omnigraph.schema.check import interfaces_by_name
from omnigraph.schema.resolve import (
    ConstraintKind,
    HeldProperty,
    WrittenConstraint,
    body_constraint,
    held_properties,
    literal_value,
    number_value,
    property_constraints,
    resolve_type,
    string_value,
)

_INTERPRETED = frozenset(
    {
        *("description", "instruction", "embed", "card", *ConstraintKind),
        *("rename_from", "backfill", "rename_value"),
    }
)


def build_catalog(schema: Schema, *, identity_domain: str) -> Catalog:
    """The catalog of a schema that passed every check."""
    numbers = itertools.count(1)
    interfaces = interfaces_by_name(schema)
    interface_types: list[InterfaceType] = []
    nodes: list[NodeType] = []
    edges: list[EdgeType] = []
    for declaration in schema.declarations:
        match declaration:
            case InterfaceDeclaration():
                interface_types.append(_interface(declaration, numbers))
            case NodeDeclaration():
                nodes.append(_node(declaration, numbers, interfaces))
            case EdgeDeclaration():
                edges.append(_edge(declaration, numbers))
            case _:
                assert_never(declaration)
    return Catalog(
        identity_domain=identity_domain,
        next_number=next(numbers),
        interfaces=ByName(interface_types),
        nodes=ByName(nodes),
        edges=ByName(edges),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constraints:
    key: Key | None
    uniques: tuple[Unique, ...]
    indexes: tuple[Index, ...]
    ranges: tuple[Range, ...]
    checks: tuple[Check, ...]


def _interface(declaration: InterfaceDeclaration, numbers: Iterator[int]) -> InterfaceType:
    number = next(numbers)
    held = _own(declaration)
    constraints = _constraints(declaration, held)
    return InterfaceType(
        number=number,
        name=declaration.name.text,
        properties=_properties(held, numbers),
        key=constraints.key,
        uniques=constraints.uniques,
        indexes=constraints.indexes,
    )


def _node(
    declaration: NodeDeclaration,
    numbers: Iterator[int],
    interfaces: Mapping[str, InterfaceDeclaration],
) -> NodeType:
    number = next(numbers)
    held = held_properties(declaration, interfaces)
    constraints = _constraints(declaration, held)
    return NodeType(
        number=number,
        name=declaration.name.text,
        implements=tuple(each.text for each in declaration.implements),
        properties=_properties(held, numbers),
        key=constraints.key,
        uniques=constraints.uniques,
        indexes=constraints.indexes,
        ranges=constraints.ranges,
        checks=constraints.checks,
        description=_text(declaration.annotations, "description"),
        instruction=_text(declaration.annotations, "instruction"),
        metadata=_metadata(declaration.annotations),
    )


def _edge(declaration: EdgeDeclaration, numbers: Iterator[int]) -> EdgeType:
    number = next(numbers)
    held = _own(declaration)
    constraints = _constraints(declaration, held)
    return EdgeType(
        number=number,
        name=declaration.name.text,
        source=declaration.source.text,
        target=declaration.target.text,
        cardinality=_cardinality(declaration.annotations),
        properties=_properties(held, numbers),
        uniques=constraints.uniques,
        indexes=constraints.indexes,
        description=_text(declaration.annotations, "description"),
        instruction=_text(declaration.annotations, "instruction"),
        metadata=_metadata(declaration.annotations),
    )


def _own(declaration: Declaration) -> tuple[HeldProperty, ...]:
    return tuple(
        HeldProperty(declaration=each, declared=True, interfaces=())
        for each in properties_of(declaration)
    )


def _properties(held: Iterable[HeldProperty], numbers: Iterator[int]) -> ByName[Property]:
    return ByName(_property(each, next(numbers)) for each in held)


def _property(held: HeldProperty, number: int) -> Property:
    declaration = held.declaration
    resolved = resolve_type(declaration.type)
    assert resolved is not None
    return Property(
        number=number,
        name=declaration.name.text,
        type=resolved,
        nullable=declaration.type.nullable,
        description=_text(declaration.annotations, "description"),
        metadata=_metadata(declaration.annotations),
        embed=_embed(declaration.annotations),
        declared=held.declared,
        interfaces=held.interfaces,
    )


def _constraints(declaration: Declaration, held: Sequence[HeldProperty]) -> _Constraints:
    vectors = {
        one.declaration.name.text
        for one in held
        if isinstance(resolve_type(one.declaration.type), VectorType)
    }
    written = [
        each
        for one in held
        for each in property_constraints(one.declaration, inherited=not one.declared)
    ]
    for annotation in body_annotations_of(declaration):
        constraint = body_constraint(annotation)
        assert isinstance(constraint, WrittenConstraint)
        written.append(constraint)
    of_kind: dict[ConstraintKind, list[WrittenConstraint]] = {each: [] for each in ConstraintKind}
    for each in written:
        of_kind[each.kind].append(each)
    keys = of_kind[ConstraintKind.KEY]
    return _Constraints(
        key=Key(properties=_names(keys[0]), spelling=keys[0].spelling) if keys else None,
        uniques=tuple(
            Unique(properties=_names(each), spelling=each.spelling)
            for each in of_kind[ConstraintKind.UNIQUE]
        ),
        indexes=tuple(_index(each, vectors) for each in of_kind[ConstraintKind.INDEX]),
        ranges=tuple(_range(each) for each in of_kind[ConstraintKind.RANGE]),
        checks=tuple(_check(each) for each in of_kind[ConstraintKind.CHECK]),
    )


def _index(constraint: WrittenConstraint, vectors: Collection[str]) -> Index:
    properties = _names(constraint)
    metric = DEFAULT_METRIC if properties[0] in vectors else None
    if constraint.metric is not None:
        metric = VectorMetric(constraint.metric.text)
    return Index(properties=properties, spelling=constraint.spelling, metric=metric)


def _names(constraint: WrittenConstraint) -> tuple[str, ...]:
    return tuple(each.text for each in constraint.members)


def _range(constraint: WrittenConstraint) -> Range:
    assert constraint.bounds is not None
    return Range(
        property=constraint.members[0].text,
        low=_bound(constraint.bounds.low),
        high=_bound(constraint.bounds.high),
        spelling=constraint.spelling,
    )


def _bound(literal: NumberLiteral | None) -> Number | None:
    return None if literal is None else number_value(literal)


def _check(constraint: WrittenConstraint) -> Check:
    assert constraint.pattern is not None
    return Check(
        property=constraint.members[0].text,
        pattern=string_value(constraint.pattern),
        spelling=constraint.spelling,
    )


def _cardinality(annotations: Iterable[Annotation]) -> Cardinality:
    for annotation in annotations:
        if annotation.name != "card":
            continue
        assert annotation.arguments is not None
        bounds = annotation.arguments[0]
        assert isinstance(bounds, RangeLiteral)
        low, high = _bound(bounds.low), _bound(bounds.high)
        assert isinstance(low, int)
        assert high is None or isinstance(high, int)
        return Cardinality(minimum=low, maximum=high)
    return Cardinality()


def _text(annotations: Iterable[Annotation], name: str) -> str | None:
    for annotation in annotations:
        if annotation.name == name and annotation.arguments:
            argument = annotation.arguments[0]
            assert isinstance(argument, StringLiteral)
            return string_value(argument)
    return None


def _embed(annotations: Iterable[Annotation]) -> Embed | None:
    for annotation in annotations:
        if annotation.name == "embed" and annotation.arguments:
            keywords = [each for each in annotation.arguments if isinstance(each, Keyword)]
            model = str(_literal(keywords[0].value)) if keywords else None
            source = annotation.arguments[0]
            # A bare word is a property name here, even `true`.
            name = source.text if isinstance(source, Word) else str(_positional(annotation))
            return Embed(source=name, model=model)
    return None


def _metadata(annotations: Iterable[Annotation]) -> tuple[Metadata, ...]:
    return tuple(
        Metadata(
            name=each.name,
            value=_positional(each),
            keywords=tuple(
                MetadataKeyword(name=argument.name.text, value=_literal(argument.value))
                for argument in each.arguments or ()
                if isinstance(argument, Keyword)
            ),
        )
        for each in sorted(annotations, key=lambda each: each.name)
        if each.name not in _INTERPRETED
    )


def _positional(annotation: Annotation) -> Literal | None:
    for argument in annotation.arguments or ():
        if isinstance(argument, StringLiteral | NumberLiteral | Word):
            return _literal(argument)
    return None


def _literal(argument: StringLiteral | NumberLiteral | Word) -> Literal:
    value = literal_value(argument)
    assert value is not None
    return value
