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

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from omnigraph_lake.arguments import one_of
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.importer import naming
from omnigraph_lake.importer.composites import (
    choose_pair,
    choose_referred_pairs,
    find_pair_references,
)
from omnigraph_lake.importer.draft import (
    Draft,
    EdgeDraft,
    Hint,
    NodeDraft,
    PropertyDraft,
    choose_given_type,
    hints_of,
    property_type,
)
from omnigraph_lake.importer.foreign_keys import ReferenceFinder, containment
from omnigraph_lake.importer.hashed_values import unmap_files
from omnigraph_lake.importer.keys import choose_keys, drop_names_of_joins, extent
from omnigraph_lake.importer.tables import (
    Reference,
    Source,
    Table,
    find_row_numbers,
    is_key_type,
    tables_of,
)
from omnigraph_lake.language.diagnostics import did_you_mean, shown
from omnigraph_lake.load.formats.mapping import (
    EdgeMapping,
    Endpoint,
    NodeMapping,
    SourceMapping,
    UnknownColumns,
    ValueMapping,
)
from omnigraph_lake.load.formats.raw_batches import POSITION
from omnigraph_lake.names import ID_COLUMN
from omnigraph_lake.schema import catalog as ct

KEPT: Final = "extra"
"""The property that keeps values of unknown columns."""
_ENDS: Final = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("start", "end"),
    ("head", "tail"),
    ("subject", "object"),
    ("follower", "followee"),
)
_RANGES: Final = frozenset({"from", "start", "head"})
"""First columns of pairs that are often ranges: integers there are ends only if they are keys."""
_JOIN_COLUMNS_MAX: Final = 8
_UNMATCHED_MAX: Final = 0.05
"""Of 17,350 records of who went to which school, 10 name one that is missing."""
_MISSING_SHARE_MAX: Final = 0.5
_NODE: Final = "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceOptions:
    """What the caller decides about inferred mappings."""

    unknown: UnknownColumns = UnknownColumns.ERROR
    create_endpoints: bool = False
    keys: Mapping[str, str] = field(default_factory=dict)
    """The column of the key, by type or source."""
    edges: Mapping[str, str] = field(default_factory=dict)
    """The type or source that a column refers to, by `TYPE.COLUMN` or `SOURCE.COLUMN`."""
    types: Mapping[str, str] = field(default_factory=dict)
    """The type of a column of texts, likewise."""
    null_words: tuple[str, ...] = ()
    """Texts that mean no value, in every column."""


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
        self._tables = [table for source in sources for table in tables_of(source)]
        self._nodes: dict[str, NodeDraft] = {}
        self._edges: dict[str, EdgeDraft] = {}
        self._node_rules: dict[str, list[NodeMapping]] = {}
        self._edge_rules: dict[str, list[EdgeMapping]] = {}
        self._hints: list[Hint] = []
        self._taken: dict[str, set[str]] = {}
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
            hints=tuple(self._hints),
        )

    def _decide(self) -> None:
        """Choose keys, references and roles, each on the ground of those before it."""
        parents = {table.parent for table in self._tables}
        for table in self._tables:
            table.row_numbers = find_row_numbers(table)
            # An edge cannot have edges to nested objects.
            ends = None if table in parents or self._is_told(table) else _edge_ends(table)
            table.ends = None if ends is None or _is_range(table, ends) else ends
        self._name_types()
        self._require_known()
        choose_keys(self._tables, self._options.keys)
        for table in self._tables:
            is_open = table.ends is None and not table.key and table not in parents
            if is_open and not self._is_told(table):
                table.ends = self._ends_by_value(table)
        drop_names_of_joins(self._tables)
        finder = ReferenceFinder(self._tables, self._options.edges)
        for table in self._tables:
            result = finder.find(table)
            table.references = list(result.references)
            self._hints += result.hints
        self._find_joins(parents)
        targets = choose_referred_pairs(self._tables)
        for table in self._tables:
            table.references += find_pair_references(table, targets)
        self._find_joins({*parents, *targets})
        for table in self._tables:
            if not table.is_edge:
                choose_pair(table)

    def _choose_type(self, table: Table, path: str) -> ct.Scalar | None:
        types = self._options.types
        name = types.get(f"{table.type}.{path}", types.get(f"{table.name}.{path}"))
        return None if name is None else one_of(ct.Scalar, name, argument="a type of a column")

    def _require_known(self) -> None:
        """Refuse choices for types and columns that do not exist."""
        names = {name for table in self._tables for name in (table.type, table.name)}
        columns = {
            f"{name}.{path}"
            for table in self._tables
            for name in (table.type, table.name)
            for path in table.columns
        }
        options = self._options
        for given, known in (
            (options.keys, names),
            (options.edges, columns),
            (options.types, columns),
        ):
            for name in given:
                if name not in known:
                    hint = did_you_mean(name, known)
                    raise InvalidInputError(
                        f"no source has {shown(name)}" + (f"; {hint}" if hint else ""),
                        next_step="`--dry-run` prints the types and their columns.",
                    )

    def _find_joins(self, nodes: Collection[Table | None]) -> None:
        for table in self._tables:
            table.is_join = table.ends is None and table not in nodes and _is_join(table)

    def _is_told(self, table: Table) -> bool:
        """Whether the caller chose a key or references of a table: it is no list of edges then."""
        names = {table.name, naming.type_name(table.name), naming.edge_name(table.name)}
        chosen = {*self._options.keys, *(name.partition(".")[0] for name in self._options.edges)}
        return not names.isdisjoint(chosen)

    def _ends_by_value(self, table: Table) -> tuple[str, str] | None:
        """The columns of a possible range whose numbers are keys of other tables."""
        ends = _edge_ends(table)
        if ends is None or any(target is None for target in self._end_tables(table, ends)):
            return None
        return ends

    def _notes(self) -> Iterator[str]:
        for source in self._sources:
            yield f"{source.name}: inferred from {extent(source.profile)}"
        for table in self._tables:
            if table.row_numbers is not None:
                yield f"{table.name}: column {table.row_numbers!r} numbers the rows: left out"

    def _name_types(self) -> None:
        taken: set[str] = set()
        for table in self._tables:
            name = naming.edge_name(table.name) if table.ends else naming.type_name(table.name)
            unique, number = name, 2
            while unique.casefold() in taken:
                unique, number = f"{name}{number}", number + 1
            taken.add(unique.casefold())
            table.type = unique

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
        if is_key:
            why = table.key_why
        elif not any(path in reference.columns for reference in table.references):
            self._hints += hints_of(profile, table.source, owner)
        if name != table.local(path):
            why = f"column {path!r}" + (f"; {why}" if why else "")
        return PropertyDraft(
            name=name, type=kind, nullable=bool(missing) and not is_key, value=value, why=why
        )

    def _add_node(self, table: Table) -> None:
        node = NodeDraft(name=table.type, why=_table_why(table))
        self._nodes[node.name] = node
        if table.each is not None and not _own_key(table):
            self._add_parent_key(table, node)
        dropped = {
            column
            for reference in table.references
            for column in reference.columns
            if column not in table.key and reference.is_whole
        } | {table.row_numbers}
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
        name = naming.property_name(
            "position", node.name, {p.name.casefold() for p in node.properties}
        )
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
        create = columns is not None and self._options.create_endpoints
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
        taken = {name.casefold() for name in self._edges}
        names = [f"Has{naming.camel(role)}", f"{table.type}Has{naming.camel(role)}"]
        names += [f"{names[1]}{number}" for number in range(2, 100)]
        return next(name for name in names if name.casefold() not in taken)

    def _add_edge_list(self, table: Table, ends: tuple[str, str]) -> None:
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
        identity, reason = _edge_identity(table, tuple(ends), rest)
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

    def _end_tables(self, table: Table, ends: tuple[str, str]) -> list[Table | None]:
        """The tables whose keys are at the ends of an edge list."""
        candidates = [
            target
            for target in self._tables
            if target is not table and len(target.key) == 1 and not target.is_edge
        ]
        chosen: list[Table | None] = []
        for path in ends:
            ranked: list[tuple[float, int, Table]] = []
            for number, target in enumerate(candidates):
                values = containment(table, path, target, target.key[0])
                if values is not None and values.shares[0] >= 1 - _MISSING_SHARE_MAX:
                    ranked.append((1 - values.shares[0], number, target))
            chosen.append(min(ranked, key=lambda entry: entry[:2])[2] if ranked else None)
        return chosen

    def _new_endpoint(self, table: Table, path: str) -> Endpoint:
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
        node_id = ValueMapping(column=path, null=self._options.null_words)
        return Endpoint(type=_NODE, key={"node_id": node_id}, create=True)

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


