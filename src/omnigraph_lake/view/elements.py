"""Chooses what a view shows of one snapshot: nodes and edges, a sample of them, or its types.

Invariants:
- Every read is at the snapshot; few ids are looked up through an index, many are filtered from a
  scan.
- Reads stop at their limit and say so. What is read first depends only on the snapshot.
- A sample reads the first edges of every type, never a whole table of edges because it is large.
- Blobs are never read.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import product
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.display.cells import counted
from omnigraph_lake.errors import NotFoundError
from omnigraph_lake.language.diagnostics import shown as quoted
from omnigraph_lake.schema.catalog import EdgeEnd, Scalar, ScalarType
from omnigraph_lake.schema.ends import end_type_columns
from omnigraph_lake.schema.python_values import plain_rows
from omnigraph_lake.schema.show import show_property_type
from omnigraph_lake.storage.lance.tables import open_pinned, streamed
from omnigraph_lake.storage.refs.kept import gone_if_removed
from omnigraph_lake.view.scene import (
    NodeKey,
    Scene,
    SceneEdge,
    SceneKind,
    SceneNode,
    label_of,
    texts_of,
)

if TYPE_CHECKING:
    from omnigraph_lake.schema.catalog import Catalog, EdgeType, NodeType
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot

_LOOKED_UP_MAX: Final = 500
_EDGES_PER_NODE: Final = 20
_EDGES_LEAST: Final = 20_000
_END_COLUMNS: Final = (*names.END_TYPE_COLUMNS, *names.END_TYPE_COLUMNS.values())
_EDGES_OF_TYPE_LEAST: Final = 50
"""Edges that are read of a small type, so that its largest nodes are known."""
_NEAR_MAX: Final = 2
"""More edges to chosen nodes count no more, so that a sample has more than the largest hubs."""
_NODES_OF_TYPE_LEAST: Final = 50
"""With fewer of each type a sample says little about the types; the types themselves come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """Edges that touch some nodes, or are among them; `is_cut` if there are more."""

    edges: tuple[SceneEdge, ...]
    is_cut: bool


