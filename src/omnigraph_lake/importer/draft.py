"""The result of an inference: types with the reason of every decision, as commented schema text.

Invariants:
- The text of a draft is a valid schema; what came from an input is in comments only where no
  character of it can end or break a comment.
- Every value of the profiled records fits the type that is chosen for its property.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.types as pat

from omnigraph_lake.display.cells import counted
from omnigraph_lake.importer import naming
from omnigraph_lake.importer.column_profile import NEAR_SHARE_MIN, ColumnProfile
from omnigraph_lake.importer.readings import PERCENT, READINGS, TEXT, amounts, find_units
from omnigraph_lake.language.diagnostics import REFUSED_CHARACTER
from omnigraph_lake.load.formats.mapping import Parse, SourceMapping, ValueMapping
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.show import show_type

if TYPE_CHECKING:
    from omnigraph_lake.importer.explanation import ExplainedType

_BREAKS: Final = re.compile(r"[\r\n\u2028\u2029]")
_COMMENT_MAX: Final = 160
_VECTOR_MIN: Final = 8
_VECTOR_MAX: Final = 65_536
_PLURALS: Final = {
    ct.Scalar.BOOL: "Booleans",
    ct.Scalar.I64: "integers",
    ct.Scalar.F64: "numbers",
    ct.Scalar.DATE: "dates",
    ct.Scalar.DATETIME: "times",
}
_NUMBERS: Final = frozenset({ct.Scalar.I64.value, ct.Scalar.F64.value})
_SEPARATORS: Final = ("|", ";")
_LIST_SHARE_MIN: Final = 0.3
_ITEM_MAX: Final = 60
_BINARIES: Final = (pat.is_binary, pat.is_large_binary, pat.is_fixed_size_binary)


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
class Hint:
    """What a column of a source could be instead, and the option that makes it so."""

    source: str
    column: str
    text: str
    option: str

    def __str__(self) -> str:
        subject = f"{self.source}.{self.column}" if self.column else self.source
        return f"hint: {subject}: {self.text}\n  to change it: {self.option}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A schema and the mapping of every source to it."""

    nodes: tuple[NodeDraft, ...]
    edges: tuple[EdgeDraft, ...]
    mappings: tuple[SourceMapping, ...]
    notes: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    explanation: tuple[ExplainedType, ...] = ()

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


def property_type(profile: ColumnProfile, *, enums: bool = True) -> tuple[str, ValueMapping, str]:
    """The type without `?`, where the value comes from, and why."""
    kind, value, why = _type_of_values(profile, enums=enums)
    if profile.unit == PERCENT and kind in _NUMBERS:
        why = "the sheet shows percent: 0.125 as 12.5 %"
    elif profile.unit and kind in _NUMBERS:
        why = f"in {profile.unit}"
    return kind, value, why


def _type_of_values(  # noqa: PLR0911 - one per kind
    profile: ColumnProfile, *, enums: bool
) -> tuple[str, ValueMapping, str]:
    plain = ValueMapping(column=profile.path)
    if profile.is_mixed:
        return "String", plain, "nested in different ways, kept as JSON"
    if profile.is_list:
        return _list_type(profile, plain)
    decimals = profile.decimals()
    if decimals is not None:
        why = "" if profile.digits is None else "as many digits as the numbers need, and room"
        return show_type(decimals), plain, why
    if profile.arrow_type is not None:
        return _arrow_type(profile, plain)
    if not profile.has_values:
        return "String", _nullable(plain, profile), "no record has a value"
    if enums and profile.is_enum:
        assert profile.values is not None
        values = sorted(value for value in profile.values if value)
        why = f"{len(values)} values in {profile.records:,} records"
        return f"enum({', '.join(values)})", _nullable(plain, profile), why
    return _text_type(profile)


def choose_given_type(profile: ColumnProfile, scalar: ct.Scalar) -> tuple[str, ValueMapping, str]:
    """The type that is asked for, read as most values are written."""
    plain = ValueMapping(column=profile.path)
    if scalar in {ct.Scalar.I64, ct.Scalar.F64}:
        plain = replace(plain, parse=Parse.NUMBER)  # leading zeros, too: they are asked for
    units = find_units(profile.sample).most_common(1)
    known = (*amounts(units[0][0]), *READINGS) if units else READINGS
    readings = [reading for reading in known if reading.scalar is scalar]
    texts = [text for text in profile.sample if not units or find_units([text]) == {units[0][0]: 1}]
    sample = pa.array(texts, pa.string())
    fitting = [reading.value for reading in readings if len(sample) and reading.fits(sample)]
    if profile.near is not None and profile.near.reading in readings:
        fitting = [profile.near.reading.value]
    value = _nullable(replace(next(iter(fitting), plain), column=profile.path), profile)
    return scalar.value, value, "; ".join(filter(None, ("type: given", _near_why(profile))))