def _edge_ends(table: Table) -> tuple[str, str] | None:
    if table.is_object or table.declared is not None:
        return None
    by_name = {naming.stem(table.local(path)): path for path in table.columns}
    by_name |= {naming.snake(table.local(path)): path for path in table.columns}
    for first, second in _ENDS:
        if first in by_name and second in by_name:
            ends = (by_name[first], by_name[second])
            profiles = [table.columns[path] for path in ends]
            if all(is_key_type(profile) and not profile.is_list for profile in profiles):
                return ends
    return None


def _is_range(table: Table, ends: tuple[str, str]) -> bool:
    """Whether two columns may be the bounds of a range instead of the ends of an edge."""
    first = naming.stem(table.local(ends[0]))
    is_text = all(table.columns[path].scalar() is ct.Scalar.STRING for path in ends)
    return first in _RANGES and not is_text


def _role(table: Table, reference: Reference) -> str:
    """What the target of a reference is to a record: the name of its column, or of the target."""
    pairs = zip(reference.columns, reference.target.key, strict=False)
    if len(reference.columns) == 1:
        return naming.stem(table.local(reference.columns[0]))
    own = [path for path, key in pairs if naming.snake(path) != naming.snake(key)]
    return own[0] if own else naming.type_name(reference.target.name)


