"""How two changes of a schema conflict, in codes and words."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from omnigraph_lake.merge.facets import Facet, FacetKey, Facets
from omnigraph_lake.schema import catalog as ct
from omnigraph_lake.schema.show import show_bounds, show_cardinality, show_type


class SchemaConflictKind(enum.StrEnum):
    """Why two changes of a schema do not go together. Codes are added, never changed."""

    RENAMED_DIFFERENTLY = "SM-101"
    NAME_TAKEN = "SM-102"
    DROPPED_AND_CHANGED = "SM-103"
    NOTE_CHANGED_DIFFERENTLY = "SM-104"
    NO_COMMON_TYPE = "SM-105"
    ENUM_CHANGED_DIFFERENTLY = "SM-106"
    MEMBER_DROPPED = "SM-107"
    FILLED_DIFFERENTLY = "SM-108"
    EMBEDDED_DIFFERENTLY = "SM-109"
    NOT_A_SCHEMA = "SM-110"
    ADDED_DIFFERENTLY = "SM-111"
    CONSTRAINT_CHANGED_DIFFERENTLY = "SM-112"
    END_DROPPED = "SM-114"
    NUMBERS_TAKEN = "SM-115"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaConflict:
    """Two changes of one element; `element` is `Person` or `Person.age`, as the base names it."""

    kind: SchemaConflictKind
    element: str
    message: str
    is_decided_by_a_side: bool = False
    """Whether one of the two changes can be taken as it is: neither converts a value."""


CONSTRAINT_WORDS: Final = {
    Facet.KEY: "`@key`",
    Facet.UNIQUE: "`@unique`",
    Facet.INDEX: "`@index`",
    Facet.RANGE: "`@range`",
    Facet.CHECK: "`@check`",
}


def disagreement(
    key: FacetKey, path: str, old: Any, ours: Any, theirs: Any
) -> tuple[SchemaConflictKind, str]:
    """The conflict of two changes of a facet that do not go together."""
    one, other = _facet_words(key, ours), _facet_words(key, theirs)
    becomes = f"becomes {one} in ours and {other} in theirs"
    match key[0]:
        case Facet.NAME:
            kind = SchemaConflictKind.RENAMED_DIFFERENTLY
            message = f"ours renames {path} to {ours}, theirs to {theirs}"
        case Facet.TYPE if _has_enum(old, ours, theirs):
            kind = SchemaConflictKind.ENUM_CHANGED_DIFFERENTLY
            message = f"{path} {becomes}"
        case Facet.TYPE:
            kind = SchemaConflictKind.NO_COMMON_TYPE
            message = f"{path} {becomes}; no type holds the values of both"
        case Facet.NOTE | Facet.ANNOTATION:
            kind = SchemaConflictKind.NOTE_CHANGED_DIFFERENTLY
            message = f"the {key[1]} of {path} {becomes}"
        case Facet.EMBED:
            kind = SchemaConflictKind.EMBEDDED_DIFFERENTLY
            message = f"the `@embed` of {path} is changed differently by ours and theirs"
        case Facet.OTHER:
            kind = SchemaConflictKind.FILLED_DIFFERENTLY
            message = f"the {key[1]} of {path} {becomes}"
        case _:
            kind = SchemaConflictKind.CONSTRAINT_CHANGED_DIFFERENTLY
            message = f"{_subject_words(key, path)} {becomes}"
    return kind, message


def _has_enum(*types: object) -> bool:
    return any(isinstance(one, ct.EnumType) for one in types)


def _facet_words(key: FacetKey, value: Any) -> str:
    """The value of a facet, as a message names it."""
    match key[0]:
        case _ if value is None:
            words = "none"
        case Facet.TYPE:
            words = show_type(value)
        case Facet.CARDINALITY:
            words = show_cardinality(value)
        case Facet.RANGE:
            low, high = value.meaning
            words = show_bounds(ct.Range(property="", low=low, high=high, spelling=value.spelling))
        case Facet.NULLABLE:
            words = "null allowed" if value else "null not allowed"
        case Facet.INDEX:
            words = "an index" if value.meaning is None else str(value.meaning)
        case Facet.KEY | Facet.UNIQUE | Facet.CHECK:
            words = f"another {CONSTRAINT_WORDS[key[0]]}"
        case Facet.ENDS:
            words = "other ends"
        case Facet.ANNOTATION:
            words = f"@{value.name}" if value.value is None else repr(value.value)
        case _:
            words = repr(value)
    return words


def addition_words(key: FacetKey, facets: Facets) -> str:
    if key[0] in (Facet.TYPE, Facet.NULLABLE):
        question = "?" if facets[Facet.NULLABLE, None] else ""
        return f"as {show_type(facets[Facet.TYPE, None])}{question}"
    return f"with {_facet_words(key, facets.get(key))}"


def _subject_words(key: FacetKey, path: str) -> str:
    word = CONSTRAINT_WORDS.get(key[0], key[0].name.lower())
    return f"{word} of {path}"


def change_words(path: str, key: FacetKey, old: Any, new: Any) -> str:
    match key[0]:
        case Facet.NAME:
            return f"renames {path} to {new}"
        case Facet.TYPE:
            return f"changes the type of {path} from {show_type(old)} to {show_type(new)}"
        case Facet.NULLABLE:
            return f"makes {path} {'nullable' if new else 'required'}"
        case _:
            verb = "adds" if old is None else "removes" if new is None else "changes"
            return f"{verb} {_subject_words(key, path)}"


def describe_inheritance(merged: ct.Catalog, compiled: ct.Catalog) -> str:
    """What nodes inherit from interfaces of one side, and lack on the other."""
    differing = [
        f"{name}.{prop.name}"
        for name, node in compiled.nodes.items()
        for prop in node.properties.values()
        if prop.name not in merged.nodes[name].properties
        or merged.nodes[name].properties[prop.name].type != prop.type
        or merged.nodes[name].properties[prop.name].nullable != prop.nullable
    ]
    return f"interfaces of one side change what types of the other inherit: {', '.join(differing)}"
