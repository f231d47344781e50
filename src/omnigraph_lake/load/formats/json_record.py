"""Parse one JSON line as a record: the row of a type that it claims to be, or a refusal.

The slow reading parses one line with the strict JSON reader and defines what a record means. The
fast reading uses decoders, made from the record forms of a schema, that read whole records in one
step.

JSON parsers keep the last of two equal names without an error, so names are counted:
`names_at_most` never counts too few, and a text is read again, slowly, only where it counts more
names than were decoded.

Invariants:
- The fast reading never disagrees with the slow one. What a decoder accepts has the shape of a
  record of a known type, and every value has the JSON type of its property. What it refuses may
  still be a record that only the slow reading understands.
- One fault is named, the first in this order: the text or the form of the record, a repeated name,
  the type, the names of the columns.
- Absent members are distinguished from null ones, because both are counted.
- A text is read as RFC 8259 defines it, or refused; nothing is repaired. A number that does not fit
  into 64 bits is kept as it is, so that a message can show it.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import reduce
from typing import Annotated, Any, Final, NoReturn, assert_never, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import UNSET, Meta, UnsetType

from omnigraph_lake.language.diagnostics import did_you_mean
from omnigraph_lake.load.formats.input_names import TypeNames
from omnigraph_lake.load.formats.records import NAME_SHOWN_MAX, Refusal
from omnigraph_lake.load.formats.values import blob_bytes
from omnigraph_lake.names import END_TYPE_COLUMNS, ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.json_text import DEPTH_MAX, JsonText, exact_value
from omnigraph_lake.schema.values import SpeltFloat
from omnigraph_lake.validation.input.intake import table_key_of
from omnigraph_lake.validation.json_encoding import BLOB_PREFIX
from omnigraph_lake.validation.violations import Reason, shown

_COLON, _QUOTE, _BACKSLASH, _NEWLINE = b':"\\\n'
_SPACES: Final = tuple(b" \t\r")
_SPACES_MAX: Final = 8
_INTEGER_DIGITS_MAX: Final = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonValue:
    """A parsed text; `repeated` is the first name that an object in it says twice."""

    value: object
    repeated: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotJson:
    """Why a text is no JSON."""

    why: str


class Unheld:
    """A number beyond what 64 bits hold; only decimals can take it over."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class JsonReader:
    """Reads JSON texts, one at a time."""

    def __init__(self) -> None:
        self._repeated: list[str] = []
        self._decoder = json.JSONDecoder(
            object_pairs_hook=self._members,
            parse_float=_float,
            parse_int=_integer,
            parse_constant=_constant,
        )

    def read(self, text: bytes) -> JsonValue | NotJson:
        """Read one JSON value that fills the text."""
        self._repeated.clear()
        try:
            value = self._decoder.decode(text.decode())
        except UnicodeDecodeError as error:
            return NotJson(why=f"found bytes that are not UTF-8 at byte {error.start + 1}")
        except json.JSONDecodeError as error:
            return NotJson(why=f"found {_fault(error)} at character {error.pos + 1}")
        except RecursionError:
            return NotJson(why="found values that are nested too deeply")
        except ValueError as error:
            return NotJson(why=f"found {error}")
        return JsonValue(value=value, repeated=self._repeated[0] if self._repeated else None)

    def _members(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        members = dict(pairs)
        if len(members) < len(pairs):
            self._repeated.append(_first_repeated(name for name, _ in pairs))
        return members


def _first_repeated(names: Iterable[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name is repeated")


def names_at_most(data: bytes) -> npt.NDArray[np.int64]:
    """For each line of valid JSON, a number that its objects' names do not exceed.

    A name ends in a quote that no backslash makes part of it, and a colon follows, with or without
    white space. Inside a text, the same can only look so at its beginning.
    """
    codes = np.frombuffer(data, np.uint8)
    colons = np.flatnonzero(codes == _COLON)
    before = colons - 1
    for _ in range(_SPACES_MAX):
        spaced = np.flatnonzero(np.isin(codes[before], _SPACES))
        if not len(spaced):
            break
        before[spaced] -= 1
    quoted = (codes[before] == _QUOTE) & (codes[before - 1] != _BACKSLASH)
    names = colons[quoted | np.isin(codes[before], _SPACES)]
    ends = np.flatnonzero(codes == _NEWLINE)
    lines = len(ends) + (not data.endswith(b"\n"))
    return np.bincount(np.searchsorted(ends, names), minlength=lines)


def _float(text: str) -> float | Unheld:
    value = SpeltFloat(text)
    return value if math.isfinite(value) else Unheld(text)


def _integer(text: str) -> int | Unheld:
    return int(text) if len(text) <= _INTEGER_DIGITS_MAX else Unheld(text)


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name}, which JSON does not allow")


def _fault(error: json.JSONDecodeError) -> str:
    what = error.msg
    if what == "Extra data":
        return "more text after the value"
    if what.startswith("Unterminated string"):
        return "an unterminated string"
    return f"a fault ({what[0].lower()}{what[1:]})"


NODE_FORM: Final = "type"
EDGE_FORM: Final = "edge"
FROM: Final = "from"
TO: Final = "to"
DATA: Final = "data"

# Above 64 bits Arrow notices by itself; msgspec takes no bound beyond 63 bits.
_INTEGERS: Final[dict[ct.Scalar, Any]] = {
    ct.Scalar.I32: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)],
    ct.Scalar.I64: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)],
    ct.Scalar.U32: Annotated[int, Meta(ge=0, le=2**32 - 1)],
    ct.Scalar.U64: Annotated[int, Meta(ge=0)],
}
_TEXT: Final = ct.ScalarType(scalar=ct.Scalar.STRING)
JSON: Final = ct.ScalarType(scalar=ct.Scalar.JSON)


