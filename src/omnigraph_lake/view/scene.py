"""What a view shows: nodes, edges, totals and notes, wherever they came from.

Invariants:
- A scene is a value: the same elements in the same order give the same page, byte for byte.
- Both ends of every edge are nodes of the scene.
- Whatever was not included is said: by the totals, by notes, and by nodes that are not `complete`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec

from omnigraph_lake.display.cells import ELLIPSIS, short_id

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
_ULID_LENGTH: Final = 26
_COLORS: Final = (
    *("#6366f1", "#10b981", "#f59e0b", "#ec4899", "#0ea5e9"),
    *("#a855f7", "#14b8a6", "#f97316", "#84cc16", "#8b5cf6"),
)


class SceneKind(StrEnum):
    """What a scene is a picture of."""

    GRAPH = "graph"
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
    its neighbours is expanded. `complete` says that all its edges are in the scene.
    """

    key: NodeKey
    label: str
    properties: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)
    mark: Mark = Mark.PLAIN
    shown: bool = True
    complete: bool = True


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A picture before it is drawn.

    `nodes_total` and `edges_total` count what could have been shown, such as the whole graph.
    """

    kind: SceneKind
    title: str
    facts: Sequence[tuple[str, str]]
    nodes: Sequence[SceneNode]
    edges: Sequence[SceneEdge]
    nodes_total: int
    edges_total: int
    notes: Sequence[str] = ()

    @property
    def node_types(self) -> tuple[str, ...]:
        """Types of nodes, the most frequent first."""
        return _by_frequency(node.key[0] for node in self.nodes)

    @property
    def edge_types(self) -> tuple[str, ...]:
        return _by_frequency(edge.type for edge in self.edges)

    def visible(self) -> tuple[list[SceneNode], list[SceneEdge]]:
        """What is shown before anything is expanded."""
        nodes = [node for node in self.nodes if node.shown]
        keys = {node.key for node in nodes}
        edges = [edge for edge in self.edges if edge.source in keys and edge.target in keys]
        return nodes, edges


def color_of(place: int) -> str:
    """The colour of the type at this place of a legend."""
    if place < len(_COLORS):
        return _COLORS[place]
    return f"hsl({place * 137 % 360} 55% 55%)"


def label_of(properties: Mapping[str, object], node_id: str) -> str:
    """What people call a node: its name or title, otherwise its id."""
    lowered = {name.lower(): value for name, value in properties.items()}
    for title in _TITLES:
        value = lowered.get(title)
        if isinstance(value, str) and value.strip():
            return _limit(" ".join(value.split()), _LABEL_CHARACTERS_MAX)
    is_generated = len(node_id) == _ULID_LENGTH and node_id.isalnum() and node_id.isupper()
    return short_id(node_id) if is_generated else _limit(node_id, _LABEL_CHARACTERS_MAX)


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
        case msgspec.Raw():
            text = _token(value)
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


def _by_frequency(types: Iterable[str]) -> tuple[str, ...]:
    counts: dict[str, int] = {}
    for name in types:
        counts[name] = counts.get(name, 0) + 1
    return tuple(sorted(counts, key=lambda name: (-counts[name], name)))