def _text_type(profile: ColumnProfile) -> tuple[str, ValueMapping, str]:
    reading, why = profile.reading()
    value = _nullable(replace(reading.value, column=profile.path), profile)
    if reading is TEXT:
        separator = _separator(profile)
        if separator is not None:
            split = replace(value, split=separator)
            return "[String]", split, f"texts are split at {separator!r}"
        return "String", value, why or _near_why(profile) or _units_why(profile)
    if reading.value.is_plain:
        return reading.scalar.value, value, ""
    unit = {None: "", PERCENT: "in percent, "}.get(value.unit, f"in {value.unit}, ")
    return reading.scalar.value, value, f"{unit}read as {reading.name}"


def _near_why(profile: ColumnProfile) -> str:
    """How many texts of a column have another reading, or an empty text if they are too few."""
    near = profile.near
    if near is None or near.share < NEAR_SHARE_MIN:
        return ""
    form = "" if near.reading.value.is_plain else f" as {near.reading.name}"
    return (
        f"{near.fits:,} of {near.fits + near.misfits:,} are {_PLURALS[near.reading.scalar]}{form}, "
        f"the first other is '{near.odd[0]}' (record {near.record:,})"
    )


def _units_why(profile: ColumnProfile) -> str:
    """How many of the first texts of a column are amounts in which unit, if that are several."""
    units = find_units(profile.sample)
    if len(units) < 2 or units.total() < NEAR_SHARE_MIN * len(profile.sample):
        return ""
    counts = ", ".join(f"{unit} in {count:,}" for unit, count in units.most_common())
    return f"amounts in several units: {counts} of the first {len(profile.sample):,}"


def hints_of(profile: ColumnProfile, source: str, owner: str) -> Iterator[Hint]:
    """What the texts of a column of a type could be instead."""
    if profile.arrow_type is not None or not profile.has_values:
        return
    if profile.reading()[0] is not TEXT:
        return
    text, near = _near_why(profile), profile.near
    if text and near is not None:
        # An odd text without a digit is a word; with one, or as `inf`, it is a value.
        is_word = len(near.odd) == 1 and re.fullmatch(
            r"(?i)(?!.*\binf)[^\d,\x00-\x1f]+", near.odd[0]
        )
        option = f"--type {owner}.{profile.path}={near.reading.scalar.value}"
        option = _null_option(near.odd) if is_word else option
    elif _units_why(profile):
        text, option = _units_why(profile), f"--type {owner}.{profile.path}={ct.Scalar.F64.value}"
    elif profile.null_words:
        counts = [f"'{word}' in {count:,}" for word, count in sorted(profile.null_words.items())]
        are = "is a value" if len(counts) == 1 else "are values"
        text = f"{' and '.join(counts)} of {counted(profile.records, 'record')} {are}"
        option = _null_option(sorted(profile.null_words))
    else:
        return
    yield Hint(source=source, column=profile.path, text=comment(text), option=option)


def _null_option(words: Sequence[str]) -> str:
    return f"--null={shlex.quote(','.join(words))}"


def _nullable(value: ValueMapping, profile: ColumnProfile) -> ValueMapping:
    empty = ("",) if profile.empty_is_null else ()
    return replace(value, null=(*profile.declared_nulls, *profile.null_texts, *empty))


def _list_type(profile: ColumnProfile, plain: ValueMapping) -> tuple[str, ValueMapping, str]:
    if profile.arrow_type is not None:
        item = ColumnProfile(path=profile.path, arrow_type=profile.arrow_type.value_type).scalar()
        is_float = item in ct.FLOATS
    else:
        kinds = profile.item_kinds - {"NoneType"}
        is_float = "float" in kinds and kinds <= {"float", "int"}
        item = _item_scalar(kinds)
    is_narrow = profile.item_kinds.isdisjoint({"NoneType", "large float"})
    if is_float and is_narrow and len(profile.lengths) == 1:
        (length,) = profile.lengths
        if _VECTOR_MIN <= length <= _VECTOR_MAX:
            return f"Vector({length})", plain, f"all lists have {length} numbers"
    if item is None:
        return "String", plain, "lists of mixed values, kept as JSON"
    return f"[{item.value}]", plain, ""


def _item_scalar(kinds: set[str]) -> ct.Scalar | None:
    if kinds <= {"str"}:
        return ct.Scalar.STRING
    if kinds <= {"int", "large int"}:
        return ct.Scalar.I64
    if kinds == {"bool"}:
        return ct.Scalar.BOOL
    return ct.Scalar.F64 if kinds <= {"int", "float", "large float"} else None


def _arrow_type(profile: ColumnProfile, plain: ValueMapping) -> tuple[str, ValueMapping, str]:
    assert profile.arrow_type is not None
    scalar = profile.scalar()
    if scalar is not None:
        return scalar.value, plain, ""
    if any(is_kind(profile.arrow_type) for is_kind in _BINARIES):
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
