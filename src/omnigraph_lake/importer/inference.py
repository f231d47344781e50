"""Infer a schema and a mapping from the profiles of sources.

    tables       a source is one table, or one per type of its records, list or nested object
    keys         declared ones, or columns that are unique, never null, and named or placed like one
    references   columns whose values are keys of another table, and that are named after it, or
                 cannot be meant otherwise
    roles        a table of two references is an edge type, as is one with a source and a target

Invariants:
- A decision follows from every record that was read, and its reason is written beside it.
- What is ambiguous is left as a plain property, and the reason says so.
- Every column is mapped, is part of a reference, or is listed as ignored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from omnigraph_lake.display.cells import counted
from omnigraph_lake.importer import naming
from omnigraph_lake.importer.draft import (
    Draft,
    EdgeDraft,
    NodeDraft,
    PropertyDraft,
    is_enum,
    property_type,
)
from omnigraph_lake.importer.profile import ColumnProfile, SourceProfile
from omnigraph_lake.load.formats.mapping import (
    Condition,
    EdgeMapping,
    Endpoint,
    NodeMapping,
    SourceMapping,
    UnknownColumns,
    ValueMapping,
)
from omnigraph_lake.load.formats.raw_batches import POSITION, WHOLE
from omnigraph_lake.load.formats.table_files import DeclaredTable
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema import catalog as ct

KEPT: Final = "extra"
"""The property that keeps values of unknown columns."""
_KEY_SCALARS: Final = frozenset({ct.Scalar.STRING, *ct.INTEGERS})
_ENDS: Final = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("start", "end"),
    ("head", "tail"),
    ("subject", "object"),
    ("follower", "followee"),
)
_KEY_NAMES: Final = (
    ("id", "_id", "uuid", "guid", "identifier"),
    ("key", "code", "slug", "sku", "isbn", "email", "iri", "uri"),
    ("name", "username", "login", "handle"),
)
_SELF_WORDS: Final = frozenset(
    {"parent", "manager", "boss", "supervisor", "reports_to", "mentor", "predecessor", "reply_to"}
)
_JOIN_COLUMNS_MAX: Final = 8
_COMPOSITE_TRIED: Final = 6
_SAME_COLUMNS: Final = 0.7
_MISSING_SHARE_MAX: Final = 0.5
_NODE: Final = "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A source with its profile, and what its database declares about it."""

    name: str
    profile: SourceProfile
    declared: DeclaredTable | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceOptions:
    """What the caller decides about inferred mappings."""

    unknown: UnknownColumns = UnknownColumns.ERROR
    create_endpoints: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reference:
    """Columns of a table that name a row of another one."""

    columns: tuple[str, ...]
    target: _Table
    why: str
    is_list: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class _Table:
    """Records of one type: of a source, of a list in its records, or of a nested object."""

    name: str
    source: str
    profile: SourceProfile
    columns: dict[str, ColumnProfile]
    where: tuple[Condition, ...] = ()
    each: str | None = None
    path: str | None = None
    """Of the nested object or the list."""
    parent: _Table | None = None
    declared: DeclaredTable | None = None
    type: str = ""
    key: tuple[str, ...] = ()
    key_why: str = ""
    ends: tuple[str, str] | None = None
    is_join: bool = False
    references: list[_Reference] = field(default_factory=list)
    key_properties: dict[str, str] = field(default_factory=dict)
    """The properties of the key by path."""

    @property
    def is_edge(self) -> bool:
        return self.ends is not None or self.is_join

    @property
    def is_object(self) -> bool:
        return self.path is not None and self.each is None

    @property
    def digest(self) -> str:
        """The path of an id for records without a key."""
        return WHOLE if self.each is None else f"{self.each}.{WHOLE}"

    def local(self, path: str) -> str:
        """A path without that of the object or the list."""
        return path.removeprefix(f"{self.path}.") if self.path else path

    def is_unique(self, *paths: str) -> bool:
        distinct = self.profile.distinct(*paths)
        if distinct is None or not all(self.columns[path].can_identify for path in paths):
            return False
        return distinct.count == self.profile.records