def _own_key(table: Table) -> bool:
    return bool(table.key) and all(POSITION not in path for path in table.key)


def _is_join(table: Table) -> bool:
    """Whether a table has two references and nothing that identifies its rows otherwise."""
    if len(table.references) != 2 or table.is_object or table.parent is not None:
        return False
    if not all(_is_end(table, reference) for reference in table.references):
        return False
    columns = {column for reference in table.references for column in reference.columns}
    if len(table.key) == 1 or not set(table.key) <= columns:
        return False
    return len(table.columns) - len(columns) <= _JOIN_COLUMNS_MAX


def _is_end(table: Table, reference: Reference) -> bool:
    """Whether nearly every record has the row that a reference names.

    A record without an end would be no edge, and lost with its other values.
    """
    is_missing = any(table.columns[column].missing for column in reference.columns)
    is_sure = not (is_missing or reference.null or reference.is_list)
    return is_sure and reference.unmatched <= _UNMATCHED_MAX


def _edge_identity(
    table: Table, ends: tuple[str, ...], rest: Sequence[str]
) -> tuple[tuple[str, ...], str]:
    """What the ids of edges are made of beside their ends, and why."""
    if table.profile.distinct(*ends) is None or table.is_unique(*ends):
        return (), ""
    for path in rest:
        if table.is_unique(path):
            return (path,), f"; several edges between two nodes differ in {path}"
    hashed = [
        path
        for path in rest
        if table.columns[path].hashes is not None and not table.columns[path].missing
    ]
    if hashed and table.is_unique(*ends, *hashed):
        return tuple(hashed), f"; several edges between two nodes differ in {hashed}"
    return (table.digest,), "; the same edge occurs more than once: equal ones are numbered"


def _table_why(table: Table) -> str:
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
        name=naming.property_name(KEPT, "", {name.casefold() for name in taken}),
        type="String",
        nullable=True,
        value=ValueMapping(column=""),
        why="JSON of unknown columns",
    )
