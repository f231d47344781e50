"""The `Packages` indexes of Debian: stanzas, relations between packages, and versions.

Invariants:
- An index is read line by line; at no time is more than one stanza of it in memory.
- Every item of a field of relations is one `Relation`: an item that cannot be parsed is one whose
  name is its whole text, so that no item is lost.
- Versions are ordered as dpkg orders them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeAlias, assert_never

Stanza: TypeAlias = Mapping[str, str]
"""The fields of one package by name; lines of a folded field are joined by spaces."""
VersionKey: TypeAlias = tuple[
    int, tuple[tuple[int, ...] | int, ...], tuple[tuple[int, ...] | int, ...]
]


class RelationField(StrEnum):
    """The fields that relate a package to others."""

    DEPENDS = "Depends"
    PRE_DEPENDS = "Pre-Depends"
    RECOMMENDS = "Recommends"
    SUGGESTS = "Suggests"
    ENHANCES = "Enhances"
    CONFLICTS = "Conflicts"
    BREAKS = "Breaks"
    REPLACES = "Replaces"
    PROVIDES = "Provides"

    @property
    def kind(self) -> str:
        """The value of `kind` in the graph."""
        return self.value.lower()

    @property
    def is_required(self) -> bool:
        """Whether a package cannot be installed unless the relation is satisfied."""
        return self in {RelationField.DEPENDS, RelationField.PRE_DEPENDS}


class Operator(StrEnum):
    """How a constraint compares the version of a package with its own."""

    EARLIER = "<<"
    EARLIER_OR_EQUAL = "<="
    EQUAL = "="
    LATER_OR_EQUAL = ">="
    LATER = ">>"


_OBSOLETE: Final = {"<": Operator.EARLIER_OR_EQUAL, ">": Operator.LATER_OR_EQUAL}
"""Operators of old packages, with the meaning that dpkg gives them."""
_FIELDS: Final = {
    name.encode(): str(name)
    for name in (
        *RelationField,
        *("Package", "Version", "Architecture", "Source", "Section", "Maintainer", "Description"),
        *("Priority", "Essential", "Installed-Size", "Size"),
    )
}
_RELATION: Final = re.compile(
    r"""
    (?P<name> [A-Za-z0-9] [A-Za-z0-9+.-]* )
    (?: : (?P<qualifier> [a-z0-9-]+ ) )?
    \s* (?:
        \( \s* (?P<operator> <<|<=|=|>=|>>|<|> ) \s* (?P<version> [A-Za-z0-9] [^\s()]* ) \s* \)
    )?
    \s* (?: \[ \s* (?P<architectures> [^\[\]]+? ) \s* \] )?
    \s* (?: < [^<>]* > \s* )*
    """,
    re.VERBOSE | re.ASCII,
)
_PARTS: Final = re.compile(r"([^0-9]*)([0-9]*)")
_REVISION: Final = "-"
_BEFORE_THE_END: Final = "~"


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """The versions that a relation accepts."""

    operator: Operator
    version: str

    def accepts(self, version: str) -> bool:
        difference = compare_versions(version, self.version)
        match self.operator:
            case Operator.EARLIER:
                return difference < 0
            case Operator.EARLIER_OR_EQUAL:
                return difference <= 0
            case Operator.EQUAL:
                return difference == 0
            case Operator.LATER_OR_EQUAL:
                return difference >= 0
            case Operator.LATER:
                return difference > 0
            case _:
                assert_never(self.operator)

    def __str__(self) -> str:
        return f"{self.operator.value} {self.version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One item of a field; `group` and `position` count from 1.

    Items of one group are alternatives: `a | b`.
    """

    name: str
    group: int
    position: int
    constraint: Constraint | None = None
    qualifier: str | None = None
    architectures: str | None = None


def read_stanzas(lines: Iterable[bytes]) -> Iterator[Stanza]:
    """The stanzas of an index, with the fields that the graph is made of."""
    fields: dict[str, str] = {}
    name: str | None = None
    for line in lines:
        if line.isspace():
            if fields:
                yield fields
            fields, name = {}, None
        elif line.startswith((b" ", b"\t")):
            if name is not None:
                fields[name] = f"{fields[name]} {_decode(line)}".lstrip()
        else:
            head, _, content = line.partition(b":")
            name = _FIELDS.get(head)
            if name is not None:
                fields[name] = _decode(content)
    if fields:
        yield fields


def _decode(content: bytes) -> str:
    return content.strip().decode("utf-8", "replace")


def read_relations(field: str) -> Iterator[Relation]:
    """The items of a field of relations."""
    groups = [group for group in field.split(",") if not _is_blank(group)]
    for number, group in enumerate(groups, start=1):
        items = [item.strip() for item in group.split("|") if item.strip()]
        for position, item in enumerate(items, start=1):
            yield _relation(item, number, position)


def _is_blank(group: str) -> bool:
    return not group.replace("|", "").strip()


def _relation(item: str, group: int, position: int) -> Relation:
    parts = _RELATION.fullmatch(item)
    if parts is None:
        return Relation(name=item, group=group, position=position)
    constraint = None
    if parts["operator"]:
        operator = _OBSOLETE.get(parts["operator"]) or Operator(parts["operator"])
        constraint = Constraint(operator=operator, version=parts["version"])
    return Relation(
        name=parts["name"],
        group=group,
        position=position,
        constraint=constraint,
        qualifier=parts["qualifier"],
        architectures=parts["architectures"],
    )


def compare_versions(left: str, right: str) -> int:
    """Below, equal to or above zero, as the left version is earlier than, equal to or later."""
    left_key, right_key = version_key(left), version_key(right)
    return (left_key > right_key) - (left_key < right_key)


@lru_cache(maxsize=1 << 17)
def version_key(version: str) -> VersionKey:
    """A value that orders versions: epoch, upstream version, revision of Debian."""
    epoch, colon, rest = version.partition(":")
    if not (colon and epoch.isdecimal()):
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition(_REVISION)
    if not dash:
        upstream, revision = rest, ""
    return int(epoch), _part_key(upstream), _part_key(revision)


def _part_key(text: str) -> tuple[tuple[int, ...] | int, ...]:
    """Texts and numbers in turns. The text after the end is above `~` and below all others."""
    key: list[tuple[int, ...] | int] = []
    for letters, digits in _PARTS.findall(text) if text else [("", "")]:
        if letters or digits or not key:
            key += [(*map(_weight, letters), 0), int(digits or 0)]
    return (*key, (0,))


def _weight(letter: str) -> int:
    if letter == _BEFORE_THE_END:
        return -1
    return ord(letter) if letter.isalpha() else ord(letter) + 256
