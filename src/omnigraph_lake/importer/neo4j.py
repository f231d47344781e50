"""Infer a schema from exports of Neo4j: CSV files with typed headers, and JSON of its export tool.

A header names types, id spaces, labels and types of relationships (`personId:ID(Person)`, `:LABEL`,
`:START_ID(Person)`, `:TYPE`, `roles:string[]`). A record of the JSON form is a node with labels, or
a relationship with its ends.

Invariant: what the export declares is used as it is; only nullability, and which node type an id
space without a label is, follow from the records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.importer import naming
from omnigraph_lake.importer.draft import (
    Draft,
    EdgeDraft,
    NodeDraft,
    PropertyDraft,
    merge_properties,
    property_type,
)
from omnigraph_lake.importer.profile import VARIANT_SEPARATOR, SourceProfile
from omnigraph_lake.importer.roles import InferenceOptions
from omnigraph_lake.importer.tables import Source
from omnigraph_lake.load.formats.mapping import (
    Condition,
    EdgeMapping,
    Endpoint,
    NodeMapping,
    SourceMapping,
    UnknownColumns,
    ValueMapping,
)
from omnigraph_lake.load.formats.raw_batches import WHOLE

ID_PROPERTY: Final = "neo4j_id"
_HEADER: Final = re.compile(
    r"(?P<name>[^:]*):(?P<type>[A-Za-z_]+)(?P<list>\[\])?(?:\((?P<space>[^)]*)\))?(?:\{.*\})?"
)
_TYPES: Final = {
    **dict.fromkeys(("int", "long", "short", "byte"), "I64"),
    **dict.fromkeys(("float", "double"), "F64"),
    "boolean": "Bool",
    "date": "Date",
    **dict.fromkeys(("datetime", "localdatetime"), "DateTime"),
}
_ROLES: Final = frozenset({"ID", "LABEL", "START_ID", "END_ID", "TYPE", "IGNORE"})
_LISTS: Final = ";"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column of a CSV file with its declared type or role."""

    path: str
    name: str
    type: str
    is_list: bool
    space: str


@dataclass(slots=True, kw_only=True)
class _File:
    """A CSV file of nodes or relationships."""

    source: Source
    columns: list[_Column]
    type: str = ""
    id_name: str = ""

    def role(self, name: str) -> _Column | None:
        return next((column for column in self.columns if column.type == name), None)

    @property
    def profile(self) -> SourceProfile:
        return self.source.profile


def infer_neo4j(sources: Sequence[Source], options: InferenceOptions) -> Draft | None:
    """The schema and the mapping of an export of Neo4j; None if the sources are none."""
    if all(any(VARIANT_SEPARATOR in name for name in s.profile.variants) for s in sources):
        return _JsonExport(sources).draft()
    files = [_File(source=source, columns=_columns(source.profile)) for source in sources]
    if any(file.role("ID") or file.role("START_ID") for file in files):
        return _CsvExport(files, options).draft()
    return None


def _columns(profile: SourceProfile) -> list[_Column]:
    columns: list[_Column] = []
    for path in profile.columns:
        match = _HEADER.fullmatch(path)
        is_typed = match is not None and (
            match["type"] in _ROLES or match["type"].lower() in {*_TYPES, "string", "char"}
        )
        columns.append(
            _Column(
                path=path,
                name=match["name"] if match and is_typed else path,
                type=match["type"] if match and is_typed else "string",
                is_list=bool(match and is_typed and match["list"]),
                space=(match["space"] or "") if match else "",
            )
        )
    return columns


