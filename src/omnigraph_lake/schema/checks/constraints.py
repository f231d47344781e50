"""Keys, uniqueness, indexes, ranges and patterns: members exist and have a fitting type.

Invariant: both spellings of a constraint obey the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from omnigraph_lake.language.diagnostics import Diagnostic, Span, Suggestions
from omnigraph_lake.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema import resolve
from omnigraph_lake.schema.ast import Name, StringLiteral
from omnigraph_lake.schema.diagnostics import Rule, error
from omnigraph_lake.schema.indexes import IndexKind, index_kinds
from omnigraph_lake.schema.parser import METRICS, metric_hint
from omnigraph_lake.schema.show import show_type

_ENDPOINT_COLUMNS: Final = (SOURCE_COLUMN, TARGET_COLUMN)
_ENDPOINT_TYPE: Final = ct.ScalarType(scalar=ct.Scalar.STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownProperty:
    """What constraints check of a member; an unresolved type is None."""

    type: ct.PropertyType | None
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintScope:
    """The type a constraint belongs to; `kind` is `interface`, `node` or `edge`."""

    kind: str
    name: Name
    properties: Mapping[str, KnownProperty]


def check_constraint(
    constraint: resolve.WrittenConstraint, scope: ConstraintScope, suggestions: Suggestions
) -> Iterator[Diagnostic]:
    """Every finding about one constraint on its own."""
    if scope.kind == "edge" and constraint.kind in _NODE_ONLY:
        yield error(
            _NODE_ONLY[constraint.kind],
            constraint.span,
            f"`@{constraint.kind}` is not for edges",
            _NODE_ONLY_HINTS[constraint.kind],
        )
        return
    yield from _members_are_distinct(constraint)
    for member in constraint.members:
        known = _member(member, scope)
        if known is None:
            yield _unknown_member(member, scope, suggestions)
        elif known.type is not None:
            yield from _member_fits(constraint, member, known)
    if constraint.metric is not None:
        yield from _metric_fits(constraint, constraint.metric, scope)
    if constraint.bounds is not None:
        yield from _bounds_are_ordered(constraint)
    if constraint.pattern is not None:
        yield from _pattern_compiles(constraint.pattern)


_NODE_ONLY: Final = {
    resolve.ConstraintKind.KEY: Rule.KEY_ON_EDGE,
    resolve.ConstraintKind.RANGE: Rule.RANGE_ON_EDGE,
    resolve.ConstraintKind.CHECK: Rule.CHECK_ON_EDGE,
}
_NODE_ONLY_HINTS: Final = {
    resolve.ConstraintKind.KEY: "edges have no key; `@unique(src, dst)` allows one edge per pair",
    resolve.ConstraintKind.RANGE: "put the value on a node, or check it before loading",
    resolve.ConstraintKind.CHECK: "put the value on a node, or use an enum",
}


def check_constraints_together(
    constraints: list[resolve.WrittenConstraint], scope: ConstraintScope
) -> Iterator[Diagnostic]:
    """One key at most, and no constraint stated twice."""
    first: dict[object, resolve.WrittenConstraint] = {}
    key: resolve.WrittenConstraint | None = None
    for constraint in constraints:
        if scope.kind == "edge" and constraint.kind in _NODE_ONLY:
            continue
        if constraint.kind is resolve.ConstraintKind.KEY:
            if key is not None:
                yield error(
                    Rule.DUPLICATE_KEY,
                    _span_within(constraint, scope),
                    f"{scope.kind} `{scope.name.text}` has more than one key",
                    "join the members: `@key(first, second)`",
                )
            key = key or constraint
            continue
        earlier = first.setdefault(_sameness(constraint), constraint)
        if earlier is not constraint:
            yield _stated_twice(constraint, earlier, scope)


def _stated_twice(
    constraint: resolve.WrittenConstraint,
    earlier: resolve.WrittenConstraint,
    scope: ConstraintScope,
) -> Diagnostic:
    members = ", ".join(member.text for member in constraint.members)
    known = scope.properties.get(members)
    metrics = _metric_word(earlier), _metric_word(constraint)
    if known is not None and isinstance(known.type, ct.VectorType) and metrics[0] != metrics[1]:
        return error(
            Rule.INDEX_METRIC,
            _span_within(constraint, scope),
            f"`{members}` has two metrics, {metrics[0]} and {metrics[1]}",
            f"keep one `@index`; without a metric it means {ct.DEFAULT_METRIC}",
        )
    return error(
        Rule.DUPLICATE_CONSTRAINT,
        _span_within(constraint, scope),
        f"`@{constraint.kind}` over `{members}` is stated twice",
        "remove one; a constraint is written after its property or in the body",
    )


def _metric_word(constraint: resolve.WrittenConstraint) -> str:
    return ct.DEFAULT_METRIC if constraint.metric is None else constraint.metric.text


def _span_within(constraint: resolve.WrittenConstraint, scope: ConstraintScope) -> Span:
    """The constraint itself, or the type's name if an interface declares the constraint."""
    return scope.name.span if constraint.inherited else constraint.span


