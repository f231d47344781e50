"""What a view shows: nodes, edges, totals and notes, wherever they came from; and commits as such.

Invariants:
- A scene is a value: the same elements in the same order give the same page, byte for byte.
- Both ends of every edge are nodes of the scene.
- Whatever was not included is said: by the totals, by notes, and by nodes that are not `complete`.
- In a history no commit comes before one that descends from it, whatever clocks said.
- A type has one colour in all scenes of a schema, by its place in it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from colorsys import hls_to_rgb
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from omnigraph_lake import names
from omnigraph_lake.display.cells import ELLIPSIS, counted, cut, short_id, short_ids

if TYPE_CHECKING:
    from omnigraph_lake.storage.manifest.commit_graph import CommitGraph
    from omnigraph_lake.storage.manifest_rows import GraphCommit

NodeKey: TypeAlias = tuple[str, str]
"""The type and the id of a node."""

MERGED: Final = "merged"
"""The type of the edge from a merge to the commit that it merged."""
NODES_MAX: Final = 20_000
"""A page with more nodes takes longer to appear than people wait."""

_VALUE_CHARACTERS_MAX: Final = 2_000
_LABEL_CHARACTERS_MAX: Final = 60
_ITEMS_MAX: Final = 8
_TITLES: Final = ("name", "title", "label", "full_name", "display_name")
_GENERATED: Final = re.compile(r"[0-9A-Z]{26}|[0-9a-f]{32}(~\d+)?")
"""An id that no person chose: a ULID, or a digest of a record without a key."""
_TYPES_WIDTH: Final = 60
_COLORS: Final = (
    *("#6366f1", "#10b981", "#f59e0b", "#ec4899", "#0ea5e9"),
    *("#a855f7", "#14b8a6", "#f97316", "#84cc16", "#ef4444"),
)


class SceneKind(StrEnum):
    """What a scene is a picture of."""

    GRAPH = "graph"
    TYPES = "types"
    DIFF = "diff"
    COMMITS = "commits"


class Mark(StrEnum):
    """What happened to an element between the two sides of a diff."""

    PLAIN = "plain"
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneNode:
    """A node, with its properties as texts.

    `before` are the former texts of what changed. A node that is not `shown` appears when one of
    its neighbours is expanded. `complete` says that all its edges are in the scene. `size` is at
    most 1, and 0 for a size that its edges decide.
    """

    key: NodeKey
    label: str
    properties: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    mark: Mark = Mark.PLAIN
    shown: bool = True
    complete: bool = True
    size: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneEdge:
    """An edge, with its properties as texts."""

    type: str
    id: str
    source: NodeKey
    target: NodeKey
    properties: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    mark: Mark = Mark.PLAIN
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A picture before it is drawn.

    `nodes_total` and `edges_total` count what could have been shown, such as the whole graph.
    `node_rows` and `edge_rows` are the types of the schema in its order, with how many there are of
    each. `other` is what the page of this scene shows as well, at the choice of its reader.
    """

    kind: SceneKind
    title: str
    facts: Sequence[tuple[str, str]]
    nodes: Sequence[SceneNode]
    edges: Sequence[SceneEdge]
    nodes_total: int
    edges_total: int
    notes: Sequence[str] = ()
    is_sample: bool = False
    node_rows: Mapping[str, int] = field(default_factory=dict)
    edge_rows: Mapping[str, int] = field(default_factory=dict)
    other: Scene | None = None

    @property
    def node_colors(self) -> Mapping[str, str]:
        """The colour of every type of nodes, the most frequent first."""
        return _colors(self.node_rows, (node.key[0] for node in self.nodes), color_of)

    @property
    def edge_colors(self) -> Mapping[str, str]:
        """The same of edges; less saturated, because lines cross what matters more."""
        paint = partial(_spread, lightness=0.6, saturation=0.32)
        return _colors(self.edge_rows, (edge.type for edge in self.edges), paint)

    def visible(self) -> tuple[list[SceneNode], list[SceneEdge]]:
        """What is shown before anything is expanded."""
        nodes = [node for node in self.nodes if node.shown]
        keys = {node.key for node in nodes}
        edges = [edge for edge in self.edges if edge.source in keys and edge.target in keys]
        return nodes, edges


def color_of(place: int) -> str:
    """The colour of the type at this place."""
    return (
        _COLORS[place] if place < len(_COLORS) else _spread(place, lightness=0.55, saturation=0.55)
    )


def _colors(
    order: Iterable[str], types: Iterable[str], paint: Callable[[int], str]
) -> Mapping[str, str]:
    by_count = [name for name, _ in Counter(types).most_common()]
    places = {name: place for place, name in enumerate(list(order) or by_count)}
    return {name: paint(places[name]) for name in by_count}


def _spread(place: int, *, lightness: float, saturation: float) -> str:
    """Hues that are far apart, in hexadecimal: WebGL has no other notation."""
    parts = hls_to_rgb(place * 137 % 360 / 360, lightness, saturation)
    return "#" + "".join(f"{round(part * 255):02x}" for part in parts)


def label_of(properties: Mapping[str, object], node_id: str) -> str:
    """What people call a node: its name or title, otherwise its id."""
    lowered = {name.lower(): value for name, value in properties.items()}
    for title in _TITLES:
        value = lowered.get(title)
        if isinstance(value, str) and value.strip():
            return _limit(" ".join(value.split()), _LABEL_CHARACTERS_MAX)
    if _GENERATED.fullmatch(node_id):
        return short_id(node_id)
    with suppress(msgspec.DecodeError):
        node_id = " ".join(msgspec.json.decode(node_id, type=list[str]))
    return _limit(node_id, _LABEL_CHARACTERS_MAX)


def texts_of(properties: Mapping[str, object]) -> dict[str, str]:
    """The properties that are not null, as texts."""
    return {name: text_of(value) for name, value in properties.items() if value is not None}


def text_of(value: object) -> str:
    """A value as people read it; a long list by its first items and its length."""
    match value:
        case None:
            text = "null"
        case str():
            text = value
        case msgspec.Raw():
            text = bytes(value).decode()
        case bool():
            text = str(value).lower()
        case bytes():
            text = f"{len(value):,} bytes"
        case Decimal():
            text = f"{value:f}"
        case list() | tuple():
            items = ", ".join(map(text_of, value[:_ITEMS_MAX]))
            more = f", {ELLIPSIS} {len(value):,} items" if len(value) > _ITEMS_MAX else ""
            text = f"[{items}{more}]"
        case dict():
            text = json.dumps(value, ensure_ascii=False, default=_token)
        case _:
            text = str(value)
    return _limit(text, _VALUE_CHARACTERS_MAX)


def _token(value: object) -> str:
    """A number that JSON holds and Python does not, in its digits."""
    return bytes(value).decode() if isinstance(value, msgspec.Raw) else str(value)


def _limit(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}{ELLIPSIS}"


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
