"""The meaning of types, literals and constraints of a text, shared by checks and build.

Invariant: functions here are total. What is malformed resolves to None, or to the diagnostic
that says so; whether that is reported is up to the checks.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import takewhile
from typing import Final, assert_never

from omnigraph_lake.language.diagnostics import Diagnostic, Span, did_you_mean
from omnigraph_lake.schema import ast
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.diagnostics import Rule, error

VECTOR_SIZE_MAX: Final = 65_536
"""A row needs room for all numbers of a vector, also for a null."""
NUMBER_CHARACTERS_MAX: Final = 400
VECTOR: Final = "Vector"
DECIMAL: Final = "Decimal"
DECIMAL_HINT: Final = "write `Decimal(12, 2)`: 12 digits, 2 of them behind the point"
METRIC: Final = "metric"

_SCALAR_TYPES: Final = {scalar.value: ct.ScalarType(scalar=scalar) for scalar in ct.Scalar}
_ESCAPES: Final = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\t": "\t"}
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)


class ConstraintKind(enum.StrEnum):
    """The words that make an annotation a constraint."""

    KEY = "key"
    UNIQUE = "unique"
    INDEX = "index"
    RANGE = "range"
    CHECK = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenConstraint:
    """A constraint whose arguments have the right form; members and metric may not exist yet."""

    kind: ConstraintKind
    members: tuple[ast.Name, ...]
    spelling: ct.Spelling
    span: Span
    bounds: ast.RangeLiteral | None = None
    pattern: ast.StringLiteral | None = None
    metric: ast.Name | None = None
    inherited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldProperty:
    """A property a type has, by its own declaration or through interfaces."""

    declaration: ast.PropertyDeclaration
    declared: bool
    interfaces: tuple[str, ...]


def resolve_type(expression: ast.TypeExpression) -> ct.PropertyType | None:
    """The meaning of a type expression, or None when any part of it is wrong."""
    core = expression.core
    match core:
        case ast.BaseType():
            return _resolve_base(core)
        case ast.ListOf():
            item = _resolve_base(core.item)
            if not isinstance(item, ct.ScalarType) or item.scalar in ct.WITHOUT_ORDER:
                return None
            return ct.ListType(item=item.scalar)
        case ast.EnumOf():
            values = {value.text for value in core.values}
            return (
                ct.EnumType(values=tuple(sorted(values)))
                if len(values) == len(core.values)
                else None
            )
        case _:
            assert_never(core)


def _resolve_base(base: ast.BaseType) -> ct.ScalarType | ct.DecimalType | ct.VectorType | None:
    if not base.sizes:
        return _SCALAR_TYPES.get(base.name)
    match base.name, [number_value(size) for size in base.sizes]:
        case "Vector", [int(size)] if 1 <= size <= VECTOR_SIZE_MAX:
            return ct.VectorType(size=size)
        case "Decimal", [int(precision), int(scale)]:
            return ct.decimal_type(precision, scale)
        case _:
            return None


def string_value(literal: ast.StringLiteral) -> str:
    """The string without quotes, its escapes replaced; an unknown escape stays as written."""
    inner = literal.raw[1:-1]
    if "\\" not in inner:
        return inner
    return _ESCAPE.sub(lambda escape: _ESCAPES.get(escape.group(), escape.group()), inner)


def unknown_escapes(literal: ast.StringLiteral) -> tuple[Span, ...]:
    """Where the string uses an escape that does not exist."""
    if "\\" not in literal.raw:
        return ()
    start = literal.span
    return tuple(
        Span(
            offset=start.offset + escape.start(),
            line=start.line,
            column=start.column + escape.start(),
            end=start.offset + escape.end(),
        )
        for escape in _ESCAPE.finditer(literal.raw)
        if escape.group() not in _ESCAPES
    )


def number_value(literal: ast.NumberLiteral) -> ct.Number | None:
    """An exact number: int when written without a point; None when it is too long to accept."""
    raw = literal.raw
    if len(raw) > NUMBER_CHARACTERS_MAX:
        return None
    if "." not in raw:
        return int(raw)
    integer, _, fraction = raw.partition(".")
    # 1.50 and 1.5 are one number, so they must not differ in the stored model.
    return Decimal(f"{integer}.{fraction.rstrip('0') or '0'}")


def literal_value(argument: ast.StringLiteral | ast.NumberLiteral | ast.Word) -> ct.Literal | None:
    """The value of an annotation argument; a bare word other than a Boolean means itself."""
    match argument:
        case ast.StringLiteral():
            return string_value(argument)
        case ast.NumberLiteral():
            return number_value(argument)
        case ast.Word():
            return argument.text == "true" if argument.text in ("true", "false") else argument.text
        case _:
            assert_never(argument)


def renamed_value(argument: ast.Argument) -> tuple[str, str] | None:
    """The old and the new enum value that one argument of `@rename_value` pairs, if it does.

    A value that is no word, such as `b-c`, is written inside the string: `"b-c=bc"`.
    """
    match argument:
        case ast.Keyword(name=name, value=ast.StringLiteral() as new):
            return (name.text, string_value(new)) if string_value(new) else None
        case ast.Keyword(name=name, value=ast.Word() as word):
            return name.text, word.text
        case ast.StringLiteral():
            old, _, new_text = string_value(argument).partition("=")
            return (old, new_text) if old and new_text else None
        case _:
            return None


def body_constraint(annotation: ast.Annotation) -> WrittenConstraint | Diagnostic:
    """The constraint a body annotation states, or what is wrong with its arguments."""
    kind = ConstraintKind(annotation.name)
    match kind:
        case ConstraintKind.KEY | ConstraintKind.UNIQUE:
            return _member_constraint(annotation, kind)
        case ConstraintKind.INDEX:
            return _index_constraint(annotation)
        case ConstraintKind.RANGE:
            return _range_constraint(annotation)
        case ConstraintKind.CHECK:
            return _check_constraint(annotation)
        case _:
            assert_never(kind)


def property_constraints(
    declaration: ast.PropertyDeclaration, *, inherited: bool
) -> tuple[WrittenConstraint, ...]:
    """The constraints written after a property: `@key`, `@unique` and `@index`.

    A repeated word counts once; the repetition, like a malformed metric, is an error of its own.
    """
    first: dict[str, ast.Annotation] = {}
    for annotation in declaration.annotations:
        if annotation.name in ("key", "unique", "index"):
            first.setdefault(annotation.name, annotation)
    return tuple(
        WrittenConstraint(
            kind=ConstraintKind(annotation.name),
            members=(declaration.name,),
            spelling=ct.Spelling.PROPERTY,
            span=annotation.span,
            metric=_metric_of(annotation),
            inherited=inherited,
        )
        for annotation in first.values()
    )


def written_metric(arguments: Iterable[ast.Argument]) -> ast.Name | Diagnostic | None:
    """The metric among what follows the properties of `@index`, or what is wrong there."""
    metric: ast.Name | None = None
    for argument in arguments:
        if not isinstance(argument, ast.Keyword):
            return error(
                Rule.CONSTRAINT_ARGUMENTS,
                argument.span,
                "the properties of `@index` precede the metric",
                "write `@index(property, metric=cosine)`",
            )
        if argument.name.text != METRIC:
            return error(
                Rule.CONSTRAINT_ARGUMENTS,
                argument.span,
                f"`@index` has no argument `{argument.name.text[:80]}`, only `{METRIC}`",
                did_you_mean(argument.name.text, (METRIC,)),
            )
        if metric is not None:
            return error(
                Rule.INDEX_METRIC, argument.span, f"`{METRIC}` is given twice", "remove one"
            )
        if not isinstance(argument.value, ast.Word):
            return error(
                Rule.INDEX_METRIC,
                argument.value.span,
                "a metric is a bare word",
                "write `metric=cosine`, `metric=l2` or `metric=dot`",
            )
        metric = ast.Name(text=argument.value.text, span=argument.value.span)
    return metric


def _metric_of(annotation: ast.Annotation) -> ast.Name | None:
    metric = written_metric(annotation.arguments or ())
    return None if isinstance(metric, Diagnostic) else metric


def held_properties(
    node: ast.NodeDeclaration, interfaces: Mapping[str, ast.InterfaceDeclaration]
) -> tuple[HeldProperty, ...]:
    """A node's own properties, then what its interfaces add, each with the interfaces it serves."""
    declarations = {
        property_declaration.name.text: property_declaration
        for property_declaration in reversed(ast.properties_of(node))
    }
    own_names = frozenset(declarations)
    order = [property_declaration.name.text for property_declaration in ast.properties_of(node)]
    serves: dict[str, list[str]] = {}
    for interface_name in dict.fromkeys(implement.text for implement in node.implements):
        interface = interfaces.get(interface_name)
        for property_declaration in ast.properties_of(interface) if interface is not None else ():
            name = property_declaration.name.text
            if name not in declarations:
                declarations[name] = property_declaration
                order.append(name)
            serves.setdefault(name, []).append(interface_name)
    return tuple(
        HeldProperty(
            declaration=declarations[name],
            declared=name in own_names,
            interfaces=tuple(serves.get(name, ())),
        )
        for name in dict.fromkeys(order)
    )


