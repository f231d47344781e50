"""One JSON line as what it claims to be: a row of a type, or nothing that can be one.

Invariant: this is what a record means; the fast reading only ever agrees with it. One fault is
named, the first in this order: the text or the form of the record, a name said twice, the type,
the names of the columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from omnigraph.language.diagnostics import did_you_mean
from omnigraph.load.formats.members import JsonReader, NotJson
from omnigraph.load.formats.refusals import NAME_SHOWN_MAX, Refusal
from omnigraph.load.formats.type_names import TypeNames
from omnigraph.load.formats.values import blob_bytes
from omnigraph.load.formats.wire import DATA, EDGE_FORM, FROM, NODE_FORM, TO
from omnigraph.names import ID_COLUMN, SOURCE_COLUMN, TARGET_COLUMN
from omnigraph.schema.catalog import EdgeType, NodeType, Scalar, ScalarType
from omnigraph.validation.json_encoding import BLOB_PREFIX
from omnigraph.validation.reasons import Reason
from omnigraph.validation.violations import shown

_FORMS: Final = {NODE_FORM: (NODE_FORM, DATA), EDGE_FORM: (EDGE_FORM, FROM, TO, DATA)}
_ENDS: Final = {SOURCE_COLUMN: FROM, TARGET_COLUMN: TO}
_EXPECTED: Final = "expected one JSON object"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A record of a known type with known columns; its values are not validated yet."""

    place: int
    claimed: str
    raw: bytes
    declared: NodeType | EdgeType
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
        stray = _stray_member(declared, data)
        if stray is not None:
            return _refused(place, line, Reason.UNKNOWN_COLUMN, stray, claimed=claimed)
        row = with_blobs(declared, data)
        if isinstance(declared, EdgeType):
            row |= {column: record.get(name) for column, name in _ENDS.items()}
        return Claim(place=place, claimed=claimed, raw=line, declared=declared, row=row)

    def _declared(self, record: Mapping[str, object], claimed: str) -> NodeType | EdgeType | str:
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
        found = f"both {NODE_FORM} and {EDGE_FORM}" if forms else shown(list(record))
        return f"found {found}, expected either {NODE_FORM} or {EDGE_FORM}"
    members = _FORMS[forms[0]]
    for name in record:
        if name not in members:
            return f"found the member {shown(name)}, expected only {', '.join(members)}"
    if not isinstance(record[forms[0]], str):
        return f"{forms[0]}: found {shown(record[forms[0]])}, expected the name of a type"
    if not isinstance(record.get(DATA, {}), dict):
        return f"{DATA}: found {shown(record[DATA])}, expected an object"
    return None


def _stray_member(declared: NodeType | EdgeType, data: Mapping[str, object]) -> str | None:
    """What to say about the first member of `data` that is no column of the type, if there is one.

    The ends of an edge are columns too, but are outside its data.
    """
    for name in data:
        if name == ID_COLUMN or name in declared.properties:
            continue
        if isinstance(declared, EdgeType) and name in _ENDS:
            return f"there is no column {shown(name)} in {DATA}; {_ENDS[name]} is next to it"
        hint = did_you_mean(name, [ID_COLUMN, *declared.properties])
        return f"there is no column {shown(name)}" + (f"; {hint}" if hint else "")
    return None


def with_blobs(declared: NodeType | EdgeType, data: Mapping[str, object]) -> dict[str, object]:
    """The same members, with bytes in place of texts that encode bytes."""
    row = dict(data)
    for name, value in data.items():
        if not isinstance(value, str) or not value.startswith(BLOB_PREFIX):
            continue
        each = declared.properties.get(name)
        if each is not None and each.type == ScalarType(scalar=Scalar.BLOB):
            found = blob_bytes(value)
            row[name] = value if found is None else found
    return row


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
