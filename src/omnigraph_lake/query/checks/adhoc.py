"""The parameters that an ad-hoc text, a body without a name, uses without declaring them.

Invariant: the type of such a parameter follows from its value alone, before the text is checked.
A value that has no single type, such as null or an empty list, needs a declaration.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from typing import Any, Final

from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.language.diagnostics import Diagnostic, shown
from omnigraph_lake.query import ast
from omnigraph_lake.query.binding import list_items, plain_value
from omnigraph_lake.query.decimals import type_of_number
from omnigraph_lake.query.typed import TypedParameter
from omnigraph_lake.query.types import INTEGER_LIMITS, DecimalList, ParameterType
from omnigraph_lake.schema import catalog as ct

_SCALARS: Final[tuple[tuple[type, ct.Scalar], ...]] = (
    (bool, ct.Scalar.BOOL),
    (str, ct.Scalar.STRING),
    (float, ct.Scalar.F64),
    (dt.datetime, ct.Scalar.DATETIME),
    (dt.date, ct.Scalar.DATE),
    (bytes, ct.Scalar.BLOB),
    (dict, ct.Scalar.JSON),
)
"""The first that fits; a Boolean is an integer to Python, and an instant a date."""
_NEAREST: Final = "nearest"


def names_without_declaration(parsed: ast.QueryFile | Diagnostic) -> frozenset[str]:
    """The variables of an ad-hoc text that may be parameters without a declaration."""
    if isinstance(parsed, Diagnostic):
        return frozenset()
    names: set[str] = set()
    for query in parsed.queries:
        if query.is_adhoc:
            nodes = list(_nodes(query.body))
            declared_names = {parameter.name.text for parameter in query.parameters}
            used_names = {node.name.text for node in nodes if isinstance(node, ast.VariableUse)}
            names |= used_names - declared_names - _names_of_pattern(nodes)
    return frozenset(names)


def _names_of_pattern(nodes: Iterable[object]) -> set[str]:
    """The variables that a pattern binds."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Binding):
            names.add(node.variable.text)
        elif isinstance(node, ast.Traversal):
            bound_names = (node.left, node.right, node.edge_variable, node.path)
            names |= {name.text for name in bound_names if name is not None}
    return names


def parameters_of_values(
    parsed: ast.QueryFile | Diagnostic, values: Mapping[str, object]
) -> tuple[TypedParameter, ...]:
    """The parameters of an ad-hoc text that have a value and no declaration.

    Raises:
        InvalidInputError: a value has no single type.
    """
    names = sorted(names_without_declaration(parsed) & set(values))
    if not names:
        return ()
    assert isinstance(parsed, ast.QueryFile)
    vectors = _vector_names(parsed.queries)
    return tuple(
        TypedParameter(
            name=name,
            type=_type_of(name, values[name], is_vector=name in vectors),
            nullable=False,
        )
        for name in names
    )


def _vector_names(queries: Iterable[ast.QueryDeclaration]) -> frozenset[str]:
    """The variables that `nearest` compares with: a list of numbers there is a vector."""
    calls = [
        node
        for query in queries
        for node in _nodes(query.body)
        if isinstance(node, ast.Call) and node.function.text == _NEAREST
    ]
    return frozenset(
        argument.name.text
        for call in calls
        for argument in call.arguments[1:2]
        if isinstance(argument, ast.VariableUse)
    )


def _nodes(body: ast.ReadBody | ast.WriteBody | ast.MatchedWriteBody) -> Iterable[object]:
    """Every node of a tree; iterative, without recursion."""
    pending: list[Any] = [body]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending += node
        elif is_dataclass(node):
            yield node
            pending += [getattr(node, field.name) for field in fields(node)]


def _type_of(name: str, value: object, *, is_vector: bool) -> ParameterType:
    plain = plain_value(value)
    if plain is None:
        raise _needs_declaration(name, "is null", "String?")
    if isinstance(plain, Decimal):
        exact = type_of_number(plain) if plain.is_finite() else None
        if exact is None:
            raise _no_type(name, plain)
        return exact
    scalar = _scalar_of(plain)
    if scalar is not None:
        return ct.ScalarType(scalar=scalar)
    try:
        items = [plain_value(item) for item in list_items(plain)]
    except ValueError:
        raise _no_type(name, plain) from None
    if is_vector:
        return ct.VectorType(size=len(items))
    if any(isinstance(item, Decimal) for item in items):
        return _decimal_list(name, items)
    return ct.ListType(item=_item_scalar(name, items))


def _decimal_list(name: str, items: list[object]) -> DecimalList:
    """The decimals that hold all items, which are decimals, integers or null."""
    numbers = [
        Decimal(item)
        for item in items
        if isinstance(item, int | Decimal) and not isinstance(item, bool)
    ]
    types = [type_of_number(number) if number.is_finite() else None for number in numbers]
    exact = [kind for kind in types if kind is not None]
    common = ct.join_decimals(exact) if exact else None
    others = [item for item in items if item is not None and not isinstance(item, int | Decimal)]
    if common is None or others or len(exact) < len(types):
        raise _no_type(name, others[0] if others else items)
    return DecimalList(item=common)


def _scalar_of(plain: object) -> ct.Scalar | None:
    for kind, scalar in _SCALARS:
        if isinstance(plain, kind):
            return scalar
    if isinstance(plain, int):
        for scalar in (ct.Scalar.I64, ct.Scalar.U64):
            low, high = INTEGER_LIMITS[scalar]
            if low <= plain <= high:
                return scalar
    return None


def _item_scalar(name: str, items: list[object]) -> ct.Scalar:
    """The type of the items of a list: one type, or numbers."""
    present_items = [item for item in items if item is not None]
    if not present_items:
        raise _needs_declaration(name, "is a list without values", "[String]")
    scalars = {_scalar_of(item) for item in present_items}
    if None in scalars or not scalars.isdisjoint(ct.WITHOUT_ORDER):
        unknown = next(
            item for item in present_items if _scalar_of(item) in (None, *ct.WITHOUT_ORDER)
        )
        raise _no_type(name, unknown)
    (first, *others) = sorted(scalar for scalar in scalars if scalar is not None)
    if not others:
        return first
    if scalars <= {ct.Scalar.I64, ct.Scalar.F64}:
        return ct.Scalar.F64
    if scalars == {ct.Scalar.I64, ct.Scalar.U64} and not any(
        isinstance(item, int) and item < 0 for item in present_items
    ):
        return ct.Scalar.U64
    listed = " and ".join((first.value, *(other.value for other in others)))
    raise _needs_declaration(name, f"is a list of {listed}", f"[{first.value}]")


def _needs_declaration(name: str, why: str, example: str) -> InvalidInputError:
    return InvalidInputError(
        f"parameter ${name} of the query {why}, so its type is not known",
        next_step=f"Declare it in front of the query: `(${name}: {example}) match ...`.",
    )


def _no_type(name: str, value: object) -> InvalidInputError:
    kind = "an integer beyond 64 bits" if isinstance(value, int) else type(value).__name__
    return InvalidInputError(
        f"parameter ${name} of the query has {kind} {shown(value, 40)}, which no type holds",
        next_step="Give text, a number, a Boolean, a date, an instant, bytes, or a list of them.",
    )
