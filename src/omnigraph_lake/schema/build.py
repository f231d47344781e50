"""A checked syntax tree to the catalog of a new graph.

Invariant: numbers come from one allocator in source order, a type before its properties, so
the same text and identity domain always give the same catalog.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from omnigraph_lake.schema import ast, resolve, values
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.check import interfaces_by_name

_INTERPRETED = frozenset(
    {
        *("description", "instruction", "embed", "card", "cluster", *resolve.ConstraintKind),
        *("rename_from", "backfill", "rename_value"),
    }
)


def build_catalog(schema: ast.Schema, *, identity_domain: str) -> ct.Catalog:
    """The catalog of a schema that passed every check."""
    numbers = itertools.count(1)
    interfaces = interfaces_by_name(schema)
    interface_types: list[ct.InterfaceType] = []
    nodes: list[ct.NodeType] = []
    edges: list[ct.EdgeType] = []
    for declaration in schema.declarations:
        match declaration:
            case ast.InterfaceDeclaration():
                interface_types.append(_interface(declaration, numbers))
            case ast.NodeDeclaration():
                nodes.append(_node(declaration, numbers, interfaces))
            case ast.EdgeDeclaration():
                edges.append(_edge(declaration, numbers))
            case _:
                assert_never(declaration)
    return ct.Catalog(
        identity_domain=identity_domain,
        next_number=next(numbers),
        interfaces=ct.ByName(interface_types),
        nodes=ct.ByName(nodes),
        edges=ct.ByName(edges),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constraints:
    key: ct.Key | None
    uniques: tuple[ct.Unique, ...]
    indexes: tuple[ct.Index, ...]
    ranges: tuple[ct.Range, ...]
    checks: tuple[ct.Check, ...]


def _interface(declaration: ast.InterfaceDeclaration, numbers: Iterator[int]) -> ct.InterfaceType:
    number = next(numbers)
    held_properties = _own(declaration)
    constraints = _constraints(declaration, held_properties)
    return ct.InterfaceType(
        number=number,
        name=declaration.name.text,
        properties=_properties(held_properties, numbers),
        key=constraints.key,
        uniques=constraints.uniques,
        indexes=constraints.indexes,
    )


def _node(
    declaration: ast.NodeDeclaration,
    numbers: Iterator[int],
    interfaces: Mapping[str, ast.InterfaceDeclaration],
) -> ct.NodeType:
    number = next(numbers)
    held_properties = resolve.held_properties(declaration, interfaces)
    constraints = _constraints(declaration, held_properties)
    return ct.NodeType(
        number=number,
        name=declaration.name.text,
        implements=tuple(implement.text for implement in declaration.implements),
        properties=_properties(held_properties, numbers),
        key=constraints.key,
        uniques=constraints.uniques,
        indexes=constraints.indexes,
        ranges=constraints.ranges,
        checks=constraints.checks,
        description=_text(declaration.annotations, "description"),
        instruction=_text(declaration.annotations, "instruction"),
        metadata=_metadata(declaration.annotations),
    )


def _edge(declaration: ast.EdgeDeclaration, numbers: Iterator[int]) -> ct.EdgeType:
    number = next(numbers)
    held_properties = _own(declaration)
    constraints = _constraints(declaration, held_properties)
    return ct.EdgeType(
        number=number,
        name=declaration.name.text,
        source=_end(declaration.sources),
        target=_end(declaration.targets),
        cardinality=_cardinality(declaration.annotations),
        is_clustered=any(annotation.name == "cluster" for annotation in declaration.annotations),
        properties=_properties(held_properties, numbers),
        uniques=constraints.uniques,
        indexes=constraints.indexes,
        description=_text(declaration.annotations, "description"),
        instruction=_text(declaration.annotations, "instruction"),
        metadata=_metadata(declaration.annotations),
    )


def _end(names: Sequence[ast.Name]) -> ct.EdgeEnd:
    return ct.EdgeEnd(declared=tuple(name.text for name in names))


def _own(declaration: ast.Declaration) -> tuple[resolve.HeldProperty, ...]:
    return tuple(
        resolve.HeldProperty(declaration=property_declaration, declared=True, interfaces=())
        for property_declaration in ast.properties_of(declaration)
    )


def _properties(
    held_properties: Iterable[resolve.HeldProperty], numbers: Iterator[int]
) -> ct.ByName[ct.Property]:
    return ct.ByName(_property(held_property, next(numbers)) for held_property in held_properties)


def _property(held_property: resolve.HeldProperty, number: int) -> ct.Property:
    declaration = held_property.declaration
    resolved = resolve.resolve_type(declaration.type)
    assert resolved is not None
    return ct.Property(
        number=number,
        name=declaration.name.text,
        type=resolved,
        nullable=declaration.type.nullable,
        description=_text(declaration.annotations, "description"),
        metadata=_metadata(declaration.annotations),
        embed=_embed(declaration.annotations),
        default=_default(declaration.default, resolved),
        declared=held_property.declared,
        interfaces=held_property.interfaces,
    )


def _default(written: ast.Literal | None, kind: ct.PropertyType) -> ct.Literal | None:
    return None if written is None else values.literal_for(kind, written)[0]


def _constraints(
    declaration: ast.Declaration, held_properties: Sequence[resolve.HeldProperty]
) -> _Constraints:
    vectors = {
        held_property.declaration.name.text
        for held_property in held_properties
        if isinstance(resolve.resolve_type(held_property.declaration.type), ct.VectorType)
    }
    written_constraints = [
        property_constraint
        for held_property in held_properties
        for property_constraint in resolve.property_constraints(
            held_property.declaration, inherited=not held_property.declared
        )
    ]
    for annotation in ast.body_annotations_of(declaration):
        constraint = resolve.body_constraint(annotation)
        assert isinstance(constraint, resolve.WrittenConstraint)
        written_constraints.append(constraint)
    of_kind: dict[resolve.ConstraintKind, list[resolve.WrittenConstraint]] = {
        kind: [] for kind in resolve.ConstraintKind
    }
    for written_constraint in written_constraints:
        of_kind[written_constraint.kind].append(written_constraint)
    keys = of_kind[resolve.ConstraintKind.KEY]
    return _Constraints(
        key=ct.Key(properties=_names(keys[0]), spelling=keys[0].spelling) if keys else None,
        uniques=tuple(
            ct.Unique(properties=_names(unique), spelling=unique.spelling)
            for unique in of_kind[resolve.ConstraintKind.UNIQUE]
        ),
        indexes=tuple(_index(index, vectors) for index in of_kind[resolve.ConstraintKind.INDEX]),
        ranges=tuple(
            _range(range_constraint) for range_constraint in of_kind[resolve.ConstraintKind.RANGE]
        ),
        checks=tuple(_check(check) for check in of_kind[resolve.ConstraintKind.CHECK]),
    )


def _index(constraint: resolve.WrittenConstraint, vectors: Collection[str]) -> ct.Index:
    properties = _names(constraint)
    metric = ct.DEFAULT_METRIC if properties[0] in vectors else None
    if constraint.metric is not None:
        metric = ct.VectorMetric(constraint.metric.text)
    return ct.Index(properties=properties, spelling=constraint.spelling, metric=metric)


def _names(constraint: resolve.WrittenConstraint) -> tuple[str, ...]:
    return tuple(member.text for member in constraint.members)


def _range(constraint: resolve.WrittenConstraint) -> ct.Range:
    assert constraint.bounds is not None
    return ct.Range(
        property=constraint.members[0].text,
        low=_bound(constraint.bounds.low),
        high=_bound(constraint.bounds.high),
        spelling=constraint.spelling,
    )


def _bound(literal: ast.NumberLiteral | None) -> ct.Number | None:
    return None if literal is None else resolve.number_value(literal)


def _check(constraint: resolve.WrittenConstraint) -> ct.Check:
    assert constraint.pattern is not None
    return ct.Check(
        property=constraint.members[0].text,
        pattern=resolve.string_value(constraint.pattern),
        spelling=constraint.spelling,
    )


def _cardinality(annotations: Iterable[ast.Annotation]) -> ct.Cardinality:
    for annotation in annotations:
        if annotation.name != "card":
            continue
        assert annotation.arguments is not None
        bounds = annotation.arguments[0]
        assert isinstance(bounds, ast.RangeLiteral)
        low, high = _bound(bounds.low), _bound(bounds.high)
        assert isinstance(low, int)
        assert high is None or isinstance(high, int)
        return ct.Cardinality(minimum=low, maximum=high)
    return ct.Cardinality()


def _text(annotations: Iterable[ast.Annotation], name: str) -> str | None:
    for annotation in annotations:
        if annotation.name == name and annotation.arguments:
            argument = annotation.arguments[0]
            assert isinstance(argument, ast.StringLiteral)
            return resolve.string_value(argument)
    return None


def _embed(annotations: Iterable[ast.Annotation]) -> ct.Embed | None:
    for annotation in annotations:
        if annotation.name == "embed" and annotation.arguments:
            keywords = [
                argument for argument in annotation.arguments if isinstance(argument, ast.Keyword)
            ]
            model = str(_literal(keywords[0].value)) if keywords else None
            source = annotation.arguments[0]
            # A bare word is a property name here, even `true`.
            name = source.text if isinstance(source, ast.Word) else str(_positional(annotation))
            return ct.Embed(source=name, model=model)
    return None


def _metadata(annotations: Iterable[ast.Annotation]) -> tuple[ct.Metadata, ...]:
    return tuple(
        ct.Metadata(
            name=annotation.name,
            value=_positional(annotation),
            keywords=tuple(
                ct.MetadataKeyword(name=argument.name.text, value=_literal(argument.value))
                for argument in annotation.arguments or ()
                if isinstance(argument, ast.Keyword)
            ),
        )
        for annotation in sorted(annotations, key=lambda annotation: annotation.name)
        if annotation.name not in _INTERPRETED
    )


def _positional(annotation: ast.Annotation) -> ct.Literal | None:
    for argument in annotation.arguments or ():
        if isinstance(argument, ast.StringLiteral | ast.NumberLiteral | ast.Word):
            return _literal(argument)
    return None


def _literal(argument: ast.StringLiteral | ast.NumberLiteral | ast.Word) -> ct.Literal:
    value = resolve.literal_value(argument)
    assert value is not None
    return value