def infer(sources: Sequence[Source], options: InferenceOptions) -> Draft:
    """The schema and the mapping for all sources together."""
    return _Inference(sources, options).run()


class _Inference:
    def __init__(self, sources: Sequence[Source], options: InferenceOptions) -> None:
        self._sources = sources
        self._options = options
        self._tables = [table for source in sources for table in _tables(source)]
        self._nodes: dict[str, NodeDraft] = {}
        self._edges: dict[str, EdgeDraft] = {}
        self._node_rules: dict[str, list[NodeMapping]] = {}
        self._edge_rules: dict[str, list[EdgeMapping]] = {}
        self._kept: dict[str, str] = {}
        """By source, the property of its first node rule that keeps unknown columns."""

    def run(self) -> Draft:
        self._decide()
        for table in self._tables:
            if not table.is_edge:
                self._add_node(table)
        for table in self._tables:
            if table.ends is not None:
                self._add_edge_list(table, table.ends)
            elif table.is_join:
                self._add_join(table)
            else:
                self._add_references(table)
                self._add_parent_edge(table)
        return Draft(
            nodes=tuple(self._nodes.values()),
            edges=tuple(self._edges.values()),
            mappings=tuple(self._mapping(source) for source in self._sources),
            notes=tuple(self._notes()),
        )

    def _decide(self) -> None:
        """Choose keys, references and roles, each on the ground of those before it."""
        parents = {table.parent for table in self._tables}
        for table in self._tables:
            # An edge cannot have edges to nested objects.
            table.ends = None if table in parents else _edge_ends(table)
        self._name_types()
        for table in self._tables:
            if table.ends is None:
                _choose_key(table)
        for table in self._tables:
            table.references = self._find_references(table)
        for table in self._tables:
            table.is_join = table.ends is None and table not in parents and _is_join(table)
            if not table.is_edge and not table.key:
                _choose_composite_key(table)

    def _notes(self) -> Iterator[str]:
        for source in self._sources:
            yield f"{source.name}: inferred from {_extent(source.profile)}"

    def _name_types(self) -> None:
        taken: set[str] = set()
        for table in self._tables:
            name = naming.edge_name(table.name) if table.ends else naming.type_name(table.name)
            unique, number = name, 2
            while unique.casefold() in taken:
                unique, number = f"{name}{number}", number + 1
            taken.add(unique.casefold())
            table.type = unique

    def _find_references(self, table: _Table) -> list[_Reference]:
        if table.ends is not None:
            return []
        references = list(self._references_of_database(table))
        known = {column for reference in references for column in reference.columns}
        for path, profile in table.columns.items():
            if path in known or table.key == (path,):
                continue
            reference = self._reference(table, path, profile)
            if reference is not None:
                references.append(reference)
        return references

    def _references_of_database(self, table: _Table) -> Iterator[_Reference]:
        if table.declared is None:
            return
        for foreign in table.declared.foreign_keys:
            target = next((t for t in self._tables if t.name == foreign.table), None)
            targets = foreign.target_columns or (target.key if target else ())
            if target is not None and targets == target.key and not target.is_edge:
                why = f"declared foreign key to {foreign.table}"
                yield _Reference(columns=foreign.columns, target=target, why=why)

    def _reference(self, table: _Table, path: str, profile: ColumnProfile) -> _Reference | None:
        name = table.local(path)
        targets = [
            target
            for target in self._tables
            if len(target.key) == 1 and target.ends is None and not target.is_object
        ]
        if profile.is_list:
            return _list_reference(name, path, targets)
        if not profile.has_values or is_enum(profile):
            targets = [target for target in targets if naming.refers_to(name, target.name)]
        if table.declared is not None and table.declared.foreign_keys:
            return None
        named = [
            target
            for target in targets
            if (target is not table or target.key != (path,))
            and (
                naming.refers_to(name, target.name)
                or (target is not table and naming.snake(name) == _telling_key_name(target))
            )
        ]
        for target in named:
            total, missing = _count_contained(table, path, target)
            if total is not None and missing <= _MISSING_SHARE_MAX * total:
                return _Reference(
                    columns=(path,), target=target, why=_reference_why(path, target, total, missing)
                )
        if named:
            return None
        return _reference_by_value(table, path, profile, targets)

    def _property(
        self, table: _Table, path: str, owner: str, taken: Sequence[PropertyDraft]
    ) -> PropertyDraft:
        profile = table.columns[path]
        names = [prop.name for prop in taken]
        name = naming.property_name(table.local(path), owner, names)
        kind, value, why = property_type(profile)
        is_key = path in table.key
        missing = profile.missing
        if missing and not is_key:
            empty = f"no value in {missing:,} of {profile.records:,}"
            why = f"{why}; {empty}" if why else empty
        if is_key:
            why = table.key_why
        if name != table.local(path):
            why = f"column {path!r}" + (f"; {why}" if why else "")
        return PropertyDraft(
            name=name, type=kind, nullable=bool(missing) and not is_key, value=value, why=why
        )

    def _add_node(self, table: _Table) -> None:
        node = NodeDraft(name=table.type, why=_table_why(table))
        self._nodes[node.name] = node
        if table.each is not None and not _own_key(table):
            self._add_parent_key(table, node)
        dropped = {
            column
            for reference in table.references
            for column in reference.columns
            if column not in table.key
        }
        own_key = [path for path in table.key if path in table.columns]
        for path in (*own_key, *(path for path in table.columns if path not in own_key)):
            if path in dropped:
                continue
            prop = self._property(table, path, node.name, node.properties)
            node.properties.append(prop)
            if path in table.key:
                table.key_properties[path] = prop.name
        node.key = tuple(table.key_properties.values())
        properties = {prop.name: prop.value for prop in node.properties}
        if self._options.unknown is UnknownColumns.KEEP:
            kept = _property_for_unknown([prop.name for prop in node.properties])
            node.properties.append(kept)
            self._kept.setdefault(table.source, kept.name)
        identity = None if node.key else ValueMapping(column=table.digest)
        if identity is not None:
            node.why += "; no column is a key: the id is a digest of the record"
        rule = NodeMapping(
            type=node.name,
            properties=properties,
            id=identity,
            each=table.each,
            where=table.where,
            distinct=table.is_object,
            requires=tuple(table.key) if table.is_object else (),
        )
        self._node_rules.setdefault(table.source, []).append(rule)

    def _add_parent_key(self, table: _Table, node: NodeDraft) -> None:
        """Make the key of list items of that of their record and their number."""
        assert table.parent is not None
        if not table.parent.key:
            return
        position = f"{table.each}.{POSITION}"
        for path, name in table.parent.key_properties.items():
            parent_property = next(
                prop for prop in self._nodes[table.parent.type].properties if prop.name == name
            )
            node.properties.append(replace(parent_property, why=f"key of {table.parent.type}"))
            table.key_properties[path] = name
        name = naming.property_name("position", node.name, [p.name for p in node.properties])
        node.properties.append(
            PropertyDraft(
                name=name,
                type="I64",
                nullable=False,
                value=ValueMapping(column=position),
                why="number of the item in its list",
            )
        )
        table.key_properties[position] = name
        table.key = tuple(table.key_properties)

    def _endpoint(self, target: _Table, columns: Sequence[str] | None = None) -> Endpoint:
        """The end of an edge: the row that columns name, or that of the record itself."""
        node = self._nodes[target.type]
        if not target.key:
            return Endpoint(type=target.type, key={ID_COLUMN: ValueMapping(column=target.digest)})
        values = {prop.name: prop.value for prop in node.properties}
        own = dict(zip(target.key, columns or target.key, strict=True))
        create = columns is not None and self._options.create_endpoints
        if create:
            self._allow_creation(node)
        return Endpoint(
            type=target.type,
            key={
                name: ValueMapping(column=own[path])
                if columns is not None
                else replace(values[name], column=path)
                for path, name in target.key_properties.items()
            },
            create=create,
        )

    def _allow_creation(self, node: NodeDraft) -> None:
        """Properties of nodes that edges create have no values."""
        node.properties = [
            prop if prop.name in node.key or prop.nullable else replace(prop, nullable=True)
            for prop in node.properties
        ]

    def _add_references(self, table: _Table) -> None:
        for reference in table.references:
            name = self._edge_type(table, naming.stem(table.local(reference.columns[0])))
            single = not reference.is_list
            self._edges[name] = EdgeDraft(
                name=name,
                source=table.type,
                target=reference.target.type,
                single=single,
                why=reference.why,
            )
            self._edge_rules.setdefault(table.source, []).append(
                EdgeMapping(
                    type=name,
                    source=self._endpoint(table),
                    target=self._endpoint(reference.target, reference.columns),
                    single=single,
                    optional=True,
                    each=reference.columns[0] if reference.is_list else table.each,
                    where=table.where,
                )
            )

    def _add_parent_edge(self, table: _Table) -> None:
        """Connect a record with its nested object, or with the items of its list."""
        if table.parent is None:
            return
        assert table.path is not None
        name = self._edge_type(table.parent, naming.singular(naming.words(table.path)[-1]))
        single = table.each is None
        self._edges[name] = EdgeDraft(
            name=name,
            source=table.parent.type,
            target=table.type,
            single=single,
            why=f"{table.path} is {'an object' if single else 'a list of objects'} in "
            f"{table.parent.name}",
        )
        self._edge_rules.setdefault(table.source, []).append(
            EdgeMapping(
                type=name,
                source=self._endpoint(table.parent),
                target=self._endpoint(table),
                single=single,
                optional=single,
                each=table.each,
                where=table.where,
            )
        )

    def _edge_type(self, table: _Table, role: str) -> str:
        """A name for the edges of a reference that no other edge type has."""
        taken = {name.casefold() for name in self._edges}
        names = [f"Has{naming.camel(role)}", f"{table.type}Has{naming.camel(role)}"]
        names += [f"{names[1]}{number}" for number in range(2, 100)]
        return next(name for name in names if name.casefold() not in taken)

    def _add_edge_list(self, table: _Table, ends: tuple[str, str]) -> None:
        targets = self._end_tables(table, ends)
        create = self._options.create_endpoints
        endpoints: list[Endpoint] = []
        for path, target in zip(ends, targets, strict=True):
            if target is None:
                endpoints.append(self._new_endpoint(table, path))
            else:
                endpoints.append(self._endpoint(target, (path,)))
        why = f"{table.name} has the columns {ends[0]} and {ends[1]}"
        if all(target is not None for target in targets):
            why += ", which are keys of other tables"
        elif create or any(end.create for end in endpoints):
            why += "; their nodes are created"
        self._add_edge(table, ends, endpoints, why)

    def _add_join(self, table: _Table) -> None:
        first, second = table.references
        columns = (*first.columns, *second.columns)
        endpoints = [
            self._endpoint(reference.target, reference.columns) for reference in (first, second)
        ]
        why = f"{table.name} joins {first.target.name} and {second.target.name}"
        self._add_edge(table, columns, endpoints, why)

    def _add_edge(
        self, table: _Table, ends: Sequence[str], endpoints: Sequence[Endpoint], why: str
    ) -> None:
        edge = EdgeDraft(
            name=table.type, source=endpoints[0].type, target=endpoints[1].type, why=why
        )
        self._edges[edge.name] = edge
        rest = [path for path in table.columns if path not in ends]
        for path in rest:
            edge.properties.append(self._property(table, path, edge.name, edge.properties))
        identity, new_id, reason = _edge_identity(table, tuple(ends), rest)
        edge.why += reason
        self._edge_rules.setdefault(table.source, []).append(
            EdgeMapping(
                type=edge.name,
                source=endpoints[0],
                target=endpoints[1],
                properties={prop.name: prop.value for prop in edge.properties},
                id=identity,
                new_id=new_id,
                each=table.each,
                where=table.where,
            )
        )

    def _end_tables(self, table: _Table, ends: tuple[str, str]) -> list[_Table | None]:
        """The tables whose keys are at the ends of an edge list."""
        candidates = [
            target
            for target in self._tables
            if target is not table and len(target.key) == 1 and not target.is_edge
        ]
        chosen: list[_Table | None] = []
        for path in ends:
            ranked: list[tuple[float, int, _Table]] = []
            for number, target in enumerate(candidates):
                total, missing = _count_contained(table, path, target)
                if total is not None and missing <= _MISSING_SHARE_MAX * total:
                    ranked.append((missing / max(1, total), number, target))
            chosen.append(min(ranked, key=lambda entry: entry[:2])[2] if ranked else None)
        return chosen

    def _new_endpoint(self, table: _Table, path: str) -> Endpoint:
        """Nodes that only edges name."""
        profile = table.columns[path]
        kind, _, _ = property_type(profile, enums=False)
        if _NODE not in self._nodes:
            value = ValueMapping(column=path)
            why = f"Nodes that {table.name} names and no source has"
            prop = PropertyDraft(
                name="node_id", type=kind, nullable=False, value=value, why=f"key: {path}"
            )
            self._nodes[_NODE] = NodeDraft(name=_NODE, properties=[prop], key=("node_id",), why=why)
        elif self._nodes[_NODE].properties[0].type != kind:
            (prop, *others) = self._nodes[_NODE].properties
            self._nodes[_NODE].properties = [replace(prop, type="String"), *others]
        return Endpoint(type=_NODE, key={"node_id": ValueMapping(column=path)}, create=True)

    def _mapping(self, source: Source) -> SourceMapping:
        nodes = tuple(self._node_rules.get(source.name, ()))
        edges = tuple(self._edge_rules.get(source.name, ()))
        mapping = SourceMapping(name=source.name, nodes=nodes, edges=edges)
        all_paths = set(source.profile.columns)
        used = {path.partition(".")[0] for path in mapping.paths()} | mapping.paths()
        ignored = sorted(
            path for path in all_paths if path not in used and path.partition(".")[0] not in used
        )
        kept_in = self._kept.get(source.name)
        unknown = self._options.unknown
        if unknown is UnknownColumns.KEEP and kept_in is None:
            unknown = UnknownColumns.ERROR  # edges have no property that could keep them
        return replace(mapping, ignored=tuple(ignored), unknown=unknown, kept_in=kept_in)


