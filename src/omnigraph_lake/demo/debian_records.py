"""The indexes of a suite as records of a load: packages, names they provide, relations.

Invariants:
- Every stanza and every item of a relation becomes one record, whether or not it will be accepted:
  the load decides, and its report accounts for all of them.
- Of several versions of a package the newest is loaded. Records of the others are in a file of
  their own, which is loaded last and is rejected as a whole: the package repeats an id, and its
  edges begin at `name=version`, which is no package.
- Names of maintainers are hashed with a key that is not stored, and addresses in texts are removed.
- Ids of edges do not depend on the order of the index, so that suites can be compared by id.
- Memory grows with the number of names, not with the size of the indexes.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import msgspec

from omnigraph_lake.demo.packages_index import (
    Constraint,
    Relation,
    RelationField,
    Stanza,
    compare_versions,
    read_relations,
    read_stanzas,
)

if TYPE_CHECKING:
    from pathlib import Path

OpenIndex: TypeAlias = Callable[[], AbstractContextManager[Iterable[bytes]]]
"""Opens an index for reading its lines."""

EDGE_TYPES: Final[Mapping[RelationField, str]] = {
    RelationField.DEPENDS: "DependsOn",
    RelationField.PRE_DEPENDS: "DependsOn",
    RelationField.RECOMMENDS: "Recommends",
    RelationField.SUGGESTS: "Recommends",
    RelationField.ENHANCES: "Recommends",
    RelationField.CONFLICTS: "ConflictsWith",
    RelationField.BREAKS: "ConflictsWith",
    RelationField.REPLACES: "ConflictsWith",
    RelationField.PROVIDES: "Provides",
}
_PACKAGE: Final = "Package"
_VIRTUAL_PACKAGE: Final = "VirtualPackage"
_ADDRESS: Final = re.compile(r"<?[^\s<>@]+@[^\s<>@]+\.[^\s<>@]+>?")
_SOURCE: Final = re.compile(r"(?P<name>\S+)(?:\s*\((?P<version>[^)]+)\))?")
_HASH_BYTES: Final = 8
_ENCODER: Final = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteRecords:
    """The records of a suite: files to load in this order, and what is in them."""

    files: tuple[Path, ...]
    stanzas: int
    packages: int
    virtual_packages: int
    relations: Mapping[str, int]
    records: int

    @property
    def older_stanzas(self) -> int:
        """Stanzas of versions that are not the newest of their package."""
        return self.stanzas - self.packages


def write_records(
    suite: str, indexes: Iterable[OpenIndex], folder: Path, *, key: bytes
) -> SuiteRecords:
    """Write the records of a suite to a folder; `key` hashes the names of maintainers."""
    opened = tuple(indexes)
    offers = _survey(opened)
    newest, older = folder / f"{suite}.jsonl", folder / f"{suite}-older.jsonl"
    with newest.open("wb") as newest_file, older.open("wb") as older_file:
        writer = _Writer(offers=offers, key=key, newest=newest_file, older=older_file)
        for number, stanza in enumerate(_stanzas(opened)):
            writer.write_stanza(number, stanza)
        writer.write_virtual_packages()
    if not writer.older_records:
        older.unlink()
    return SuiteRecords(
        files=(newest, older) if writer.older_records else (newest,),
        stanzas=writer.stanzas,
        packages=len(offers.newest),
        virtual_packages=len(offers.virtual_names()),
        relations={kind.kind: writer.relations[kind] for kind in RelationField},
        records=writer.newest_records + writer.older_records,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """The newest version of a package: the number of its stanza, and what it provides."""

    version: str
    number: int
    provides: tuple[Relation, ...]


class _Offers:
    """What a suite has: packages, and the names that they provide."""

    def __init__(self) -> None:
        self.newest: dict[str, _Offer] = {}
        self._provided: dict[str, list[str | None]] | None = None

    def add(self, number: int, stanza: Stanza) -> None:
        name, version = _name(stanza), stanza.get("Version", "")
        known = self.newest.get(name)
        if known is not None and compare_versions(version, known.version) <= 0:
            return
        provides = tuple(read_relations(stanza.get(RelationField.PROVIDES, "")))
        self.newest[name] = _Offer(version=version, number=number, provides=provides)

    def virtual_names(self) -> list[str]:
        """Names that are provided and that no package has, sorted."""
        return sorted(self._versions_provided().keys() - self.newest.keys())

    def type_of(self, name: str) -> str:
        """The type of the node that a relation names; a name that the suite lacks is a package."""
        is_virtual = name not in self.newest and name in self._versions_provided()
        return _VIRTUAL_PACKAGE if is_virtual else _PACKAGE

    def satisfies(self, relation: Relation) -> bool:
        """Whether a package of the suite is what a relation asks for, as apt decides it."""
        offer = self.newest.get(relation.name)
        if offer is not None and _accepts(relation.constraint, offer.version):
            return True
        provided = self._versions_provided().get(relation.name, ())
        return any(
            relation.constraint is None
            or (version is not None and relation.constraint.accepts(version))
            for version in provided
        )

    def _versions_provided(self) -> Mapping[str, list[str | None]]:
        if self._provided is None:
            self._provided = {}
            for offer in self.newest.values():
                for relation in offer.provides:
                    version = relation.constraint.version if relation.constraint else None
                    self._provided.setdefault(relation.name, []).append(version)
        return self._provided


def _accepts(constraint: Constraint | None, version: str) -> bool:
    return constraint is None or constraint.accepts(version)


def _survey(indexes: tuple[OpenIndex, ...]) -> _Offers:
    offers = _Offers()
    for number, stanza in enumerate(_stanzas(indexes)):
        offers.add(number, stanza)
    return offers


def _stanzas(indexes: tuple[OpenIndex, ...]) -> Iterator[Stanza]:
    for open_index in indexes:
        with open_index() as lines:
            yield from read_stanzas(lines)


def _name(stanza: Stanza) -> str:
    return stanza.get("Package", "")


class _Key(NamedTuple):
    """The key of a node that several packages share."""

    type_name: str
    property: str
    value: str


@dataclass(slots=True)
class _Writer:
    """Writes the records of stanzas, and counts what it writes."""

    offers: _Offers
    key: bytes
    newest: IO[bytes]
    older: IO[bytes]
    stanzas: int = 0
    newest_records: int = 0
    older_records: int = 0
    relations: Counter[RelationField] = field(default_factory=Counter)
    _known: set[_Key] = field(default_factory=set)

    def write_stanza(self, number: int, stanza: Stanza) -> None:
        self.stanzas += 1
        name = _name(stanza)
        is_newest = self.offers.newest[name].number == number
        source = name if is_newest else f"{name}={stanza.get('Version', '')}"
        relations = {
            kind: tuple(read_relations(stanza[kind])) for kind in RelationField if kind in stanza
        }
        records = [
            _node(_PACKAGE, self._package(stanza, relations)),
            *self._relation_edges(source, relations),
            *self._description_edges(source, stanza, is_newest=is_newest),
        ]
        self._put(records, is_newest=is_newest)

    def write_virtual_packages(self) -> None:
        for name in self.offers.virtual_names():
            self._put([_node(_VIRTUAL_PACKAGE, {"name": name})], is_newest=True)

    def _put(self, records: list[dict[str, Any]], *, is_newest: bool) -> None:
        lines = b"".join(_ENCODER.encode(record) + b"\n" for record in records)
        if is_newest:
            self.newest.write(lines)
            self.newest_records += len(records)
        else:
            self.older.write(lines)
            self.older_records += len(records)

    def _package(
        self, stanza: Stanza, relations: Mapping[RelationField, tuple[Relation, ...]]
    ) -> dict[str, Any]:
        content = {
            "name": _name(stanza),
            "version": stanza.get("Version"),
            "architecture": stanza.get("Architecture"),
            "priority": stanza.get("Priority"),
            "essential": True if stanza.get("Essential") == "yes" else None,
            "installed_kib": _integer(stanza.get("Installed-Size")),
            "download_bytes": _integer(stanza.get("Size")),
            "summary": _without_addresses(stanza.get("Description")),
            "unmet": self._unmet(relations),
        }
        return {name: value for name, value in content.items() if value is not None}

    def _unmet(self, relations: Mapping[RelationField, tuple[Relation, ...]]) -> int:
        """How many groups of alternatives have none that the suite satisfies."""
        groups: dict[tuple[RelationField, int], bool] = {}
        for kind, items in relations.items():
            if not kind.is_required:
                continue
            for relation in items:
                group = kind, relation.group
                groups[group] = groups.get(group, False) or self.offers.satisfies(relation)
        return sum(not is_met for is_met in groups.values())

    def _relation_edges(
        self, source: str, relations: Mapping[RelationField, tuple[Relation, ...]]
    ) -> Iterator[dict[str, Any]]:
        for field_name, items in relations.items():
            self.relations[field_name] += len(items)
            kind, edge_type = field_name.kind, EDGE_TYPES[field_name]
            repeated: Counter[str] = Counter()
            for relation in items:
                repeated[relation.name] += 1
                count = repeated[relation.name]
                edge_id = f"{source} {kind} {relation.name}" + f" {count}" * (count > 1)
                yield _edge(
                    edge_type,
                    source,
                    {"type": self.offers.type_of(relation.name), "id": relation.name},
                    id=edge_id,
                    kind=kind,
                    constraint=str(relation.constraint) if relation.constraint else None,
                    group=relation.group,
                    position=relation.position,
                    qualifier=relation.qualifier,
                    architectures=relation.architectures,
                )

    def _description_edges(
        self, source: str, stanza: Stanza, *, is_newest: bool
    ) -> Iterator[dict[str, Any]]:
        """The edges to source, section and maintainer, and these nodes where they are new."""
        built_from = _SOURCE.match(stanza.get("Source", ""))
        name = built_from["name"] if built_from else _name(stanza)
        version = built_from["version"] if built_from else None
        ends = [("BuiltFrom", _Key("Source", "name", name), version)]
        if section := stanza.get("Section"):
            ends.append(("InSection", _Key("Section", "name", section), None))
        if maintainer := stanza.get("Maintainer"):
            hashed = hash_name(maintainer, self.key)
            ends.append(("MaintainedBy", _Key("Maintainer", "hash", hashed), None))
        for edge_type, key, edge_version in ends:
            if is_newest and key not in self._known:
                self._known.add(key)
                yield _node(key.type_name, {key.property: key.value})
            yield _edge(edge_type, source, key.value, id=source, version=edge_version)


def hash_name(name: str, key: bytes) -> str:
    """A name as a hash that cannot be computed without the key."""
    return hashlib.blake2b(name.encode(), key=key, digest_size=_HASH_BYTES).hexdigest()


def _node(type_name: str, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": type_name, "data": content}


def _edge(
    type_name: str, source: str, target: str | Mapping[str, str], **content: object
) -> dict[str, Any]:
    """An edge to a node by its id, or by its type and its id if the edge may end at several."""
    known = {name: value for name, value in content.items() if value is not None}
    return {"edge": type_name, "from": source, "to": target, "data": known}


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _without_addresses(text: str | None) -> str | None:
    return None if text is None else _ADDRESS.sub("(address)", text)