def _member_constraint(
    annotation: ast.Annotation, kind: ConstraintKind
) -> WrittenConstraint | Diagnostic:
    members = _words(annotation.arguments or ())
    if members is None:
        return error(
            Rule.CONSTRAINT_ARGUMENTS,
            annotation.span,
            f"`@{kind}(...)` takes property names and nothing else",
            f"write `@{kind}` after the property, or `@{kind}(first, second)` in the body",
        )
    return WrittenConstraint(
        kind=kind, members=members, spelling=ct.Spelling.BODY, span=annotation.span
    )


def _index_constraint(annotation: ast.Annotation) -> WrittenConstraint | Diagnostic:
    arguments = annotation.arguments or ()
    leading = tuple(takewhile(lambda argument: not isinstance(argument, ast.Keyword), arguments))
    members = _words(leading)
    if members is None:
        return error(
            Rule.CONSTRAINT_ARGUMENTS,
            annotation.span,
            "`@index(...)` takes property names and, for a vector, a metric",
            "write `@index` after the property, or `@index(first, second)` in the body",
        )
    metric = written_metric(arguments[len(leading) :])
    if isinstance(metric, Diagnostic):
        return metric
    return WrittenConstraint(
        kind=ConstraintKind.INDEX,
        members=members,
        spelling=ct.Spelling.BODY,
        span=annotation.span,
        metric=metric,
    )