@dataclass(slots=True)
class _CsvExport:
    files: Sequence[_File]
    options: InferenceOptions
    nodes: dict[str, NodeDraft] = field(default_factory=dict)
    edges: dict[str, EdgeDraft] = field(default_factory=dict)
    mappings: list[SourceMapping] = field(default_factory=list)

    def draft(self) -> Draft:
        node_files = [file for file in self.files if file.role("ID")]
        for file in node_files:
            self._add_nodes(file)
        for file in self.files:
            if file.role("START_ID") and file.role("END_ID"):
                self._add_edges(file, node_files)
            elif file not in node_files:
                raise InvalidInputError(
                    f"{file.source.name} has neither an :ID nor a :START_ID and an :END_ID column, "
                    "as the other files of a Neo4j export have",
                    next_step="Import it apart from them.",
                )
        return Draft(
            nodes=tuple(self.nodes.values()),
            edges=tuple(self.edges.values()),
            mappings=tuple(self.mappings),
            notes=tuple(_notes(self.files)),
        )

    def _add_nodes(self, file: _File) -> None:
        identity, label = file.role("ID"), file.role("LABEL")
        assert identity is not None
        labels = _texts(file.profile, label)
        first = {text.split(_LISTS)[0] for text in labels}
        name = next(iter(first)) if len(first) == 1 else identity.space or file.source.name
        file.type = naming.type_name(name) if not first else naming.camel(name)
        properties = [
            _property_of(file, column, file.type)
            for column in file.columns
            if column.type not in _ROLES - {"ID"}
        ]
        file.id_name = _property_of(file, identity, file.type).name
        if label is not None and labels != [next(iter(first), "")]:
            value = ValueMapping(column=label.path, split=_LISTS)
            properties.append(
                PropertyDraft(name="labels", type="[String]", nullable=False, value=value)
            )
        _add_node(
            self.nodes,
            NodeDraft(
                name=file.type,
                properties=properties,
                key=(file.id_name,),
                why=f"Nodes of {file.source.name}",
            ),
        )
        ignored = [c.path for c in file.columns if c.type == "IGNORE"]
        if label is not None and "labels" not in {prop.name for prop in properties}:
            ignored.append(label.path)
        self.mappings.append(
            SourceMapping(
                name=file.source.name,
                nodes=(NodeMapping(type=file.type, properties=_values(properties)),),
                ignored=tuple(ignored),
                unknown=_unknown(self.options),
            )
        )

    def _add_edges(self, file: _File, node_files: Sequence[_File]) -> None:
        start, end, kind = file.role("START_ID"), file.role("END_ID"), file.role("TYPE")
        assert start is not None
        assert end is not None
        endpoints = [self._endpoint(file, column, node_files) for column in (start, end)]
        names = _texts(file.profile, kind) or [file.source.name]
        rules: list[EdgeMapping] = []
        identity = _edge_identity(file, start, end, kind)
        for name in names:
            edge = _add_edge(
                self.edges,
                EdgeDraft(
                    name=naming.edge_name(name),
                    source=endpoints[0].type,
                    target=endpoints[1].type,
                    properties=[
                        _property_of(file, column, name)
                        for column in file.columns
                        if column.type not in _ROLES
                    ],
                    why=f"Relationships {name} of {file.source.name}",
                ),
            )
            where = () if kind is None else (Condition(column=kind.path, equals=(name,)),)
            rules.append(
                EdgeMapping(
                    type=edge.name,
                    source=endpoints[0],
                    target=endpoints[1],
                    properties=_values(edge.properties),
                    where=where,
                    id=identity,
                )
            )
        self.mappings.append(
            SourceMapping(
                name=file.source.name,
                edges=tuple(rules),
                ignored=tuple(c.path for c in file.columns if c.type == "IGNORE"),
                unknown=_unknown(self.options),
            )
        )

    def _endpoint(self, file: _File, column: _Column, node_files: Sequence[_File]) -> Endpoint:
        """The node type of an id space; if several files have it, the one with all values."""
        candidates = [
            other
            for other in node_files
            if (identity := other.role("ID")) is not None and identity.space == column.space
        ]
        if not candidates:
            raise InvalidInputError(
                f"{file.source.name}: {column.path} refers to an id space that no file has",
                next_step="Name the files with the nodes too.",
            )
        chosen = candidates[0]
        own = file.profile.distinct(column.path)
        if len({candidate.type for candidate in candidates}) > 1 and own is not None:
            missing = []
            for candidate in candidates:
                identity = candidate.role("ID")
                assert identity is not None
                keys = candidate.profile.distinct(identity.path)
                missing.append(own.count if keys is None else own.count_missing(keys))
            chosen = candidates[missing.index(min(missing))]
        return Endpoint(
            type=chosen.type,
            key={chosen.id_name: ValueMapping(column=column.path)},
            create=self.options.create_endpoints,
        )


def _add_node(nodes: dict[str, NodeDraft], node: NodeDraft) -> None:
    """Add a node type, or its properties to the type of this name."""
    known = nodes.setdefault(node.name, node)
    if known is not node:
        if known.key != node.key:
            raise InvalidInputError(
                f"the nodes {node.name} have the keys {', '.join(known.key)} and "
                f"{', '.join(node.key)} in two files",
                next_step="Use the same name for the :ID column in both files.",
            )
        known.properties = merge_properties(known.properties, node.properties)


def _add_edge(edges: dict[str, EdgeDraft], edge: EdgeDraft) -> EdgeDraft:
    """Add an edge type, or its properties to the type of this name; one with its own properties.

    A type has one kind of nodes at each end, so others have a name with the types at their ends.
    """
    known = edges.get(edge.name)
    if known is not None and (known.source, known.target) != (edge.source, edge.target):
        edge = replace(edge, name=f"{edge.source}{edge.name}{edge.target}")
        known = edges.get(edge.name)
    if known is None:
        edges[edge.name] = replace(edge)
    else:
        known.properties = merge_properties(known.properties, edge.properties)
    return edge


def _values(properties: Sequence[PropertyDraft]) -> dict[str, ValueMapping]:
    return {prop.name: prop.value for prop in properties}


def _unknown(options: InferenceOptions) -> UnknownColumns:
    """What is not in the header is no property, so there is none that could keep it."""
    keeps = options.unknown is UnknownColumns.KEEP
    return UnknownColumns.ERROR if keeps else options.unknown