@dataclass(frozen=True, slots=True, kw_only=True)
class WireColumn:
    """A column, and how its value is taken out of a decoded record, or out of its data.

    `member` is its name in the record.
    """

    name: str
    member: str
    kind: ct.PropertyType
    inside_data: bool
    value: Callable[[Any], Any]
    names_count: int = 1
    """How many names a decoded record has for the column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireType:
    """How records of one type arrive; `no_data` stands for the data of a record without any."""

    declared: ct.NodeType | ct.EdgeType
    columns: tuple[WireColumn, ...]
    no_data: object

    @property
    def table_key(self) -> str:
        return table_key_of(self.declared)

    @property
    def form(self) -> str:
        """The name of the member that says the type."""
        return NODE_FORM if isinstance(self.declared, ct.NodeType) else EDGE_FORM


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRows:
    """Rows of one type; `lines` are the indexes of their lines in the block, in order.

    `present` has the rows that mention a column, for the columns that not all rows mention.
    """

    wire: WireType
    columns: dict[str, pa.Array]
    lines: npt.NDArray[np.int64]
    present: dict[str, pa.BooleanArray]


@dataclass(frozen=True, slots=True, kw_only=True)
class WireForm:
    """All types of one record form: the decoder, and the type behind each class it returns.

    `spellings` are the names that the decoder accepts for each type.
    """

    decoder: msgspec.json.Decoder[Any]
    types: dict[type[msgspec.Struct], WireType]
    spellings: dict[str, WireType]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Both record forms of one schema; a form without types is None."""

    nodes: WireForm | None
    edges: WireForm | None


def wire_of(catalog: ct.Catalog) -> Wire:
    """Make the decoders of a schema."""
    return Wire(
        nodes=_form(NODE_FORM, catalog.nodes.values()),
        edges=_form(EDGE_FORM, catalog.edges.values()),
    )


def _form(tag_field: str, declared: Iterable[ct.NodeType | ct.EdgeType]) -> WireForm | None:
    types: dict[type[msgspec.Struct], WireType] = {}
    for declared_type in declared:
        types |= _records(tag_field, declared_type)
    if not types:
        return None
    return WireForm(
        decoder=msgspec.json.Decoder(reduce(operator.or_, types)),
        types=types,
        spellings={str(record.__struct_config__.tag): wire for record, wire in types.items()},
    )


def _records(
    tag_field: str, declared: ct.NodeType | ct.EdgeType
) -> dict[type[msgspec.Struct], WireType]:
    """One class per spelling of the type's name; all of them look the same inside."""
    members = [(prop.name, prop.type) for prop in declared.properties.values()]
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
    if isinstance(declared, ct.EdgeType):
        ends = {SOURCE_COLUMN: declared.source, TARGET_COLUMN: declared.target}
        for number, (column, end) in enumerate(ends.items()):
            fields.append(_end_field(number, _ENDS[column], end))
            columns += _end_columns(number, column, end)
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


