"""Defaults of properties: each is a value of its property that no rule of the type refuses.

Invariant: a default that passes can be stored in any row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import assert_never

from omnigraph_lake.language.diagnostics import Diagnostic
from omnigraph_lake.schema import ast, resolve, values
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.checks.annotations import check_literals
from omnigraph_lake.schema.diagnostics import Rule, error
from omnigraph_lake.schema.show import show_type


def check_default(declaration: ast.PropertyDeclaration) -> Iterator[Diagnostic]:
    """That a property can have a default, and that this is a value of its type."""
    default, wanted = declaration.default, resolve.resolve_type(declaration.type)
    if default is None:
        return
    yield from check_literals((default,))
    if wanted is None:
        return
    value, advice = values.literal_for(wanted, default)
    if value is None:
        yield error(
            Rule.DEFAULT_VALUE,
            default.span,
            f"`{declaration.name.text}` is of type {show_type(wanted)}; this is not a value of it",
            advice,
        )


def check_default_rules(
    constraints: Iterable[resolve.WrittenConstraint],
    defaults: Mapping[str, tuple[ct.PropertyType, ct.Literal]],
) -> Iterator[Diagnostic]:
    """That no constraint of a type refuses the default of one of its properties."""
    for constraint in constraints:
        for member in constraint.members:
            if member.text not in defaults:
                continue
            if constraint.kind is resolve.ConstraintKind.KEY:
                yield error(
                    Rule.DEFAULT_ON_KEY,
                    constraint.span,
                    f"`{member.text}` is in the key and has a default",
                    "remove the default: every node says what it is",
                )
            elif _refuses(constraint, *defaults[member.text]):
                yield error(
                    Rule.DEFAULT_VALUE,
                    constraint.span,
                    f"the default of `{member.text}` breaks this `@{constraint.kind}`",
                    "choose a default that the constraint allows",
                )


def _refuses(
    constraint: resolve.WrittenConstraint, kind: ct.PropertyType, value: ct.Literal
) -> bool:
    match constraint.kind:
        case resolve.ConstraintKind.RANGE:
            bounds = constraint.bounds
            if not isinstance(kind, ct.ScalarType | ct.DecimalType) or isinstance(value, str):
                return False
            if bounds is None:
                return False
            return not values.within(
                values.as_stored(value, kind),
                kind,
                low=None if bounds.low is None else resolve.number_value(bounds.low),
                high=None if bounds.high is None else resolve.number_value(bounds.high),
            )
        case resolve.ConstraintKind.CHECK:
            return (
                constraint.pattern is not None
                and isinstance(value, str)
                and not _matches(resolve.string_value(constraint.pattern), value)
            )
        case (
            resolve.ConstraintKind.KEY
            | resolve.ConstraintKind.UNIQUE
            | resolve.ConstraintKind.INDEX
        ):
            return False
        case _:
            assert_never(constraint.kind)


def _matches(pattern: str, value: str) -> bool:
    # Few schemas have both a pattern and a default; the others need nothing of Arrow.
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        matches = pc.match_substring_regex(pa.array([value], pa.string()), pattern=pattern)
    except pa.ArrowInvalid:
        return True  # the pattern itself is an error
    return bool(matches[0].as_py())
