"""The result of an inference: types with the reason of every decision, as commented schema text.

Invariants:
- The text of a draft is a valid schema; what came from an input is in comments only where no
  character of it can end or break a comment.
- Every value of the profiled records fits the type that is chosen for its property.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow.types as pat

from omnigraph_lake.importer import naming
from omnigraph_lake.importer.profile import ColumnProfile
from omnigraph_lake.importer.readings import TEXT
from omnigraph_lake.language.diagnostics import REFUSED_CHARACTER
from omnigraph_lake.load.formats.mapping import SourceMapping, ValueMapping
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.show import show_type

_BREAKS: Final = re.compile(r"[\r\n\u2028\u2029]")
_COMMENT_MAX: Final = 160
_ENUM_VALUES_MAX: Final = 16
_ENUM_RECORDS_MIN: Final = 12
_ENUM_REPEATS_MIN: Final = 4
_ENUM_VALUE: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_VECTOR_MIN: Final = 8
_VECTOR_MAX: Final = 65_536
_SEPARATORS: Final = ("|", ";")
_LIST_SHARE_MIN: Final = 0.3
_ITEM_MAX: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyDraft:
    """A property, where its value comes from, and why it is as it is."""

    name: str
    type: str
    nullable: bool
    value: ValueMapping
    why: str = ""


@dataclass(slots=True, kw_only=True)
class NodeDraft:
    """A node type; `key` names its properties."""

    name: str
    properties: list[PropertyDraft] = field(default_factory=list)
    key: tuple[str, ...] = ()
    why: str = ""


@dataclass(slots=True, kw_only=True)
class EdgeDraft:
    """An edge type; `single` if a source has one edge at most."""

    name: str
    source: str
    target: str
    properties: list[PropertyDraft] = field(default_factory=list)
    single: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A schema and the mapping of every source to it."""

    nodes: tuple[NodeDraft, ...]
    edges: tuple[EdgeDraft, ...]
    mappings: tuple[SourceMapping, ...]
    notes: tuple[str, ...] = ()

    def schema_text(self) -> str:
        """The schema in the schema language, with a comment for every decision."""
        lines = [f"// {comment(note)}" for note in self.notes]
        for node in self.nodes:
            lines += ["", *_node_lines(node)]
        for edge in self.edges:
            lines += ["", *_edge_lines(edge)]
        return "\n".join(lines).lstrip("\n") + "\n"


def merge_properties(
    known: Sequence[PropertyDraft], others: Sequence[PropertyDraft]
) -> list[PropertyDraft]:
    """The properties of a type that two sources have: what one of them lacks is nullable."""
    by_name = {prop.name: prop for prop in others}
    merged = [
        replace(
            prop,
            type=_common_type(prop.type, by_name[prop.name].type),
            nullable=prop.nullable or by_name[prop.name].nullable,
        )
        if prop.name in by_name
        else replace(prop, nullable=True)
        for prop in known
    ]
    names = {prop.name for prop in known}
    return merged + [replace(prop, nullable=True) for prop in others if prop.name not in names]


def _common_type(one: str, other: str) -> str:
    if one == other:
        return one
    return "F64" if {one, other} == {"I64", "F64"} else "String"


def comment(text: str) -> str:
    """A text as part of a line comment."""
    clean = REFUSED_CHARACTER.sub("?", _BREAKS.sub(" ", text))
    return clean if len(clean) <= _COMMENT_MAX else f"{clean[: _COMMENT_MAX - 3]}..."


def _node_lines(node: NodeDraft) -> list[str]:
    single = node.key[0] if len(node.key) == 1 else None
    body = _property_lines(node.properties, key=single)
    if len(node.key) > 1:
        body += ["", f"    @key({', '.join(node.key)})"]
    opening = [f"// {comment(node.why)}"] if node.why else []
    return [*opening, f"node {node.name} {{", *body, "}"]


def _edge_lines(edge: EdgeDraft) -> list[str]:
    head = f"edge {edge.name}: {edge.source} -> {edge.target}"
    if edge.single:
        head += " @card(0..1)"
    opening = [f"// {comment(edge.why)}"] if edge.why else []
    if not edge.properties:
        return [*opening, head]
    return [*opening, f"{head} {{", *_property_lines(edge.properties, key=None), "}"]


def _property_lines(properties: list[PropertyDraft], *, key: str | None) -> list[str]:
    declared = [
        f"    {prop.name}: {prop.type}{'?' if prop.nullable else ''}"
        + (" @key" if prop.name == key else "")
        for prop in properties
    ]
    width = min(max(map(len, declared), default=0), 60)
    return [
        f"{line.ljust(width)}  // {comment(prop.why)}".rstrip() if prop.why else line
        for line, prop in zip(declared, properties, strict=True)
    ]