def _sameness(constraint: resolve.WrittenConstraint) -> object:
    names = tuple(member.text for member in constraint.members)
    match constraint.kind:
        case resolve.ConstraintKind.KEY | resolve.ConstraintKind.INDEX:
            return constraint.kind, names
        case resolve.ConstraintKind.UNIQUE:
            return constraint.kind, frozenset(names)
        case resolve.ConstraintKind.RANGE:
            bounds = constraint.bounds
            assert bounds is not None
            return (
                constraint.kind,
                names,
                *(
                    resolve.number_value(bound) if bound is not None else None
                    for bound in (bounds.low, bounds.high)
                ),
            )
        case resolve.ConstraintKind.CHECK:
            assert constraint.pattern is not None
            return constraint.kind, names, resolve.string_value(constraint.pattern)
        case _:
            assert_never(constraint.kind)


def _member(member: Name, scope: ConstraintScope) -> KnownProperty | None:
    if scope.kind == "edge" and member.text in _ENDPOINT_COLUMNS:
        return KnownProperty(type=_ENDPOINT_TYPE, nullable=False)
    return scope.properties.get(member.text)


def _unknown_member(member: Name, scope: ConstraintScope, suggestions: Suggestions) -> Diagnostic:
    candidates = [*scope.properties, *(_ENDPOINT_COLUMNS if scope.kind == "edge" else ())]
    if member.text == ID_COLUMN:
        hint = f"`{ID_COLUMN}` is always unique and indexed; it is not a property"
    else:
        hint = suggestions.closest(member.text, candidates)
    return error(
        Rule.UNKNOWN_PROPERTY,
        member.span,
        f"{scope.kind} `{scope.name.text}` has no property `{member.text}`",
        hint or (f"its properties are {', '.join(candidates[:8])}" if candidates else ""),
    )


def _members_are_distinct(constraint: resolve.WrittenConstraint) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for member in constraint.members:
        if member.text in seen:
            yield error(
                Rule.REPEATED_MEMBER,
                member.span,
                f"`@{constraint.kind}` names `{member.text}` twice",
                "remove one",
            )
        seen.add(member.text)


def _member_fits(
    constraint: resolve.WrittenConstraint, member: Name, known: KnownProperty
) -> Iterator[Diagnostic]:
    kind = constraint.kind
    assert known.type is not None
    rule, fits, allowed = _fitness(constraint, known.type)
    span = constraint.span if len(constraint.members) == 1 else member.span
    if not fits:
        yield error(
            rule,
            span,
            f"`@{kind}` does not work on `{member.text}`, which is {type_words(known.type)}",
            allowed,
        )
    if kind is resolve.ConstraintKind.KEY and known.nullable:
        yield error(
            Rule.NULLABLE_KEY,
            span,
            f"the key property `{member.text}` must not be nullable",
            "remove the `?` from its type",
        )