def _tables(source: Source) -> Iterator[_Table]:
    profile = source.profile
    if _has_types(profile):
        assert profile.discriminator is not None
        for value, variant in profile.variants.items():
            where = (Condition(column=profile.discriminator, equals=(value,)),)
            columns = {
                path: column
                for path, column in variant.columns.items()
                if path != profile.discriminator
            }
            yield from _record_tables(source, variant, value, columns, where)
        return
    yield from _record_tables(source, profile, source.name, dict(profile.columns), ())


def _record_tables(
    source: Source,
    profile: SourceProfile,
    name: str,
    columns: dict[str, ColumnProfile],
    where: tuple[Condition, ...],
) -> Iterator[_Table]:
    """The tables of the records themselves, of nested objects with an id, and of lists."""
    for path in (*profile.objects, *profile.children):
        columns.pop(path, None)
    related = [path for path in sorted(profile.objects) if _object_key(profile, path)]
    own = {
        path: column
        for path, column in columns.items()
        if not any(path.startswith(f"{outer}.") for outer in related)
    }
    table = _Table(
        name=name,
        source=source.name,
        profile=profile,
        columns=own,
        where=where,
        declared=source.declared,
    )
    yield table
    for path in related:
        members = {
            inner: column for inner, column in columns.items() if inner.startswith(f"{path}.")
        }
        yield _Table(
            name=path.rpartition(".")[2],
            source=source.name,
            profile=profile,
            columns=members,
            where=where,
            path=path,
            parent=table,
            key=(_object_key(profile, path),),
            key_why="key of the nested object",
        )
    for path, child in profile.children.items():
        child_columns = dict(child.columns)
        for inner in (*child.objects, *child.children):
            child_columns.pop(inner, None)
        child_columns.pop(f"{path}.{POSITION}", None)
        if child_columns:
            yield _Table(
                name=path.rpartition(".")[2],
                source=source.name,
                profile=child,
                columns=child_columns,
                where=where,
                each=path,
                path=path,
                parent=table,
            )


