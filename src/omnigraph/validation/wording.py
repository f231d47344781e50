"""What rules say to people: the expectation of each rule in words.

Invariant: a rule reads the same whichever engine found it broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

from omnigraph.schema.catalog import EnumType, ListType, PropertyType, ScalarType, VectorType
from omnigraph.validation.constraints import (
    EdgeCount,
    EndpointExists,
    FiniteKey,
    FullVector,
    InEnum,
    InRange,
    KeyedRule,
    Matches,
    ProperId,
    Required,
    RowRule,
    UniqueTuple,
)
from omnigraph.validation.reasons import Reason
from omnigraph.validation.violations import shown_scalar

if TYPE_CHECKING:
    import pyarrow as pa


def expectation(rule: RowRule) -> str:
    """What a row rule expects, to follow the word `expected`."""
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


def missing_text(rule: EndpointExists, endpoint: pa.Scalar) -> str:
    """What is wrong with an endpoint that no node has."""
    type_name = rule.node_key.partition(":")[2]
    found = shown_scalar(endpoint)
    return f"found {found}, expected the id of a {type_name} that exists after the write"


def keyed_message(reason: Reason, rule: KeyedRule | None, values: Sequence[pa.Scalar]) -> str:
    """Why a load refuses a record that is well-formed alone; the same words in every engine.

    `values` are what the rule looks at in the record itself: its id where there is no rule, the
    members of a unique tuple, the endpoint, or the source whose edges are counted.
    """
    found = ", ".join(map(shown_scalar, values))
    match reason, rule:
        case Reason.DUPLICATE_ID, None:
            return f"id: found {found}, which an earlier record of the input has too"
        case Reason.SUPERSEDED, None:
            return f"id: found {found}, superseded by another record of the input"
        case Reason.ID_EXISTS, None:
            return f"id: found {found}, which the graph has already, expected a new one"
        case Reason.NOT_UNIQUE, UniqueTuple():
            columns = ", ".join(rule.columns)
            return f"{columns}: found {found}, which another row has too, expected a unique value"
        case Reason.MISSING_ENDPOINT, EndpointExists():
            return f"{rule.column}: {missing_text(rule, *values)}"
        case ((Reason.TOO_MANY_EDGES | Reason.TOO_FEW_EDGES), EdgeCount()):
            amount = "many" if reason is Reason.TOO_MANY_EDGES else "few"
            return f"src: found too {amount} edges of {found}, expected {count_text(rule)}"
        case _:
            raise ValueError(f"{reason} is not a reason of {rule}")


def _range_text(rule: InRange) -> str:
    if rule.low is None:
        return f"at most {rule.high}"
    if rule.high is None:
        return f"at least {rule.low}"
    return f"{rule.low} to {rule.high}"