def _property_of(file: _File, column: _Column, owner: str) -> PropertyDraft:
    profile = file.profile.columns[column.path]
    name = column.name or ID_PROPERTY
    kind = _TYPES.get(column.type.lower(), "String")
    value = ValueMapping(column=column.path, split=_LISTS if column.is_list else None)
    is_id = column.type == "ID"
    return PropertyDraft(
        name=naming.property_name(name, owner, ()),
        type=f"[{kind}]" if column.is_list else kind,
        nullable=bool(profile.nulls) and not is_id,
        value=value,
        why="key: the id of the export" if is_id else "",
    )


def _edge_identity(
    file: _File, start: _Column, end: _Column, kind: _Column | None
) -> tuple[str, ...]:
    """What the ids of relationships are made of beside their ends."""
    ends = [column.path for column in (start, end, kind) if column is not None]
    others = [c.path for c in file.columns if c.type not in _ROLES]
    for extra in ([], others):
        distinct = file.profile.distinct(*ends, *extra)
        if distinct is not None and distinct.count == file.profile.records:
            return tuple(extra)
    return (WHOLE,)


def _texts(profile: SourceProfile, column: _Column | None) -> list[str]:
    if column is None:
        return []
    values = profile.columns[column.path].values
    if values is None:
        raise InvalidInputError(
            f"{profile.name}: {column.path} has too many different values",
            next_step="Write a mapping by hand; `omnigraph import --map FILE` uses it.",
        )
    return sorted(values)


def _notes(files: Sequence[_File]) -> Iterator[str]:
    for file in files:
        records = counted(file.profile.records, "record")
        yield f"{file.source.name}: declared by its header, {records}"


class _JsonExport:
    """An export as JSON lines: `variants` of a profile are its labels and relationships."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._nodes: dict[str, NodeDraft] = {}
        self._edges: dict[str, EdgeDraft] = {}

    def draft(self) -> Draft:
        mappings = tuple(self._mapping(source) for source in self._sources)
        notes = [
            f"{source.name}: export of Neo4j, {counted(source.profile.records, 'record')}"
            for source in self._sources
        ]
        return Draft(
            nodes=tuple(self._nodes.values()),
            edges=tuple(self._edges.values()),
            mappings=mappings,
            notes=tuple(notes),
        )

    def _mapping(self, source: Source) -> SourceMapping:
        nodes: list[NodeMapping] = []
        edges: list[EdgeMapping] = []
        ignored = {"type", "id", "labels", "label", "start", "end", "properties"}
        for name, profile in source.profile.variants.items():
            kind, *parts = name.split(VARIANT_SEPARATOR)
            if kind == "node":
                nodes.append(self._node(parts[0], profile))
            else:
                edges.append(self._edge(parts, profile))
        return SourceMapping(
            name=source.name, nodes=tuple(nodes), edges=tuple(edges), ignored=tuple(sorted(ignored))
        )

    def _node(self, labels: str, profile: SourceProfile) -> NodeMapping:
        node = NodeDraft(name=_label_type(labels), key=(ID_PROPERTY,), why=f"Nodes {labels}")
        identity = PropertyDraft(
            name=ID_PROPERTY,
            type="String",
            nullable=False,
            value=ValueMapping(column="id"),
            why="key: the id of the export",
        )
        node.properties = [identity, *_json_properties(profile, node.name, [ID_PROPERTY])]
        properties = _values(node.properties)
        _add_node(self._nodes, node)
        return NodeMapping(
            type=node.name,
            properties=properties,
            where=(Condition(column="labels", equals=(labels,)),),
        )

    def _edge(self, parts: Sequence[str], profile: SourceProfile) -> EdgeMapping:
        label, start, end = parts
        ends = (_label_type(start), _label_type(end))
        name = naming.edge_name(label)
        edge = _add_edge(
            self._edges,
            EdgeDraft(
                name=name,
                source=ends[0],
                target=ends[1],
                properties=_json_properties(profile, name, []),
                why=f"Relationships {label}",
            ),
        )
        key = [{ID_PROPERTY: ValueMapping(column=f"{side}.id")} for side in ("start", "end")]
        return EdgeMapping(
            type=edge.name,
            source=Endpoint(type=ends[0], key=key[0]),
            target=Endpoint(type=ends[1], key=key[1]),
            properties=_values(edge.properties),
            id=("id",),
            where=(
                Condition(column="label", equals=(label,)),
                Condition(column="start.labels", equals=(start,)),
                Condition(column="end.labels", equals=(end,)),
            ),
        )


def _label_type(labels: str) -> str:
    """The type of nodes with these labels, which are a JSON list."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', labels)
    return naming.camel(words[0]) if words else "Node"


def _json_properties(
    profile: SourceProfile, owner: str, taken: Sequence[str]
) -> list[PropertyDraft]:
    properties: list[PropertyDraft] = []
    names = {name.casefold() for name in taken}
    for path, column in profile.columns.items():
        if not path.startswith("properties.") or path in profile.objects:
            continue
        kind, value, why = property_type(column)
        name = naming.property_name(path.removeprefix("properties."), owner, names)
        names.add(name.casefold())
        properties.append(
            PropertyDraft(
                name=name,
                type=kind,
                nullable=bool(column.missing),
                value=value,
                why=why,
            )
        )
    return properties
