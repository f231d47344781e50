"""Runs every check over a syntax tree and returns all findings at once.

Invariant: a tree without an error among its findings can be built into a catalog.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import assert_never

from omnigraph.language.diagnostics import Diagnostic, Suggestions
from omnigraph.schema.ast import (
    Annotation,
    Declaration,
    EdgeDeclaration,
    InterfaceDeclaration,
    NodeDeclaration,
    Schema,
    body_annotations_of,
    properties_of,
)
from omnigraph.schema.checks.annotations import (
    Place,
    check_annotations,
    check_embed_target,
    check_literals,
)
from omnigraph.schema.checks.constraints import (
    ConstraintScope,
    KnownProperty,
    check_constraint,
    check_constraints_together,
)
from omnigraph.schema.checks.declarations import check_declarations, check_properties, kind_word
from omnigraph.schema.diagnostics import Rule, error
from omnigraph.schema.parser import INDEX_WORD, belongs_to_body
from omnigraph.schema.resolve import (
    HeldProperty,
    WrittenConstraint,
    body_constraint,
    held_properties,
    property_constraints,
    resolve_type,
)


def check_schema(schema: Schema) -> tuple[Diagnostic, ...]:
    """All findings in source order."""
    interfaces = interfaces_by_name(schema)
    nodes = {each.name.text for each in schema.declarations if isinstance(each, NodeDeclaration)}
    # A finding about an interface property is repeated by every node that inherits it.
    suggestions = Suggestions()
    findings = dict.fromkeys(
        check_declarations(schema, nodes=nodes, interfaces=interfaces, suggestions=suggestions)
    )
    for declaration in schema.declarations:
        findings.update(dict.fromkeys(_check_declaration(declaration, interfaces, suggestions)))
    return tuple(sorted(findings, key=lambda each: (each.span.offset, each.rule)))


def interfaces_by_name(schema: Schema) -> dict[str, InterfaceDeclaration]:
    """The first declaration of each interface; later ones are reported as duplicates."""
    found: dict[str, InterfaceDeclaration] = {}
    for each in schema.declarations:
        if isinstance(each, InterfaceDeclaration):
            found.setdefault(each.name.text, each)
    return found


def _check_declaration(
    declaration: Declaration,
    interfaces: Mapping[str, InterfaceDeclaration],
    suggestions: Suggestions,
) -> Iterator[Diagnostic]:
    yield from check_properties(declaration)
    match declaration:
        case InterfaceDeclaration():
            yield from _check_members(declaration, Place.INTERFACE_PROPERTY)
            yield from _check_held(declaration, _own(declaration), suggestions)
        case NodeDeclaration():
            yield from check_annotations(declaration.annotations, Place.NODE)
            yield from _check_members(declaration, Place.NODE_PROPERTY)
            held = held_properties(declaration, interfaces)
            yield from _check_held(declaration, held, suggestions)
        case EdgeDeclaration():
            yield from check_annotations(declaration.annotations, Place.EDGE)
            yield from _check_members(declaration, Place.EDGE_PROPERTY)
            yield from _check_held(declaration, _own(declaration), suggestions)
        case _:
            assert_never(declaration)


def _own(declaration: Declaration) -> tuple[HeldProperty, ...]:
    return tuple(
        HeldProperty(declaration=each, declared=True, interfaces=())
        for each in properties_of(declaration)
    )


def _check_members(declaration: Declaration, place: Place) -> Iterator[Diagnostic]:
    for each in properties_of(declaration):
        if each.annotations:
            yield from check_annotations(each.annotations, place)
    for index, member in enumerate(declaration.body or ()):
        if not isinstance(member, Annotation):
            continue
        yield from check_literals(member)
        if not belongs_to_body(member):
            yield _misplaced(member, first=index == 0)
        elif place is Place.INTERFACE_PROPERTY:
            yield error(
                Rule.INTERFACE_CONSTRAINT,
                member.span,
                "an interface has no constraints in its body",
                f"write `@{member.name}` after a property, or move it to the nodes",
            )


def _misplaced(annotation: Annotation, *, first: bool) -> Diagnostic:
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
    declaration: Declaration, held: tuple[HeldProperty, ...], suggestions: Suggestions
) -> Iterator[Diagnostic]:
    scope = ConstraintScope(
        kind=kind_word(declaration),
        name=declaration.name,
        properties={
            each.declaration.name.text: KnownProperty(
                type=resolve_type(each.declaration.type),
                nullable=each.declaration.type.nullable,
            )
            for each in reversed(held)
        },
    )
    written: list[WrittenConstraint] = []
    for each in held:
        if each.declaration.annotations:
            written += property_constraints(each.declaration, inherited=not each.declared)
            if each.declared and not isinstance(declaration, EdgeDeclaration):
                yield from check_embed_target(
                    each.declaration,
                    holder=declaration.name.text,
                    properties=scope.properties,
                    suggestions=suggestions,
                )
    if not isinstance(declaration, InterfaceDeclaration):
        for annotation in filter(belongs_to_body, body_annotations_of(declaration)):
            constraint = body_constraint(annotation)
            if isinstance(constraint, Diagnostic):
                yield constraint
            else:
                written.append(constraint)
    for constraint in written:
        yield from check_constraint(constraint, scope, suggestions)
    yield from check_constraints_together(written, scope)
