"""Chooses what a view shows: nodes and edges of one snapshot, or the commits of a history.

Invariants:
- Every read is at the snapshot; few ids are looked up through an index, many are filtered from a
  scan.
- Reads stop at their limit and say so. What is read first depends only on the snapshot.
- Blobs are never read.
- In a history no commit comes before one that descends from it, whatever clocks said.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph_lake import names
from omnigraph_lake.display.cells import counted, cut, short_ids
from omnigraph_lake.errors import NotFoundError
from omnigraph_lake.language.diagnostics import shown as quoted
from omnigraph_lake.schema.catalog import EdgeEnd, Scalar, ScalarType
from omnigraph_lake.schema.ends import end_type_columns
from omnigraph_lake.schema.python_values import plain_rows
from omnigraph_lake.storage.lance.tables import open_pinned, streamed
from omnigraph_lake.storage.refs.kept import gone_if_removed
from omnigraph_lake.view.scene import (
    MERGED,
    NodeKey,
    Scene,
    SceneEdge,
    SceneKind,
    SceneNode,
    label_of,
    texts_of,
)

if TYPE_CHECKING:
    from omnigraph_lake.schema.catalog import Catalog
    from omnigraph_lake.storage.manifest.commit_graph import CommitGraph
    from omnigraph_lake.storage.manifest_rows import GraphCommit
    from omnigraph_lake.storage.objects.location import Root
    from omnigraph_lake.storage.snapshot import Snapshot, TableEntry

_LOOKED_UP_MAX: Final = 500
_EDGES_PER_NODE: Final = 20
_EDGES_LEAST: Final = 20_000
_TYPES_WIDTH: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """Edges that touch some nodes; `is_cut` if there are more."""

    edges: tuple[SceneEdge, ...]
    is_cut: bool


class SnapshotElements:
    """The nodes and edges of a graph at one snapshot."""

    def __init__(self, root: Root, snapshot: Snapshot, catalog: Catalog) -> None:
        self._root = root
        self._snapshot = snapshot
        self._catalog = catalog

    @property
    def nodes_total(self) -> int:
        return self._rows_of(names.NODE_PREFIX)

    @property
    def edges_total(self) -> int:
        return self._rows_of(names.EDGE_PREFIX)

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
        keys = [names.node_table_key(name) for name in types]
        return sum(
            self._snapshot.tables[key].row_count for key in keys if key in self._snapshot.tables
        )

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
                for edge in self._edges(edge_type, column, ids_by_type.get(end, ())):
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

    def sample(self, limit: int, types: Sequence[str]) -> list[NodeKey]:
        """The first nodes of these types, as many of each as its share of the rows, at least 1."""
        entries = [
            (name, self._snapshot.tables[names.node_table_key(name)])
            for name in types
            if names.node_table_key(name) in self._snapshot.tables
        ]
        total = sum(entry.row_count for _, entry in entries)
        keys: list[NodeKey] = []
        for name, entry in entries:
            share = limit if total <= limit else max(limit * entry.row_count // total, 1)
            keys += [(name, node_id) for node_id in self._first_ids(entry, share)]
        return keys[:limit]

    def _first_ids(self, entry: TableEntry, count: int) -> list[str]:
        ids: list[str] = []
        if not entry.row_count:
            return ids
        with gone_if_removed(self._root, entry):
            dataset = open_pinned(self._root, entry)
            for batch in streamed(self._root, entry, dataset, columns=[names.ID_COLUMN]):
                ids += batch.column(0).slice(0, count - len(ids)).to_pylist()
                if len(ids) >= count:
                    break
        return ids

    def _edges(self, edge_type: str, column: str, ids: Sequence[str]) -> Iterator[SceneEdge]:
        hidden = {*names.SYSTEM_COLUMNS, *end_type_columns(self._catalog.edges[edge_type])}
        for row in self._rows(names.edge_table_key(edge_type), [column], ids):
            source, target = self.ends_of(edge_type, row)
            properties = {name: value for name, value in row.items() if name not in hidden}
            yield SceneEdge(
                type=edge_type,
                id=str(row[names.ID_COLUMN]),
                source=source,
                target=target,
                properties=texts_of(properties),
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
            blobs = self._blobs(table_key)
            kept_columns = [name for name in dataset.schema.names if name not in blobs]
            where = _where(columns, ids) if len(ids) <= _LOOKED_UP_MAX else None
            reader = streamed(self._root, entry, dataset, columns=kept_columns, where=where)
            for batch in reader:
                matching = pc.is_in(batch.column(columns[0]), value_set=wanted)
                for column in columns[1:]:
                    matching = pc.or_(matching, pc.is_in(batch.column(column), value_set=wanted))
                yield from plain_rows(batch.filter(matching))

    def _blobs(self, table_key: str) -> set[str]:
        declared = self._catalog.tables()[table_key].properties.values()
        return {prop.name for prop in declared if prop.type == ScalarType(scalar=Scalar.BLOB)}

    def _rows_of(self, prefix: str) -> int:
        return sum(
            entry.row_count
            for key, entry in self._snapshot.tables.items()
            if key.startswith(prefix)
        )


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
    """The nodes of these types and the edges between them, or a part if there are too many."""
    nodes = elements.sample(limit, types)
    total = elements.rows_of(types)
    chosen = Chosen(
        title=elements.name if total == elements.nodes_total else ", ".join(types),
        nodes=nodes,
        edges=(),
        notes=[f"This page shows the first {len(nodes):,} of {counted(total, 'node')}."]
        if len(nodes) < total
        else [],
        properties={},
    )
    return scene_around(elements, chosen, limit=limit)


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


def scene_around(elements: SnapshotElements, chosen: Chosen, *, limit: int) -> Scene:
    """The scene of some elements, with what one more hop reaches, to be shown when expanded."""
    shown = dict.fromkeys(chosen.nodes)
    around = elements.edges_of(shown, limit=_edge_limit(limit))
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
    )


def commit_scene(
    graph: CommitGraph,
    *,
    labels: Mapping[str, Sequence[str]],
    facts: Sequence[tuple[str, str]],
    limit: int,
) -> Scene:
    """The newest commits of a history; `labels` are branches and tags by the commit they name."""
    ordered = graph.newest_first()
    shown = ordered[:limit]
    short = short_ids(graph.commits)
    keys: dict[str, NodeKey] = {commit.commit_id: _commit_key(commit) for commit in shown}
    nodes = [
        SceneNode(
            key=keys[commit.commit_id],
            label=_commit_label(commit, short[commit.commit_id], labels.get(commit.commit_id, ())),
            properties=_commit_properties(commit, labels.get(commit.commit_id, ())),
        )
        for commit in shown
    ]
    edges = [
        SceneEdge(type=kind, id=parent, source=keys[commit.commit_id], target=keys[parent])
        for commit in shown
        for kind, parent in (("parent", commit.parent_id), (MERGED, commit.merged_parent_id))
        if parent in keys
    ]
    older = len(ordered) - len(shown)
    return Scene(
        kind=SceneKind.COMMITS,
        title="History",
        facts=facts,
        nodes=nodes,
        edges=edges,
        nodes_total=len(ordered),
        edges_total=len(edges),
        notes=[f"{counted(older, 'older commit')} not shown."] if older else [],
    )


def _commit_key(commit: GraphCommit) -> NodeKey:
    return commit.branch or names.MAIN, commit.commit_id


def _commit_label(commit: GraphCommit, short: str, labels: Sequence[str]) -> str:
    types = ", ".join(table_key.partition(":")[2] for table_key, _, _ in commit.tables)
    verb = "merge" if commit.merged_parent_id else "schema" if commit.schema_change else ""
    words = [
        *(f"[{label}]" for label in labels),
        short,
        f"{commit.created_at[:16].replace('T', ' ')}",
        commit.actor,
        cut(commit.note.subject or " ".join(filter(None, (verb, types))), _TYPES_WIDTH),
    ]
    return " · ".join(word for word in words if word)


def _commit_properties(commit: GraphCommit, labels: Sequence[str]) -> dict[str, str]:
    properties = {
        "branch": commit.branch or names.MAIN,
        "names": ", ".join(labels),
        "actor": commit.actor,
        "created": commit.created_at,
        "message": commit.message or "",
        **{f"metadata {name}": text for name, text in commit.metadata.items()},
        "parent": commit.parent_id or "",
        "merged": commit.merged_parent_id or "",
        "operation": commit.operation_id,
        "manifest": str(commit.manifest_version),
        "tables": "\n".join(
            f"{table_key} version {version}" for table_key, version, _ in commit.tables
        ),
        "schema": "changed" if commit.schema_change else "",
    }
    return {name: text for name, text in properties.items() if text}


def _edge_limit(limit: int) -> int:
    return max(_EDGES_LEAST, limit * _EDGES_PER_NODE)


def _where(columns: Sequence[str], ids: Sequence[str]) -> str:
    quoted_ids = ", ".join("'" + text.replace("'", "''") + "'" for text in ids)
    return " OR ".join(f"`{column}` IN ({quoted_ids})" for column in columns)


def _without_id(row: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name != names.ID_COLUMN}


def _end_type(end: EdgeEnd, row: Mapping[str, object], column: str) -> str:
    """The type of the node at an end of an edge, by its number or by its name."""
    if not end.is_polymorphic:
        return end.only
    stored = row[names.END_TYPE_COLUMNS[column]]
    if stored is None:
        return str(end.implicit)
    numbered = {number: name for name, number in end.numbers().items()}
    return numbered[stored] if isinstance(stored, int) else str(stored)