class _TypedEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False, eq=False):
    """A polymorphic end as an object."""

    type: str
    id: str


def _end_field(number: int, member: str, end: ct.EdgeEnd) -> Any:
    kind: Any = _TypedEnd if end.is_polymorphic else str
    return (
        _attribute(number),
        kind | None | UnsetType,
        msgspec.field(name=member, default=UNSET),
    )


def _end_columns(number: int, column: str, end: ct.EdgeEnd) -> tuple[WireColumn, ...]:
    """The id of an end, and its type if it is polymorphic.

    Decoders take the object; a text with its type next to it has the same columns.
    """
    member, attribute = _ENDS[column], operator.attrgetter(_attribute(number))
    if not end.is_polymorphic:
        return (
            WireColumn(name=column, member=member, kind=_TEXT, inside_data=False, value=attribute),
        )

    def part(name: str) -> Callable[[Any], Any]:
        def value(record: Any) -> Any:
            typed_end = attribute(record)
            return getattr(typed_end, name) if isinstance(typed_end, _TypedEnd) else typed_end

        return value

    return (
        WireColumn(
            name=column,
            member=member,
            kind=_TEXT,
            inside_data=False,
            value=part("id"),
            names_count=2,
        ),
        WireColumn(
            name=END_TYPE_COLUMNS[column],
            member=f"{member}{_TYPE_SUFFIX}",
            kind=_TEXT,
            inside_data=False,
            value=part("type"),
        ),
    )


def _other_cases(name: str) -> set[str]:
    """How people write an edge without looking it up; rarer spellings take the slow way."""
    return {name.lower(), name.upper(), name[:1].lower() + name[1:]}


def _columns(
    names: list[str], declared: ct.NodeType | ct.EdgeType, *, inside_data: bool
) -> tuple[WireColumn, ...]:
    return tuple(
        WireColumn(
            name=name,
            member=name if inside_data else _ENDS[name],
            kind=declared.properties[name].type if name in declared.properties else _TEXT,
            inside_data=inside_data,
            value=operator.attrgetter(_attribute(number)),
        )
        for number, name in enumerate(names)
    )


def _attribute(number: int) -> str:
    """Properties may be called like words of Python; attributes may not."""
    return f"m{number}"


def _fields(members: list[tuple[str, ct.PropertyType]]) -> list[Any]:
    return [
        (
            _attribute(number),
            member_type(kind),
            msgspec.field(name=name, default=UNSET),
        )
        for number, (name, kind) in enumerate(members)
    ]


def member_type(kind: ct.PropertyType) -> Any:
    """What a member of a record may be: a value of its property, null, or absent."""
    # The text of a Json value is kept as it is: a decoder would round its numbers.
    if kind == JSON:
        return msgspec.Raw | UnsetType
    return decoded_type(kind) | None | UnsetType


def decoded_type(kind: ct.PropertyType) -> Any:
    """The Python type that a value of a property is decoded to."""
    match kind:
        case ct.ScalarType():
            return _decoded_scalar(kind.scalar)
        case ct.DecimalType():
            # As it is written: a number or a text, every digit of it.
            return msgspec.Raw
        case ct.EnumType():
            return str
        case ct.ListType():
            return list[_decoded_scalar(kind.item) | None]  # type: ignore[misc]
        case ct.VectorType():
            return Annotated[list[int | float], Meta(min_length=kind.size, max_length=kind.size)]
        case _:
            assert_never(kind)


def _decoded_scalar(scalar: ct.Scalar) -> Any:
    match scalar:
        case ct.Scalar.STRING | ct.Scalar.BLOB | ct.Scalar.DATE | ct.Scalar.DATETIME:
            return str
        case ct.Scalar.BOOL:
            return bool
        case ct.Scalar.F32 | ct.Scalar.F64:
            # An integer that no float is equal to must not become one unseen.
            return int | float
        case ct.Scalar.I32 | ct.Scalar.I64 | ct.Scalar.U32 | ct.Scalar.U64:
            return _INTEGERS[scalar]
        case ct.Scalar.JSON:
            return msgspec.Raw
        case _:
            assert_never(scalar)