def property_type(  # noqa: PLR0911 - one per kind
    profile: ColumnProfile, *, enums: bool = True
) -> tuple[str, ValueMapping, str]:
    """The type without `?`, where the value comes from, and why."""
    plain = ValueMapping(column=profile.path)
    if profile.is_mixed:
        return "String", plain, "nested in some records only, kept as JSON"
    if profile.is_list:
        return _list_type(profile, plain)
    decimals = profile.decimals()
    if decimals is not None:
        why = "" if profile.digits is None else "as many digits as the numbers need, and room"
        return show_type(decimals), plain, why
    if profile.arrow_type is not None:
        return _arrow_type(profile, plain)
    if not profile.has_values:
        return "String", plain, "no record has a value"
    if enums and is_enum(profile):
        assert profile.values is not None
        values = sorted(value for value in profile.values if value)
        return f"enum({', '.join(values)})", _nullable(plain, profile), _enum_why(profile, values)
    return _text_type(profile, plain)


def _text_type(profile: ColumnProfile, plain: ValueMapping) -> tuple[str, ValueMapping, str]:
    reading, why = profile.reading()
    value = _nullable(replace(reading.value, column=profile.path), profile)
    if reading is TEXT:
        separator = _separator(profile)
        if separator is not None:
            split = replace(plain, split=separator)
            return "[String]", split, f"texts are split at {separator!r}"
        return "String", value, why
    if reading.scalar is ct.Scalar.F64 and _is_whole(profile):
        return "I64", value, f"read as {reading.name}"
    return reading.scalar.value, value, "" if reading.value.is_plain else f"read as {reading.name}"


def is_enum(profile: ColumnProfile) -> bool:
    """Whether few values, which could be written in a schema, are repeated often."""
    if profile.arrow_type is not None or profile.values is None or profile.is_list:
        return False
    if profile.reading()[0] is not TEXT:
        return False
    values = [value for value in profile.values if value]
    filled = profile.records - profile.nulls - profile.empties
    return (
        2 <= len(values) <= _ENUM_VALUES_MAX
        and filled >= _ENUM_RECORDS_MIN
        and filled >= _ENUM_REPEATS_MIN * len(values)
        and all(_ENUM_VALUE.fullmatch(value) for value in values)
        and all(re.search("[A-Za-z]", value) for value in values)
    )


def _enum_why(profile: ColumnProfile, values: list[str]) -> str:
    return f"{len(values)} values in {profile.records:,} records"


def _nullable(value: ValueMapping, profile: ColumnProfile) -> ValueMapping:
    is_enum_with_empties = bool(profile.empties) and is_enum(profile)
    if profile.empty_is_null or is_enum_with_empties:
        return replace(value, null=("",))
    return value


def _is_whole(profile: ColumnProfile) -> bool:
    """Whether numbers with separators have no decimals."""
    reading, _ = profile.reading()
    decimal = reading.value.decimal
    if decimal is None or not profile.sample or profile.values is None:
        return False
    return all(decimal not in text for text in profile.values)


def _list_type(profile: ColumnProfile, plain: ValueMapping) -> tuple[str, ValueMapping, str]:
    if profile.arrow_type is not None:
        item = ColumnProfile(path=profile.path, arrow_type=profile.arrow_type.value_type).scalar()
        is_float = item in ct.FLOATS
    else:
        kinds = profile.item_kinds - {"NoneType"}
        is_float = "float" in kinds and kinds <= {"float", "int"}
        item = _item_scalar(kinds)
    if is_float and len(profile.lengths) == 1:
        (length,) = profile.lengths
        if _VECTOR_MIN <= length <= _VECTOR_MAX:
            return f"Vector({length})", plain, f"all lists have {length} numbers"
    if item is None:
        return "String", plain, "lists of mixed values, kept as JSON"
    return f"[{item.value}]", plain, ""


def _item_scalar(kinds: set[str]) -> ct.Scalar | None:
    if kinds <= {"str"}:
        return ct.Scalar.STRING
    if kinds == {"int"}:
        return ct.Scalar.I64
    if kinds == {"bool"}:
        return ct.Scalar.BOOL
    return ct.Scalar.F64 if kinds <= {"int", "float"} else None


def _arrow_type(profile: ColumnProfile, plain: ValueMapping) -> tuple[str, ValueMapping, str]:
    assert profile.arrow_type is not None
    scalar = profile.scalar()
    if scalar is not None:
        return scalar.value, plain, ""
    if pat.is_binary(profile.arrow_type) or pat.is_large_binary(profile.arrow_type):
        return "Blob", plain, ""
    return "String", plain, f"values of type {profile.arrow_type}, kept as text"


def _separator(profile: ColumnProfile) -> str | None:
    """The separator of lists in texts, in a column whose name is a plural."""
    words = naming.words(profile.path)
    if not words or naming.singular(words[-1]) == words[-1] or not profile.sample:
        return None
    for separator in _SEPARATORS:
        split = [text.split(separator) for text in profile.sample if separator in text]
        if len(split) >= _LIST_SHARE_MIN * len(profile.sample) and all(
            len(item) <= _ITEM_MAX for items in split for item in items
        ):
            return separator
    return None