def _is_key_type(profile: ColumnProfile) -> bool:
    """Whether values are texts or integers, of any number of digits."""
    decimals = profile.decimals()
    return profile.scalar() in _KEY_SCALARS if decimals is None else decimals.scale == 0


def _object_key(profile: SourceProfile, path: str) -> str:
    """The member of a nested object that identifies it."""
    for name in _KEY_NAMES[0]:
        member = profile.columns.get(f"{path}.{name}")
        if member is not None and _is_key_type(member):
            return member.path
    return ""


def _has_types(profile: SourceProfile) -> bool:
    """Whether records with different values of the discriminator have different columns."""
    if profile.discriminator is None or len(profile.variants) < 2:
        return False
    names = [
        {path for path, column in variant.columns.items() if column.has_values}
        for variant in profile.variants.values()
    ]
    return any(
        len(one & other) < _SAME_COLUMNS * len(one | other)
        for number, one in enumerate(names)
        for other in names[number + 1 :]
    )


def _edge_ends(table: _Table) -> tuple[str, str] | None:
    if table.is_object or table.declared is not None:
        return None
    by_name = {naming.stem(table.local(path)): path for path in table.columns}
    by_name |= {naming.snake(table.local(path)): path for path in table.columns}
    for first, second in _ENDS:
        if first in by_name and second in by_name:
            ends = (by_name[first], by_name[second])
            profiles = [table.columns[path] for path in ends]
            if all(_is_key_type(profile) and not profile.is_list for profile in profiles):
                return ends
    return None