_TYPE_SUFFIX: Final = "_type"
FROM_TYPE: Final = f"{FROM}{_TYPE_SUFFIX}"
TO_TYPE: Final = f"{TO}{_TYPE_SUFFIX}"
_FORMS: Final = {NODE_FORM: (NODE_FORM, DATA), EDGE_FORM: (EDGE_FORM, FROM, TO, DATA)}
_END_MEMBERS: Final = frozenset({FROM_TYPE, TO_TYPE})
_ENDS: Final = {SOURCE_COLUMN: FROM, TARGET_COLUMN: TO}
_EXPECTED: Final = "expected one JSON object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A record of a known type with known columns; its values are not validated yet."""

    place: int
    claimed: str
    raw: bytes
    declared: ct.NodeType | ct.EdgeType
    row: Mapping[str, object]


class ClaimReader:
    """Reads lines by themselves."""

    def __init__(self, names: TypeNames) -> None:
        self._names = names
        self._reader = JsonReader()

    def read(self, line: bytes, place: int) -> Claim | Refusal:
        """Read one line that is not blank."""
        parsed = self._reader.read(line)
        if isinstance(parsed, NotJson):
            return _refused(place, line, Reason.MALFORMED, f"{parsed.why}, {_EXPECTED}")
        record = parsed.value
        fault = _form_fault(record)
        if fault is not None:
            return _refused(place, line, Reason.MALFORMED, fault, claimed=_claimed(record))
        assert isinstance(record, dict)
        claimed = str(_claimed(record))
        if parsed.repeated is not None:
            message = f"the name {shown(parsed.repeated)} occurs more than once in an object"
            return _refused(place, line, Reason.DUPLICATE_MEMBER, message, claimed=claimed)
        declared = self._declared(record, claimed)
        if isinstance(declared, str):
            return _refused(place, line, Reason.UNKNOWN_TYPE, declared, claimed=claimed)
        data = record.get(DATA, {})
        ends = _end_values(declared, record) if isinstance(declared, ct.EdgeType) else {}
        stray = _stray_member(declared, data)
        if isinstance(ends, str):
            stray, reason = ends, Reason.MALFORMED
        else:
            reason = Reason.UNKNOWN_COLUMN
        if isinstance(ends, str) or stray is not None:
            return _refused(place, line, reason, str(stray), claimed=claimed)
        row = _with_json_texts(declared, with_stored_values(declared, data), line) | ends
        return Claim(place=place, claimed=claimed, raw=line, declared=declared, row=row)

    def _declared(
        self, record: Mapping[str, object], claimed: str
    ) -> ct.NodeType | ct.EdgeType | str:
        """The type of a record, or what to say if there is none."""
        if NODE_FORM in record:
            return self._names.node(claimed) or self._names.missing_node(claimed)
        return self._names.edge(claimed) or self._names.missing_edge(claimed)


def _form_fault(record: object) -> str | None:
    """What is wrong with the outer shape of a record."""
    if not isinstance(record, dict):
        return f"found {shown(record)}, {_EXPECTED}"
    forms = [form for form in _FORMS if form in record]
    if len(forms) != 1:
        forms_text = f"both {NODE_FORM} and {EDGE_FORM}" if forms else shown(list(record))
        return f"found {forms_text}, expected either {NODE_FORM} or {EDGE_FORM}"
    members = _FORMS[forms[0]]
    for name in record:
        is_end_type = forms[0] == EDGE_FORM and name in _END_MEMBERS
        if name not in members and not is_end_type:
            return f"found the member {shown(name)}, expected only {', '.join(members)}"
    if not isinstance(record[forms[0]], str):
        return f"{forms[0]}: found {shown(record[forms[0]])}, expected the name of a type"
    if not isinstance(record.get(DATA, {}), dict):
        return f"{DATA}: found {shown(record[DATA])}, expected an object"
    return None


