"""Infer a schema and a mapping from the profiles of sources.

A source is one table, or one per type of its records, list or nested object. What the tables are is
decided in `roles`; here they become types, and rules that make rows of these.

Invariants:
- A reason is written beside every type and property that does not follow from its name.
- Every column is mapped, is part of a reference, or is listed as ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from omnigraph_lake.arguments import one_of
from omnigraph_lake.importer import naming
from omnigraph_lake.importer.column_profile import NEAR_SHARE_MIN
from omnigraph_lake.importer.draft import (
    Draft,
    EdgeDraft,
    NodeDraft,
    PropertyDraft,
    choose_given_type,
    hints_of,
    property_type,
)
from omnigraph_lake.importer.explanation import explain
from omnigraph_lake.importer.hashed_values import unmap_files
from omnigraph_lake.importer.keys import extent
from omnigraph_lake.importer.roles import (
    InferenceOptions,
    decide,
    find_edge_identity,
    find_end_tables,
)
from omnigraph_lake.importer.tables import Reference, Source, Table, tables_of
from omnigraph_lake.load.formats.mapping import (
    EdgeMapping,
    Endpoint,
    NodeMapping,
    SourceMapping,
    TextForm,
    UnknownColumns,
    ValueMapping,
)
from omnigraph_lake.load.formats.raw_batches import POSITION
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema import catalog as ct

KEPT: Final = "extra"
"""The property that keeps values of unknown columns."""
_NUMERIC: Final = re.compile("INT|REAL|FLOA|DOUB|NUM|DEC", re.IGNORECASE)
"""Types of SQLite that are numbers by its rules; a column can hold other values all the same."""
_NUMBERS: Final = frozenset({ct.Scalar.I64, ct.Scalar.F64})


def infer(sources: Sequence[Source], options: InferenceOptions) -> Draft:
    """The schema and the mapping for all sources together."""
    try:
        return _Inference(sources, options).run()
    finally:
        unmap_files()


class _Inference:
    def __init__(self, sources: Sequence[Source], options: InferenceOptions) -> None:
        self._sources = sources
        self._options = options
        decided = decide([t for source in sources for t in tables_of(source)], options)
        self._tables = decided.tables
        self._nodes: dict[str, NodeDraft] = {}
        self._edges: dict[str, EdgeDraft] = {}
        self._node_rules: dict[str, list[NodeMapping]] = {}
        self._edge_rules: dict[str, list[EdgeMapping]] = {}
        self._hints = list(decided.hints)
        self._new_type = decided.new_type
        self._taken: dict[str, set[str]] = {}
        self._kept: dict[str, str] = {}
        """By source, the property of its first node rule that keeps unknown columns."""

    def run(self) -> Draft:
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
            hints=tuple(self._hints),
            explanation=explain(self._tables, property_type),
        )

    def _choose_type(self, table: Table, path: str) -> ct.Scalar | None:
        """The type that is asked for, or declared and that of nearly all values."""
        types = self._options.types
        name = types.get(f"{table.type}.{path}", types.get(f"{table.name}.{path}"))
        if name is not None:
            return one_of(ct.Scalar, name, argument="a type of a column")
        near = table.columns[path].near
        if table.declared is None or near is None or near.share < NEAR_SHARE_MIN:
            return None
        is_number = _NUMERIC.search(table.declared.types.get(path, "")) is not None
        return near.reading.scalar if is_number and near.reading.scalar in _NUMBERS else None

    def _notes(self) -> Iterator[str]:
        for source in self._sources:
            yield f"{source.name}: inferred from {extent(source.profile)}"
        for table in self._tables:
            if table.row_numbers is not None:
                yield f"{table.name}: column {table.row_numbers!r} numbers the rows: left out"

    def _property(
        self, table: Table, path: str, owner: str, taken: Sequence[PropertyDraft]
    ) -> PropertyDraft:
        profile = table.columns[path]
        # One set per type: a list of all names for every column is quadratic.
        if owner not in self._taken:
            self._taken[owner] = {prop.name.casefold() for prop in taken}
        name = naming.property_name(table.local(path), owner, self._taken[owner])
        self._taken[owner].add(name.casefold())
        is_key = path in table.key
        given = self._choose_type(table, path)
        kind, value, why = (
            property_type(profile, enums=not is_key)
            if given is None
            else choose_given_type(profile, given)
        )
        missing = profile.missing
        if missing and not is_key:
            why = "; ".join(filter(None, (why, profile.missing_why())))
        table.read_as[path] = (kind, why)
        if is_key:
            why = table.key_why
        elif given is None and not any(path in reference.columns for reference in table.references):
            self._hints += hints_of(profile, table.source, owner)
        if name != table.local(path):
            why = f"column {path!r}" + (f"; {why}" if why else "")
        return PropertyDraft(
            name=name, type=kind, nullable=bool(missing) and not is_key, value=value, why=why
        )

    def _add_node(self, table: Table) -> None:
        node = NodeDraft(name=table.type, why=table.describe())
        self._nodes[node.name] = node
        if table.each is not None and not table.key:
            self._add_parent_key(table, node)
        dropped = {
            column
            for reference in table.references
            for column in reference.columns
            if column not in table.key and reference.is_whole
        } | {table.row_numbers}
        if table.has_positions:
            self._add_position(node, POSITION, table.key_why)
            table.key_properties[POSITION] = node.properties[-1].name
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
        if not table.is_new:
            self._node_rules.setdefault(table.source, []).append(rule)

    def _add_parent_key(self, table: Table, node: NodeDraft) -> None:
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
        self._add_position(node, position, "number of the item in its list")
        table.key_properties[position] = node.properties[-1].name
        table.key = tuple(table.key_properties)

    def _add_position(self, node: NodeDraft, path: str, why: str) -> None:
        name = naming.property_name(
            "position", node.name, {p.name.casefold() for p in node.properties}
        )
        value = ValueMapping(column=path)
        node.properties.append(
            PropertyDraft(name=name, type="I64", nullable=False, value=value, why=why)
        )

    def _endpoint(
        self, target: Table, columns: Sequence[str] | None = None, *, null: tuple[str, ...] = ()
    ) -> Endpoint:
        """The end of an edge: the row that columns name, or that of the record itself."""
        node = self._nodes[target.type]
        if not target.key:
            return Endpoint(type=target.type, key={ID_COLUMN: ValueMapping(column=target.digest)})
        values = {prop.name: prop.value for prop in node.properties}
        own = dict(zip(target.key, columns or target.key, strict=True))
        null = (*self._options.null_words, *null)
        create = columns is not None and (self._options.create_endpoints or target.is_new)
        if create:
            self._allow_creation(node)
        return Endpoint(
            type=target.type,
            key={
                name: ValueMapping(column=own[path], null=null)
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

    def _add_references(self, table: Table) -> None:
        for reference in table.references:
            name = self._edge_type(table, _role(table, reference))
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
                    target=self._endpoint(reference.target, reference.columns, null=reference.null),
                    single=single,
                    optional=True,
                    each=reference.columns[0] if reference.is_list else table.each,
                    where=table.where,
                )
            )

    def _add_parent_edge(self, table: Table) -> None:
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

    def _edge_type(self, table: Table, role: str) -> str:
        """A name for the edges of a reference that no other edge type has."""
        return naming.reference_name(role, table.type, self._edges)

    def _add_edge_list(self, table: Table, ends: tuple[str, str]) -> None:
        targets = find_end_tables(table, ends, self._tables)
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

    def _add_join(self, table: Table) -> None:
        first, second = table.references
        columns = (*first.columns, *second.columns)
        endpoints = [
            self._endpoint(reference.target, reference.columns, null=reference.null)
            for reference in (first, second)
        ]
        why = f"{table.name} joins {first.target.name} and {second.target.name}"
        self._add_edge(table, columns, endpoints, why)

    def _add_edge(
        self, table: Table, ends: Sequence[str], endpoints: Sequence[Endpoint], why: str
    ) -> None:
        edge = EdgeDraft(
            name=table.type, source=endpoints[0].type, target=endpoints[1].type, why=why
        )
        self._edges[edge.name] = edge
        rest = [path for path in table.columns if path not in (*ends, table.row_numbers)]
        for path in rest:
            edge.properties.append(self._property(table, path, edge.name, edge.properties))
        identity, reason = find_edge_identity(table, tuple(ends), rest)
        edge.why += reason
        self._edge_rules.setdefault(table.source, []).append(
            EdgeMapping(
                type=edge.name,
                source=endpoints[0],
                target=endpoints[1],
                properties={prop.name: prop.value for prop in edge.properties},
                id=identity,
                each=table.each,
                where=table.where,
            )
        )

    def _new_endpoint(self, table: Table, path: str) -> Endpoint:
        """Nodes that only edges name."""
        profile = table.columns[path]
        kind, _, _ = property_type(profile, enums=False)
        value, name = ValueMapping(column=path), self._new_type
        why = f"Nodes that {table.name} names and no source has"
        node = self._nodes.setdefault(name, NodeDraft(name=name, key=("node_id",), why=why))
        if not node.properties:
            node.properties.append(
                PropertyDraft(
                    name="node_id", type=kind, nullable=False, value=value, why=f"key: {path}"
                )
            )
        elif node.properties[0].type != kind:
            node.properties[0] = replace(node.properties[0], type="String")
        node_id = replace(value, null=self._options.null_words)
        return Endpoint(type=name, key={"node_id": node_id}, create=True)

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
        numbered = any(table.has_positions for table in self._tables if table.source == source.name)
        form = TextForm(position_column=POSITION if numbered else None)
        return replace(mapping, form=form, ignored=tuple(ignored), unknown=unknown, kept_in=kept_in)


def _role(table: Table, reference: Reference) -> str:
    """What the target of a reference is to a record: the name of its column, or of the target."""
    pairs = zip(reference.columns, reference.target.key, strict=False)
    if len(reference.columns) == 1:
        return naming.stem(table.local(reference.columns[0]))
    own = [path for path, key in pairs if naming.snake(path) != naming.snake(key)]
    return own[0] if own else naming.type_name(reference.target.name)


def _property_for_unknown(taken: Sequence[str]) -> PropertyDraft:
    return PropertyDraft(
        name=naming.property_name(KEPT, "", {name.casefold() for name in taken}),
        type="String",
        nullable=True,
        value=ValueMapping(column=""),
        why="JSON of unknown columns",
    )
