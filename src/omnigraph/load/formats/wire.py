"""The record forms of a schema as decoders that read whole records in one step.

Invariant: what a decoder accepts has the shape of a record of a known type, and every value the
JSON type of its property; what it refuses may still be a record that only the slow reading
understands. Absent members are distinguished from null ones, because both are counted.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Final, assert_never

import msgspec
from msgspec import UNSET, Meta, UnsetType

from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.schema.catalog import (
    Catalog,
    EdgeType,
    EnumType,
    ListType,
    NodeType,
    PropertyType,
    Scalar,
    ScalarType,
    VectorType,
)
from omnigraph.validation.input.intake import table_key_of

NODE_FORM: Final = "type"
EDGE_FORM: Final = "edge"
FROM: Final = "from"
TO: Final = "to"
DATA: Final = "data"

# Above 64 bits Arrow notices by itself; msgspec takes no bound beyond 63 bits.
_INTEGERS: Final[dict[Scalar, Any]] = {
    Scalar.I32: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)],
    Scalar.I64: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    Scalar.U32: Annotated[int, Meta(ge=0, le=2**32 - 1)],
    Scalar.U64: Annotated[int, Meta(ge=0)],
}
_TEXT: Final = ScalarType(scalar=Scalar.STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireColumn:
    """A column, and how its value is taken out of a decoded record, or out of its data."""

    name: str
    kind: PropertyType
    inside_data: bool
    value: Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireType:
    """How records of one type arrive; `no_data` stands for the data of a record without any."""

    declared: NodeType | EdgeType
    columns: tuple[WireColumn, ...]
    no_data: object

    @property
    def table_key(self) -> str:
        return table_key_of(self.declared)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireForm:
    """All types of one record form: the decoder, and the type behind each class it returns."""

    decoder: msgspec.json.Decoder[Any]
    types: dict[type, WireType]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Both record forms of one schema; a form without types is None."""

    nodes: WireForm | None
    edges: WireForm | None


def wire_of(catalog: Catalog) -> Wire:
    """Make the decoders of a schema."""
    return Wire(
        nodes=_form(NODE_FORM, catalog.nodes.values()),
        edges=_form(EDGE_FORM, catalog.edges.values()),
    )


def _form(tag_field: str, declared: Iterable[NodeType | EdgeType]) -> WireForm | None:
    types: dict[type, WireType] = {}
    for each in declared:
        types |= _records(tag_field, each)
    if not types:
        return None
    return WireForm(decoder=msgspec.json.Decoder(reduce(operator.or_, types)), types=types)


def _records(tag_field: str, declared: NodeType | EdgeType) -> dict[type, WireType]:
    """One class per spelling of the type's name; all of them look the same inside."""
    members = [(each.name, each.type) for each in declared.properties.values()]
    data = msgspec.defstruct(
        f"{declared.name}Data",
        _fields([(ID_COLUMN, _TEXT), *members]),
        frozen=True,
        forbid_unknown_fields=True,
        gc=False,
        eq=False,
    )
    no_data = data()
    fields: list[Any] = [(DATA, data, no_data)]
    columns = _columns([ID_COLUMN, *declared.properties], declared, inside_data=True)
    spellings = {declared.name}
    if isinstance(declared, EdgeType):
        fields += _fields([(FROM, _TEXT), (TO, _TEXT)])
        columns += _columns([SOURCE_COLUMN, TARGET_COLUMN], declared, inside_data=False)
        spellings |= _other_cases(declared.name)
    wire = WireType(declared=declared, columns=columns, no_data=no_data)
    return {
        msgspec.defstruct(
            declared.name,
            fields,
            tag_field=tag_field,
            tag=spelling,
            forbid_unknown_fields=True,
            gc=False,
            eq=False,
        ): wire
        for spelling in sorted(spellings)
    }


def _other_cases(name: str) -> set[str]:
    """How people write an edge without looking it up; rarer spellings take the slow way."""
    return {name.lower(), name.upper(), name[:1].lower() + name[1:]}


def _columns(
    names: list[str], declared: NodeType | EdgeType, *, inside_data: bool
) -> tuple[WireColumn, ...]:
    return tuple(
        WireColumn(
            name=name,
            kind=declared.properties[name].type if name in declared.properties else _TEXT,
            inside_data=inside_data,
            value=operator.attrgetter(_attribute(number)),
        )
        for number, name in enumerate(names)
    )


def _attribute(number: int) -> str:
    """Properties may be called like words of Python; attributes may not."""
    return f"m{number}"


def _fields(members: list[tuple[str, PropertyType]]) -> list[Any]:
    return [
        (
            _attribute(number),
            decoded_type(kind) | None | UnsetType,
            msgspec.field(name=name, default=UNSET),
        )
        for number, (name, kind) in enumerate(members)
    ]


def decoded_type(kind: PropertyType) -> Any:
    """The Python type that a value of a property is decoded to."""
    match kind:
        case ScalarType():
            return _decoded_scalar(kind.scalar)
        case EnumType():
            return str
        case ListType():
            return list[_decoded_scalar(kind.item) | None]  # type: ignore[misc]
        case VectorType():
            return Annotated[list[int | float], Meta(min_length=kind.size, max_length=kind.size)]
        case _:
            assert_never(kind)


def _decoded_scalar(scalar: Scalar) -> Any:
    match scalar:
        case Scalar.STRING | Scalar.BLOB | Scalar.DATE | Scalar.DATETIME:
            return str
        case Scalar.BOOL:
            return bool
        case Scalar.F32 | Scalar.F64:
            # An integer that no float is equal to must not become one unseen.
            return int | float
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return _INTEGERS[scalar]
        case _:
            assert_never(scalar)