def _end_values(declared: ct.EdgeType, record: Mapping[str, object]) -> dict[str, object] | str:
    """The columns of the ends of an edge, or what is wrong with their form."""
    values: dict[str, object] = {}
    for column, end in ((SOURCE_COLUMN, declared.source), (TARGET_COLUMN, declared.target)):
        member = _ENDS[column]
        type_member = f"{member}{_TYPE_SUFFIX}"
        if type_member in record and not end.is_polymorphic:
            return (
                f"found the member {type_member!r}, expected none: {declared.name} has one type "
                f"of nodes there, {end}"
            )
        if member in record:
            values[column] = record[member]
        if type_member in record:
            values[END_TYPE_COLUMNS[column]] = record[type_member]
        given = record.get(member)
        if end.is_polymorphic and isinstance(given, dict):
            if given.keys() != {"type", "id"} or type_member in record:
                return (
                    f'{member}: found {shown(given)}, expected {{"type": ..., "id": ...}}, or the '
                    f"id with {type_member} next to it"
                )
            values[column], values[END_TYPE_COLUMNS[column]] = given["id"], given["type"]
    return values


def _stray_member(declared: ct.NodeType | ct.EdgeType, data: Mapping[str, object]) -> str | None:
    """What to say about the first member of `data` that is no column of the type, if there is one.

    The ends of an edge are columns too, but are outside its data.
    """
    for name in data:
        if name == ID_COLUMN or name in declared.properties:
            continue
        if isinstance(declared, ct.EdgeType) and name in _ENDS:
            return f"there is no column {shown(name)} in {DATA}; {_ENDS[name]} is next to it"
        hint = did_you_mean(name, [ID_COLUMN, *declared.properties])
        return f"there is no column {shown(name)}" + (f"; {hint}" if hint else "")
    return None


def with_stored_values(
    declared: ct.NodeType | ct.EdgeType, data: Mapping[str, object]
) -> dict[str, object]:
    """The same members, with bytes for texts that encode bytes, and decimals as they are spelt."""
    row = dict(data)
    for name, value in data.items():
        if isinstance(value, SpeltFloat | Unheld):
            prop = declared.properties.get(name)
            if prop is not None and isinstance(prop.type, ct.DecimalType):
                with suppress(InvalidOperation):  # an exponent beyond those of Python
                    row[name] = Decimal(value.text)
            continue
        if not isinstance(value, str) or not value.startswith(BLOB_PREFIX):
            continue
        prop = declared.properties.get(name)
        if prop is not None and prop.type == ct.ScalarType(scalar=ct.Scalar.BLOB):
            content = blob_bytes(value)
            row[name] = value if content is None else content
    return row


class _DataTexts(msgspec.Struct):
    """The texts of the members of a record's data."""

    data: dict[str, msgspec.Raw]


_TOO_DEEP: Final = JsonText("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1))
_DATA_TEXTS: Final = msgspec.json.Decoder(_DataTexts)


def _with_json_texts(
    declared: ct.NodeType | ct.EdgeType, row: dict[str, object], line: bytes
) -> dict[str, object]:
    """The same members, with the texts of values of Json, whose numbers keep their digits."""
    names = [name for name in row if is_json(declared, name) and row[name] is not None]
    if not names:
        return row
    try:
        texts = {name: bytes(text).decode() for name, text in _DATA_TEXTS.decode(line).data.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # Half of a surrogate pair, which may be in another column.
        data = cast("dict[str, dict[str, object]]", exact_value(line.decode()))[DATA]
        return row | {name: data[name] for name in names}
    except RecursionError:
        return row | dict.fromkeys(names, _TOO_DEEP)
    return row | {name: JsonText(texts[name]) for name in names}


def is_json(declared: ct.NodeType | ct.EdgeType, name: str) -> bool:
    """Whether a member of a record is a property of type Json."""
    prop = declared.properties.get(name)
    return prop is not None and prop.type == JSON


def _claimed(record: object) -> str | None:
    if not isinstance(record, dict):
        return None
    name = record.get(NODE_FORM, record.get(EDGE_FORM))
    return name if isinstance(name, str) else None


def _refused(
    place: int, raw: bytes, reason: Reason, message: str, *, claimed: str | None = None
) -> Refusal:
    return Refusal(
        place=place,
        type_name=None if claimed is None else claimed[:NAME_SHOWN_MAX],
        reason=reason,
        message=message,
        raw=raw,
    )