class SnapshotElements:
    """The nodes and edges of a graph at one snapshot.

    `node_rows` and `edge_rows` are its types in the order of the schema, and how many there are of
    each.
    """

    def __init__(self, root: Root, snapshot: Snapshot, catalog: Catalog) -> None:
        self._root = root
        self._snapshot = snapshot
        self._catalog = catalog
        self.node_rows = {name: self._rows_in(names.node_table_key(name)) for name in catalog.nodes}
        self.edge_rows = {name: self._rows_in(names.edge_table_key(name)) for name in catalog.edges}

    @property
    def nodes_total(self) -> int:
        return sum(self.node_rows.values())

    @property
    def edges_total(self) -> int:
        return sum(self.edge_rows.values())

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Which state of which graph is read."""
        return (
            ("graph", self._root.uri),
            ("branch", self._snapshot.branch_name),
            ("commit", self._snapshot.commit_id or "no commit yet"),
        )

    @property
    def name(self) -> str:
        """What people call the graph: the last part of its address."""
        return self._root.uri.rstrip("/").rpartition("/")[2]

    def ends_of(self, edge_type: str, row: Mapping[str, object]) -> tuple[NodeKey, NodeKey]:
        """The nodes that an edge connects."""
        declared = self._catalog.edges[edge_type]
        return (
            (_end_type(declared.source, row, names.SOURCE_COLUMN), str(row[names.SOURCE_COLUMN])),
            (_end_type(declared.target, row, names.TARGET_COLUMN), str(row[names.TARGET_COLUMN])),
        )

    def rows_of(self, types: Iterable[str]) -> int:
        """How many nodes there are of these types."""
        return sum(self.node_rows[name] for name in types)

    def nodes(self, keys: Iterable[NodeKey]) -> dict[NodeKey, dict[str, str]]:
        """The properties of these nodes as texts, without those that do not exist."""
        ids_by_type: dict[str, list[str]] = {}
        for type_name, node_id in keys:
            ids_by_type.setdefault(type_name, []).append(node_id)
        return {
            (type_name, str(row[names.ID_COLUMN])): texts_of(_without_id(row))
            for type_name, ids in ids_by_type.items()
            for row in self._rows(names.node_table_key(type_name), [names.ID_COLUMN], ids)
        }

    def edges_of(self, keys: Iterable[NodeKey], *, limit: int) -> Neighbourhood:
        """Edges with at least one of these nodes as an end, up to a limit."""
        ids_by_type: dict[str, list[str]] = {}
        for type_name, node_id in keys:
            ids_by_type.setdefault(type_name, []).append(node_id)
        edges: list[SceneEdge] = []
        for edge_type in sorted(self._catalog.edges):
            declared = self._catalog.edges[edge_type]
            by_id: dict[str, SceneEdge] = {}
            sources = [(names.SOURCE_COLUMN, end) for end in declared.source.names]
            targets = [(names.TARGET_COLUMN, end) for end in declared.target.names]
            for column, end in (*sources, *targets):
                rows = self._rows(
                    names.edge_table_key(edge_type), [column], ids_by_type.get(end, ())
                )
                for edge in self._edges(edge_type, rows):
                    node = edge.source if column == names.SOURCE_COLUMN else edge.target
                    if node[0] != end:
                        continue  # a node of another type with the same id
                    by_id[edge.id] = edge
                    if len(edges) + len(by_id) > limit:
                        return Neighbourhood(
                            edges=(*edges, *list(by_id.values())[:-1]), is_cut=True
                        )
            edges += by_id.values()
        return Neighbourhood(edges=tuple(edges), is_cut=False)

    def edges_among(self, types: Sequence[str], *, limit: int) -> Neighbourhood:
        """The first edges between nodes of these types, of each edge type by its share of rows."""
        among = set(types)
        joining = {
            name: self.edge_rows[name]
            for name, edge in self._catalog.edges.items()
            if self.edge_rows[name]
            and among & {*edge.source.names}
            and among & {*edge.target.names}
        }
        shares = {
            name: max(limit * count // sum(joining.values()), _EDGES_OF_TYPE_LEAST)
            for name, count in joining.items()
        }
        edges = [
            edge
            for name, share in shares.items()
            for batch in self._first_rows(names.edge_table_key(name), share).to_batches()
            for edge in self._edges(name, plain_rows(batch))
        ]
        return Neighbourhood(
            edges=tuple(edge for edge in edges if {edge.source[0], edge.target[0]} <= among),
            is_cut=any(shares[name] < count for name, count in joining.items()),
        )

    def types(self) -> Scene:
        """The types of the graph: how many there are of each, and what its edges connect."""
        rows, most = self.node_rows, max(self.node_rows.values(), default=0)
        nodes = [
            SceneNode(
                key=(name, name),
                label=f"{name} {rows[name]:,}",
                properties=_type_texts(self._catalog.nodes[name]),
                size=math.log(2 + rows[name]) / math.log(2 + most),
            )
            for name in sorted(rows, key=lambda name: -rows[name])
        ]
        edges = [
            SceneEdge(
                type=name,
                id="",
                source=(source, source),
                target=(target, target),
                properties=_type_texts(edge),
                label=f"{name} {self.edge_rows[name]:,}"
                + (" in all" if edge.source.is_polymorphic or edge.target.is_polymorphic else ""),
            )
            for name, edge in self._catalog.edges.items()
            for source, target in product(edge.source.names, edge.target.names)
        ]
        return Scene(
            kind=SceneKind.TYPES,
            title=self.name,
            facts=self.facts,
            nodes=nodes,
            edges=edges,
            nodes_total=self.nodes_total,
            edges_total=self.edges_total,
            node_rows=rows,
            edge_rows=self.edge_rows,
        )

    def sample(self, limit: int, types: Sequence[str]) -> list[NodeKey]:
        """The first nodes of these types, as many of each as its share of the rows, at least 1."""
        total = self.rows_of(types)
        keys: list[NodeKey] = []
        for name in filter(self.node_rows.get, types):
            count = self.node_rows[name]
            share = count if total <= limit else max(limit * count // total, 1)
            ids = self._first_rows(names.node_table_key(name), share, [names.ID_COLUMN])
            keys += [(name, node_id) for node_id in ids.column(0).to_pylist()]
        return keys[:limit]

    def _first_rows(self, table_key: str, count: int, columns: Sequence[str] = ()) -> pa.Table:
        entry = self._snapshot.tables[table_key]
        with gone_if_removed(self._root, entry):
            dataset = open_pinned(self._root, entry)
            kept = self._without_blobs(table_key, columns or dataset.schema.names)
            return streamed(self._root, entry, dataset, columns=kept, limit=count).read_all()

    def _edges(self, edge_type: str, rows: Iterable[Mapping[str, object]]) -> Iterator[SceneEdge]:
        hidden = {*names.SYSTEM_COLUMNS, *end_type_columns(self._catalog.edges[edge_type])}
        for row in rows:
            source, target = self.ends_of(edge_type, row)
            yield SceneEdge(
                type=edge_type,
                id=str(row[names.ID_COLUMN]),
                source=source,
                target=target,
                properties=texts_of({name: row[name] for name in row if name not in hidden}),
            )

    def _rows(
        self, table_key: str, columns: Sequence[str], ids: Sequence[str]
    ) -> Iterator[dict[str, object]]:
        """The rows of which one of these columns holds one of these ids."""
        entry = self._snapshot.tables.get(table_key)
        if entry is None or not entry.row_count or not ids:
            return
        wanted = pa.array(ids, pa.string())
        with gone_if_removed(self._root, entry):
            dataset = open_pinned(self._root, entry, with_indexes=True)
            kept_columns = self._without_blobs(table_key, dataset.schema.names)
            where = _where(columns, ids) if len(ids) <= _LOOKED_UP_MAX else None
            reader = streamed(self._root, entry, dataset, columns=kept_columns, where=where)
            for batch in reader:
                matching = pc.is_in(batch.column(columns[0]), value_set=wanted)
                for column in columns[1:]:
                    matching = pc.or_(matching, pc.is_in(batch.column(column), value_set=wanted))
                yield from plain_rows(batch.filter(matching))

    def _without_blobs(self, table_key: str, columns: Sequence[str]) -> list[str]:
        declared = self._catalog.tables()[table_key].properties.values()
        blobs = {prop.name for prop in declared if prop.type == ScalarType(scalar=Scalar.BLOB)}
        return [name for name in columns if name not in blobs]

    def _rows_in(self, table_key: str) -> int:
        entry = self._snapshot.tables.get(table_key)
        return 0 if entry is None else entry.row_count


def neighbourhood(elements: SnapshotElements, start: NodeKey, *, hops: int, limit: int) -> Scene:
    """A node and all within so many hops of it, up to a limit; the nearer ones come first.

    Raises:
        NotFoundError: there is no such node.
    """
    if not elements.nodes([start]):
        raise NotFoundError(
            f"{elements.facts[0][1]} has no {start[0]} with the id {quoted(start[1])}",
            next_step="Name a node as TYPE/ID; `omnigraph query` finds ids.",
        )
    reached: dict[NodeKey, None] = {start: None}
    edges: dict[tuple[str, str], SceneEdge] = {}
    wave, is_cut = [start], False
    for _ in range(hops):
        if not wave:
            break
        around = elements.edges_of(wave, limit=_edge_limit(limit))
        ends = [end for edge in around.edges for end in (edge.source, edge.target)]
        following = [end for end in dict.fromkeys(ends) if end not in reached]
        edges |= {(edge.type, edge.id): edge for edge in around.edges}
        wave = following[: limit - len(reached)]
        is_cut |= around.is_cut or len(wave) < len(following)
        reached |= dict.fromkeys(wave)
    inner = [edge for edge in edges.values() if edge.source in reached and edge.target in reached]
    distance = counted(hops, "hop")
    chosen = Chosen(
        title=f"{start[0]} {start[1]}, {distance}",
        nodes=list(reached),
        edges=inner,
        notes=[f"More nodes are within {distance}; this page shows the first {limit:,}."]
        if is_cut
        else [],
        properties={},
    )
    return scene_around(elements, chosen, limit=limit)


def overview(elements: SnapshotElements, types: Sequence[str], *, limit: int) -> Scene:
    """The nodes of these types and the edges between them, or a sample and the types themselves.

    The sample comes first if it has enough nodes of each type to say something about it.
    """
    total = elements.rows_of(types)
    title = elements.name if total == elements.nodes_total else ", ".join(types)
    if total <= limit:
        nodes = elements.sample(limit, types)
        chosen = Chosen(title=title, nodes=nodes, edges=(), properties={})
        return scene_around(elements, chosen, limit=limit)
    around = elements.edges_among(types, limit=limit * _EDGES_PER_NODE)
    chosen = Chosen(
        title=title,
        nodes=_choose_connected(elements, types, around.edges, limit),
        edges=(),
        notes=[_SAMPLE_NOTE if around.edges else _WITHOUT_EDGES_NOTE],
        properties={},
    )
    sample = replace(scene_around(elements, chosen, limit=limit, around=around), is_sample=True)
    if not around.edges or total < elements.nodes_total:
        return sample
    described = elements.types()
    if len(described.nodes) * _NODES_OF_TYPE_LEAST > limit:
        return replace(described, other=sample)
    return replace(sample, other=described)


def _choose_connected(
    elements: SnapshotElements, types: Sequence[str], edges: Sequence[SceneEdge], limit: int
) -> list[NodeKey]:
    """Nodes that edges connect, and of each type without edges as many as its share."""
    joined = {end[0] for edge in edges for end in (edge.source, edge.target)}
    alone = [name for name in types if name not in joined]
    share = limit * elements.rows_of(alone) // elements.rows_of(types)
    apart = elements.sample(max(share, len(alone)), alone)
    grown = _grow(edges, limit - len(apart))
    rest = elements.sample(limit, types) if len(grown) + len(apart) < limit else []
    return list(dict.fromkeys([*grown, *apart, *rest]))[:limit]


def _grow(edges: Sequence[SceneEdge], limit: int) -> list[NodeKey]:
    """Connected nodes: hubs and their neighbours, with edges of every type in proportion.

    The next node is at an edge of the type that is furthest below its share: the one with most
    edges to chosen nodes, and of these the one with most edges.
    """
    touching: dict[NodeKey, list[tuple[str, NodeKey]]] = defaultdict(list)
    for edge in edges:
        for end, other in dict.fromkeys(((edge.source, edge.target), (edge.target, edge.source))):
            touching[end].append((edge.type, other))
    waiting: dict[str, list[tuple[int, int, NodeKey]]] = defaultdict(list)
    for edge in edges:
        waiting[edge.type] += [(0, -len(touching[end]), end) for end in (edge.source, edge.target)]
    for heap in waiting.values():
        heapify(heap)
    sizes, shown, near = Counter(edge.type for edge in edges), Counter[str](), Counter[NodeKey]()
    chosen: dict[NodeKey, None] = {}
    while waiting and len(chosen) < limit:
        name = min(waiting, key=lambda name: (shown[name] + 1) / sizes[name])
        node = heappop(waiting[name])[-1]
        if not waiting[name]:
            del waiting[name]
        if node in chosen:
            continue
        chosen[node] = None
        for kind, other in touching[node]:
            shown[kind] += other in chosen
            near[other] += 1
            if other not in chosen:
                rank = (-min(near[other], _NEAR_MAX), -len(touching[other]), other)
                heappush(waiting[kind], rank)
    return list(chosen)


_SAMPLE_NOTE: Final = "A sample: of the first edges of every type those that connect most nodes."
_WITHOUT_EDGES_NOTE: Final = "A sample: the first nodes of every type."


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The elements that a scene shows at first, and what it says about them.

    `properties` are texts of nodes that need not be read again.
    """

    title: str
    nodes: Sequence[NodeKey]
    edges: Sequence[SceneEdge]
    notes: Sequence[str] = ()
    properties: Mapping[NodeKey, Mapping[str, str]]