def _telling_key_name(table: _Table) -> str | None:
    """The name of the key of a table, unless keys of any tables have it, as `id` or `code`."""
    name = naming.snake(table.local(table.key[0]))
    return None if name in itertools.chain.from_iterable(_KEY_NAMES) else name


def _own_key(table: _Table) -> bool:
    return bool(table.key) and all(POSITION not in path for path in table.key)


def _choose_key(table: _Table) -> None:
    if table.key:
        return
    declared = table.declared.key if table.declared is not None else ()
    if declared and all(name in table.columns for name in declared):
        table.key, table.key_why = declared, "declared primary key"
        return
    ranked = sorted(
        (rank, number, path)
        for number, path in enumerate(table.columns)
        if (rank := _key_rank(table, path, number)) is not None
    )
    for _, _, path in ranked:
        if table.is_unique(path):
            table.key = (path,)
            table.key_why = f"key: unique in {_extent(table.profile)}"
            return


def _key_rank(table: _Table, path: str, number: int) -> int | None:
    profile = table.columns[path]
    if not profile.can_identify or not _is_key_type(profile):
        return None
    name, own = naming.snake(table.local(path)), naming.snake(naming.type_name(table.name))
    plain = name.replace("_", "")
    if name in _KEY_NAMES[0] or plain == f"{own.replace('_', '')}id":
        return 0
    if name in _KEY_NAMES[1] or (naming.has_key_suffix(name) and naming.stem(name) == own):
        return 1
    if naming.has_key_suffix(name) and number == 0:
        return 2
    if name in _KEY_NAMES[2] or name == own:
        return 3
    return 4 if number == 0 else None