def _words(arguments: tuple[ast.Argument, ...]) -> tuple[ast.Name, ...] | None:
    words = tuple(argument for argument in arguments if isinstance(argument, ast.Word))
    if len(words) != len(arguments):
        return None
    if any(word.text in ("true", "false") for word in words):
        return None
    return tuple(ast.Name(text=word.text, span=word.span) for word in words)


def _range_constraint(annotation: ast.Annotation) -> WrittenConstraint | Diagnostic:
    match annotation.arguments:
        case (ast.Word() as word, ast.RangeLiteral() as bounds):
            return WrittenConstraint(
                kind=ConstraintKind.RANGE,
                members=(ast.Name(text=word.text, span=word.span),),
                spelling=ct.Spelling.BODY,
                span=annotation.span,
                bounds=bounds,
            )
        case _:
            return error(
                Rule.CONSTRAINT_ARGUMENTS,
                annotation.span,
                "`@range` takes one property name and one range",
                "write `@range(age, 0..150)`, `@range(age, 0..)` or `@range(age, ..150)`",
            )


def _check_constraint(annotation: ast.Annotation) -> WrittenConstraint | Diagnostic:
    match annotation.arguments:
        case (ast.Word() as word, ast.StringLiteral() as pattern):
            return WrittenConstraint(
                kind=ConstraintKind.CHECK,
                members=(ast.Name(text=word.text, span=word.span),),
                spelling=ct.Spelling.BODY,
                span=annotation.span,
                pattern=pattern,
            )
        case _:
            return error(
                Rule.CONSTRAINT_ARGUMENTS,
                annotation.span,
                "`@check` takes one property name and one regular expression",
                'write `@check(email, "@")`',
            )
