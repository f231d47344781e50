"""Property names and types within one body.

Invariant: after these checks a type's columns have distinct names in every engine, none of
them collides with a column of ours or of the storage, and every type expression resolves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, assert_never

from omnigraph.language.diagnostics import Diagnostic
from omnigraph.names import LANCE_COLUMNS, SYSTEM_COLUMNS
from omnigraph.schema.ast import (
    BaseType,
    Declaration,
    EnumOf,
    ListOf,
    Name,
    TypeExpression,
    properties_of,
)
from omnigraph.schema.catalog import Scalar, ScalarType
from omnigraph.schema.checks.declarations import name_length
from omnigraph.schema.diagnostics import Rule, error
from omnigraph.schema.explain import BASE_TYPE_NAMES, type_hint
from omnigraph.schema.resolve import (
    VECTOR,
    VECTOR_SIZE_MAX,
    number_value,
    resolve_type,
)

_RESERVED: Final = frozenset(LANCE_COLUMNS)
_SYSTEM: Final = frozenset(SYSTEM_COLUMNS)


def check_properties(declaration: Declaration) -> Iterator[Diagnostic]:
    first: dict[str, Name] = {}
    for each in properties_of(declaration):
        name = each.name
        folded = name.text.casefold()
        earlier = first.setdefault(folded, name)
        if earlier is not name:
            yield _repeated(name, earlier)
        yield from name_length(name)
        if folded in _SYSTEM or name.text in _RESERVED:
            yield error(
                Rule.RESERVED_PROPERTY,
                name.span,
                f"the property name `{name.text}` is reserved",
                "every type has its own `id` (edges also `src`, `dst`); choose another name",
            )
        if isinstance(each.type.core, EnumOf):
            yield from _enum_values(each.type.core)
        elif resolve_type(each.type) is None:
            yield from _explain_type(each.type.core)


def _repeated(name: Name, earlier: Name) -> Diagnostic:
    if earlier.text == name.text:
        return error(
            Rule.DUPLICATE_PROPERTY,
            name.span,
            f"property `{name.text}` is declared twice, first on line {earlier.span.line}",
            "remove one",
        )
    return error(
        Rule.PROPERTY_NAME_CASE,
        name.span,
        f"property `{name.text}` differs only in case from `{earlier.text}` "
        f"on line {earlier.span.line}",
        "rename one; query engines fold case",
    )


def _explain_type(core: BaseType | ListOf) -> Iterator[Diagnostic]:
    match core:
        case BaseType():
            yield from _explain_base(core)
        case ListOf():
            yield from _explain_item(core.item)
        case _:
            assert_never(core)


def _explain_base(base: BaseType) -> Iterator[Diagnostic]:
    if base.name == VECTOR:
        yield _vector_size(base)
    elif base.name not in BASE_TYPE_NAMES:
        yield error(
            Rule.UNKNOWN_TYPE,
            base.span,
            f"`{base.name}` is not a type",
            type_hint(base.name),
        )
    elif base.size is not None:
        yield error(
            Rule.UNEXPECTED_SIZE,
            base.span,
            f"`{base.name}` takes no size",
            f"write `{base.name}`; only `Vector(n)` has a size",
        )


def _vector_size(base: BaseType) -> Diagnostic:
    if base.size is None:
        return error(
            Rule.VECTOR_SIZE, base.span, "`Vector` needs a size", "write it as `Vector(768)`"
        )
    shown = base.size.raw if number_value(base.size) is not None else "that many digits"
    return error(
        Rule.VECTOR_SIZE,
        base.size.span,
        f"a vector has between 1 and {VECTOR_SIZE_MAX} numbers, not {shown}",
        "write a whole number, such as `Vector(768)`",
    )


def _explain_item(item: BaseType) -> Iterator[Diagnostic]:
    resolved = resolve_type(TypeExpression(core=item, nullable=False))
    if resolved is None:
        yield from _explain_base(item)
        return
    what = "blobs" if resolved == ScalarType(scalar=Scalar.BLOB) else "vectors"
    yield error(
        Rule.LIST_ITEM,
        item.span,
        f"a list of {what} does not exist",
        "put each item on a node of its own and join them with an edge",
    )


def _enum_values(core: EnumOf) -> Iterator[Diagnostic]:
    seen: set[str] = set()
    for value in core.values:
        yield from name_length(value)
        if value.text in seen:
            yield error(
                Rule.DUPLICATE_ENUM_VALUE,
                value.span,
                f"the enum value `{value.text}` is listed twice",
                "remove one",
            )
        seen.add(value.text)
