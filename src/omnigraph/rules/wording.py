"""What rules say to people: the expectation of each rule in words.

Invariant: a rule reads the same whichever engine found it broken.
"""

from __future__ import annotations

from typing import assert_never

from omnigraph.rules.constraints import (
    EdgeCount,
    FiniteKey,
    FullVector,
    InEnum,
    InRange,
    Matches,
    ProperId,
    Required,
    RowRule,
)
from omnigraph.schema.catalog import EnumType, ListType, PropertyType, ScalarType, VectorType


def expectation(rule: RowRule) -> str:
    """What a row rule expects, to stand behind the word `expected`."""
    match rule:
        case Required():
            because = f", because {rule.unless_present} is missing too"
            text = "a value" + (because if rule.unless_present else "")
        case ProperId():
            text = f"1 to {rule.bytes_max} bytes without control characters"
        case FiniteKey():
            text = "a finite number, because it is part of the key"
        case FullVector():
            text = "a vector without null items"
        case InEnum():
            text = f"one of {', '.join(rule.values)}"
        case InRange():
            text = _range_text(rule)
        case Matches():
            text = f"a match of {rule.pattern!r}"
        case _:
            assert_never(rule)
    return text


def type_text(property_type: PropertyType) -> str:
    """A type as the schema language spells it."""
    match property_type:
        case ScalarType():
            return property_type.scalar.value
        case ListType():
            return f"[{property_type.item.value}]"
        case EnumType():
            return "String"
        case VectorType():
            return f"Vector({property_type.size})"
        case _:
            assert_never(property_type)


def count_text(rule: EdgeCount) -> str:
    """The allowed number of edges, as `@card` spells it."""
    return f"{rule.minimum}..{'' if rule.maximum is None else rule.maximum}"


def _range_text(rule: InRange) -> str:
    if rule.low is None:
        return f"at most {rule.high}"
    if rule.high is None:
        return f"at least {rule.low}"
    return f"{rule.low} to {rule.high}"