def _choose_composite_key(table: _Table) -> None:
    """Two columns that are unique together, if one of them is a reference or named like a key."""
    if table.each is not None or table.is_object:
        return
    references = [ref.columns[0] for ref in table.references if not ref.is_list]
    keyed = [path for path in table.columns if naming.has_key_suffix(path)]
    first = list(dict.fromkeys([*references, *keyed]))[:_COMPOSITE_TRIED]
    others = [
        path
        for path, profile in table.columns.items()
        if not profile.is_list and (_is_key_type(profile) or profile.scalar() is ct.Scalar.DATE)
    ][:_COMPOSITE_TRIED]
    for one in first:
        for other in others:
            if one != other and table.is_unique(one, other):
                table.key = (one, other)
                table.key_why = "key: unique together"
                return


def _count_contained(table: _Table, path: str, target: _Table) -> tuple[int | None, int]:
    """Distinct values of a column, and how many of them are no key of a table."""
    own, keys = table.profile.distinct(path), target.profile.distinct(target.key[0])
    if own is None or keys is None:
        return None, 0
    return own.count, own.count_missing(keys)


def _extent(profile: SourceProfile) -> str:
    """Which records a decision follows from."""
    records = counted(profile.records, "record")
    if not profile.is_complete:
        return f"the first {records}"
    return records if profile.records == 1 else f"all {records}"


