"""Runs every check over a syntax tree and returns all findings at once.

Invariant: a tree without an error among its findings can be built into a catalog.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from omnigraph_lake.language.diagnostics import Diagnostic, Suggestions
from omnigraph_lake.schema import ast, resolve, values
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.checks.annotations import (
    AnnotationTarget,
    check_annotations,
    check_embed_target,
    check_literals,
)
from omnigraph_lake.schema.checks.constraints import (
    ConstraintScope,
    KnownProperty,
    check_constraint,
    check_constraints_together,
)
from omnigraph_lake.schema.checks.declarations import (
    check_declarations,
    check_properties,
    kind_word,
)
from omnigraph_lake.schema.checks.defaults import check_default, check_default_rules
from omnigraph_lake.schema.diagnostics import Rule, error
from omnigraph_lake.schema.parser import INDEX_WORD, belongs_to_body


def check_schema(schema: ast.Schema, *, was_accepted: bool = False) -> tuple[Diagnostic, ...]:
    """All findings in source order.

    `was_accepted` says that a graph has this text already: what was allowed then, such as unknown
    annotations, is a warning.
    """
    interfaces = interfaces_by_name(schema)
    nodes = {
        declaration.name.text
        for declaration in schema.declarations
        if isinstance(declaration, ast.NodeDeclaration)
    }
    # A finding about an interface property is repeated by every node that inherits it.
    suggestions = Suggestions()
    findings = dict.fromkeys(
        check_declarations(schema, nodes=nodes, interfaces=interfaces, suggestions=suggestions)
    )
    for declaration in schema.declarations:
        findings.update(dict.fromkeys(check_properties(declaration, nodes)))
        findings.update(dict.fromkeys(_check_declaration(declaration, interfaces, suggestions)))
        findings.update(
            dict.fromkeys(_check_all_annotations(declaration, was_accepted=was_accepted))
        )
    return tuple(sorted(findings, key=lambda finding: (finding.span.offset, finding.rule)))


def interfaces_by_name(schema: ast.Schema) -> dict[str, ast.InterfaceDeclaration]:
    """The first declaration of each interface; later ones are reported as duplicates."""
    interfaces: dict[str, ast.InterfaceDeclaration] = {}
    for declaration in schema.declarations:
        if isinstance(declaration, ast.InterfaceDeclaration):
            interfaces.setdefault(declaration.name.text, declaration)
    return interfaces


def _check_declaration(
    declaration: ast.Declaration,
    interfaces: Mapping[str, ast.InterfaceDeclaration],
    suggestions: Suggestions,
) -> Iterator[Diagnostic]:
    match declaration:
        case ast.InterfaceDeclaration():
            yield from _check_held(declaration, _own(declaration), suggestions)
        case ast.NodeDeclaration():
            held_properties = resolve.held_properties(declaration, interfaces)
            yield from _check_held(declaration, held_properties, suggestions)
        case ast.EdgeDeclaration():
            yield from _check_held(declaration, _own(declaration), suggestions)
        case _:
            assert_never(declaration)


def _own(declaration: ast.Declaration) -> tuple[resolve.HeldProperty, ...]:
    return tuple(
        resolve.HeldProperty(declaration=property_declaration, declared=True, interfaces=())
        for property_declaration in ast.properties_of(declaration)
    )


def _check_all_annotations(
    declaration: ast.Declaration, *, was_accepted: bool
) -> Iterator[Diagnostic]:
    match declaration:
        case ast.InterfaceDeclaration():
            header, place = None, AnnotationTarget.INTERFACE_PROPERTY
        case ast.NodeDeclaration():
            header, place = AnnotationTarget.NODE, AnnotationTarget.NODE_PROPERTY
        case ast.EdgeDeclaration():
            header, place = AnnotationTarget.EDGE, AnnotationTarget.EDGE_PROPERTY
        case _:
            assert_never(declaration)
    if header is not None and not isinstance(declaration, ast.InterfaceDeclaration):
        yield from check_annotations(declaration.annotations, header, was_accepted=was_accepted)
    yield from _check_members(declaration, place, was_accepted=was_accepted)


def _check_members(
    declaration: ast.Declaration, place: AnnotationTarget, *, was_accepted: bool
) -> Iterator[Diagnostic]:
    for property_declaration in ast.properties_of(declaration):
        yield from check_default(property_declaration)
        if property_declaration.annotations:
            yield from check_annotations(
                property_declaration.annotations, place, was_accepted=was_accepted
            )
    for index, member in enumerate(declaration.body or ()):
        if not isinstance(member, ast.Annotation):
            continue
        yield from check_literals(member.arguments or ())
        if not belongs_to_body(member):
            yield _misplaced(member, first=index == 0)
        elif place is AnnotationTarget.INTERFACE_PROPERTY:
            yield error(
                Rule.INTERFACE_CONSTRAINT,
                member.span,
                "an interface has no constraints in its body",
                f"write `@{member.name}` after a property, or move it to the nodes",
            )


def _misplaced(annotation: ast.Annotation, *, first: bool) -> Diagnostic:
    if first:
        message = f"`@{annotation.name}` precedes all properties"
        hint = "annotations of a property follow its type; those of a type precede `{`"
    elif annotation.name == INDEX_WORD:
        message = "`@index` follows a constraint, so it belongs to no property"
        hint = "name the property: `@index(property)` or `@index(property, metric=cosine)`"
    else:
        message = f"`@{annotation.name}` follows a constraint, so it belongs to no property"
        hint = "put the annotations of a property before the constraint"
    return error(Rule.MISPLACED_ANNOTATION, annotation.span, message, hint)


def _check_held(
    declaration: ast.Declaration,
    held_properties: tuple[resolve.HeldProperty, ...],
    suggestions: Suggestions,
) -> Iterator[Diagnostic]:
    scope = ConstraintScope(
        kind=kind_word(declaration),
        name=declaration.name,
        properties={
            held_property.declaration.name.text: KnownProperty(
                type=resolve.resolve_type(held_property.declaration.type),
                nullable=held_property.declaration.type.nullable,
            )
            for held_property in reversed(held_properties)
        },
    )
    written_constraints: list[resolve.WrittenConstraint] = []
    for held_property in held_properties:
        if held_property.declaration.annotations:
            written_constraints += resolve.property_constraints(
                held_property.declaration, inherited=not held_property.declared
            )
            if held_property.declared and not isinstance(declaration, ast.EdgeDeclaration):
                yield from check_embed_target(
                    held_property.declaration,
                    holder=declaration.name.text,
                    properties=scope.properties,
                    suggestions=suggestions,
                )
    if not isinstance(declaration, ast.InterfaceDeclaration):
        for annotation in filter(belongs_to_body, ast.body_annotations_of(declaration)):
            constraint = resolve.body_constraint(annotation)
            if isinstance(constraint, Diagnostic):
                yield constraint
            else:
                written_constraints.append(constraint)
    for constraint in written_constraints:
        yield from check_constraint(constraint, scope, suggestions)
    yield from check_constraints_together(written_constraints, scope)
    yield from check_default_rules(written_constraints, _defaults(held_properties))


def _defaults(
    held_properties: tuple[resolve.HeldProperty, ...],
) -> dict[str, tuple[ct.PropertyType, ct.Literal]]:
    defaults = {}
    for held_property in held_properties:
        declaration = held_property.declaration
        kind = resolve.resolve_type(declaration.type)
        if declaration.default is not None and kind is not None:
            value, _ = values.literal_for(kind, declaration.default)
            if value is not None:
                defaults[declaration.name.text] = kind, value
    return defaults