def _fitness(
    constraint: resolve.WrittenConstraint, member: ct.PropertyType
) -> tuple[Rule, bool, str]:
    unordered = isinstance(member, ct.ScalarType) and member.scalar in ct.WITHOUT_ORDER
    several = isinstance(member, ct.ListType) or unordered
    vector = isinstance(member, ct.VectorType)
    match constraint.kind:
        case resolve.ConstraintKind.KEY:
            hint = "a key member is a string, a number, a Boolean, a date or an enum"
            return Rule.KEY_TYPE, not (several or vector), hint
        case resolve.ConstraintKind.UNIQUE:
            hint = "lists, vectors, blobs and Json are never compared for uniqueness"
            return Rule.UNIQUE_TYPE, not (several or vector), hint
        case resolve.ConstraintKind.INDEX:
            hint = "lists, blobs and Json have no index; a vector is indexed alone"
            fits = bool(index_kinds(member)) and not (vector and len(constraint.members) > 1)
            return Rule.INDEX_TYPE, fits, hint
        case resolve.ConstraintKind.RANGE:
            fits = isinstance(member, ct.DecimalType) or (
                isinstance(member, ct.ScalarType) and member.scalar in ct.NUMBERS
            )
            return Rule.RANGE_TYPE, fits, "ranges are for I32, I64, U32, U64, F32, F64 and Decimal"
        case resolve.ConstraintKind.CHECK:
            fits = member == ct.ScalarType(scalar=ct.Scalar.STRING)
            return Rule.CHECK_TYPE, fits, "regular expressions are for String"
        case _:
            assert_never(constraint.kind)


def _metric_fits(
    constraint: resolve.WrittenConstraint, metric: Name, scope: ConstraintScope
) -> Iterator[Diagnostic]:
    if metric.text not in METRICS:
        yield error(
            Rule.INDEX_METRIC,
            metric.span,
            f"`{metric.text[:80]}` is not a metric",
            metric_hint(metric.text),
        )
    known_properties = [_member(member, scope) for member in constraint.members]
    types = [
        known_property.type
        for known_property in known_properties
        if known_property is not None and known_property.type is not None
    ]
    # What cannot be indexed at all, or not beside others, is an error already.
    if len(types) < len(known_properties) or not all(
        IndexKind.BTREE in index_kinds(property_type) for property_type in types
    ):
        return
    member = constraint.members[0]
    yield error(
        Rule.INDEX_METRIC,
        metric.span,
        f"a metric is for vectors, `{member.text}` is {type_words(types[0])}",
        "remove the metric",
    )


def type_words(member: ct.PropertyType) -> str:
    """A property type with its article, for messages."""
    match member:
        case ct.ScalarType():
            return f"of type {member.scalar.value}"
        case ct.DecimalType():
            return f"of type {show_type(member)}"
        case ct.ListType():
            return "a list"
        case ct.EnumType():
            return "an enum"
        case ct.VectorType():
            return "a vector"
        case _:
            assert_never(member)


def _bounds_are_ordered(constraint: resolve.WrittenConstraint) -> Iterator[Diagnostic]:
    bounds = constraint.bounds
    if bounds is None or bounds.low is None or bounds.high is None:
        return
    low, high = resolve.number_value(bounds.low), resolve.number_value(bounds.high)
    if low is not None and high is not None and low > high:
        yield error(
            Rule.RANGE_BOUNDS,
            bounds.span,
            f"the lower bound {bounds.low.raw} is above the upper bound {bounds.high.raw}",
            f"write `{bounds.high.raw}..{bounds.low.raw}`",
        )


def _pattern_compiles(pattern: StringLiteral) -> Iterator[Diagnostic]:
    source = resolve.string_value(pattern)
    # Most schemas have no pattern, and an editor or a linter needs nothing else of Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        # Arrow compiles the pattern only when there is a value to match it with.
        pc.match_substring_regex(pa.array([""], pa.string()), pattern=source)
    except pa.ArrowInvalid as refused:
        reason = str(refused).removeprefix("Invalid regular expression: ")
        around = reason.startswith("invalid perl operator: (?")
        yield error(
            Rule.CHECK_PATTERN,
            pattern.span,
            "look-around does not exist in RE2 regular expressions"
            if around
            else f"this is not an RE2 regular expression: {reason[:120]}",
            "patterns match anywhere in the text; use `^` and `$` to anchor them"
            if around
            else "the dialect is RE2; a backslash is written `\\\\` in a string",
        )