def _reference_why(path: str, target: _Table, total: int, missing: int) -> str:
    if missing:
        return f"{path}: {missing:,} of {counted(total, 'value')} are not keys of {target.name}"
    if total == 1:
        return f"{path}: its one value is a key of {target.name}"
    return f"{path}: all {total:,} values are keys of {target.name}"


def _reference_by_value(
    table: _Table, path: str, profile: ColumnProfile, targets: Sequence[_Table]
) -> _Reference | None:
    """A column that is not named after the table whose keys it holds."""
    name = table.local(path)
    is_text = profile.scalar() is ct.Scalar.STRING
    if not is_text and not naming.has_key_suffix(name) and naming.snake(name) not in _SELF_WORDS:
        return None
    fitting: list[tuple[_Table, int]] = []
    for target in targets:
        if target is table and target.key == (path,):
            continue
        total, missing = _count_contained(table, path, target)
        if total is not None and total >= 2 and not missing:
            fitting.append((target, total))
    own = [entry for entry in fitting if entry[0] is table]
    if own and naming.stem(name) in _SELF_WORDS:
        fitting = own
    if len(fitting) != 1:
        return None
    ((target, total),) = fitting
    return _Reference(columns=(path,), target=target, why=_reference_why(path, target, total, 0))


def _list_reference(name: str, path: str, targets: Sequence[_Table]) -> _Reference | None:
    if not naming.snake(name).endswith("_ids"):
        return None
    for target in targets:
        if naming.refers_to(name, target.name):
            why = f"{path} is a list of keys of {target.name}"
            return _Reference(columns=(path,), target=target, why=why, is_list=True)
    return None


def _is_join(table: _Table) -> bool:
    """Whether a table has two references and nothing that identifies its rows otherwise."""
    if len(table.references) != 2 or table.is_object:
        return False
    if any(reference.is_list for reference in table.references):
        return False
    columns = {column for reference in table.references for column in reference.columns}
    if table.key and not set(table.key) <= columns:
        return False
    if len(table.key) == 1 or table.parent is not None:
        return False
    return len(table.columns) - len(columns) <= _JOIN_COLUMNS_MAX


def _edge_identity(
    table: _Table, ends: tuple[str, ...], rest: Sequence[str]
) -> tuple[tuple[str, ...], bool, str]:
    """What the ids of edges are made of beside their ends, whether they are new, and why."""
    if table.profile.distinct(*ends) is None or table.is_unique(*ends):
        return (), False, ""
    for path in rest:
        if table.is_unique(path):
            return (path,), False, f"; several edges between two nodes differ in {path}"
    hashed = [
        path
        for path in rest
        if table.columns[path].hashes is not None and not table.columns[path].missing
    ]
    if hashed and table.is_unique(*ends, *hashed):
        return tuple(hashed), False, f"; several edges between two nodes differ in {hashed}"
    return (), True, "; the same edge occurs more than once: a second import adds it again"


def _table_why(table: _Table) -> str:
    if table.each is not None:
        return f"Items of the list {table.each} of {table.source}"
    if table.path is not None:
        return f"The object {table.path} of {table.source}"
    if table.where:
        condition = table.where[0]
        return f"Records of {table.source} with {condition.column} = {condition.equals[0]}"
    return f"Records of {table.source}"


def _property_for_unknown(taken: Sequence[str]) -> PropertyDraft:
    return PropertyDraft(
        name=naming.property_name(KEPT, "", taken),
        type="String",
        nullable=True,
        value=ValueMapping(column=""),
        why="JSON of unknown columns",
    )