def scene_around(
    elements: SnapshotElements,
    chosen: Chosen,
    *,
    limit: int,
    around: Neighbourhood | None = None,
) -> Scene:
    """The scene of some elements, with what one more hop reaches, to be shown when expanded."""
    shown = dict.fromkeys(chosen.nodes)
    around = around or elements.edges_of(shown, limit=_edge_limit(limit))
    edges = {(edge.type, edge.id): edge for edge in chosen.edges}
    further: dict[NodeKey, None] = {}
    dropped: set[NodeKey] = set()
    for edge in around.edges:
        outer = [end for end in (edge.source, edge.target) if end not in shown]
        if any(end not in further and len(further) >= limit for end in outer):
            dropped.update(end for end in (edge.source, edge.target) if end in shown)
            continue
        further |= dict.fromkeys(outer)
        edges.setdefault((edge.type, edge.id), edge)
    missing = [key for key in (*shown, *further) if key not in chosen.properties]
    texts = {**elements.nodes(missing), **chosen.properties}
    nodes = [
        SceneNode(
            key=key,
            label=label_of(texts.get(key, {}), key[1]),
            properties=texts.get(key, {}),
            shown=key in shown,
            complete=key in shown and key not in dropped and not around.is_cut,
        )
        for key in (*shown, *further)
    ]
    notes = list(chosen.notes)
    if dropped or around.is_cut:
        notes.append(
            "Not every neighbour is in this page; the details of a node say if some are missing."
        )
    return Scene(
        kind=SceneKind.GRAPH,
        title=chosen.title,
        facts=elements.facts,
        nodes=nodes,
        edges=tuple(edges.values()),
        nodes_total=elements.nodes_total,
        edges_total=elements.edges_total,
        notes=notes,
        node_rows=elements.node_rows,
        edge_rows=elements.edge_rows,
    )


def _edge_limit(limit: int) -> int:
    return max(_EDGES_LEAST, limit * _EDGES_PER_NODE)


def _where(columns: Sequence[str], ids: Sequence[str]) -> str:
    quoted_ids = ", ".join("'" + text.replace("'", "''") + "'" for text in ids)
    return " OR ".join(f"`{column}` IN ({quoted_ids})" for column in columns)


def _without_id(row: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name != names.ID_COLUMN}


def _type_texts(declared: NodeType | EdgeType) -> dict[str, str]:
    return {prop.name: show_property_type(prop) for prop in declared.properties.values()}


def _end_type(end: EdgeEnd, row: Mapping[str, object], column: str) -> str:
    """The type of the node at an end of an edge, by its number or by its name."""
    if not end.is_polymorphic:
        return end.only
    stored = row[names.END_TYPE_COLUMNS[column]]
    if stored is None:
        return str(end.implicit)
    numbered = {number: name for name, number in end.numbers().items()}
    return numbered[stored] if isinstance(stored, int) else str(stored)
