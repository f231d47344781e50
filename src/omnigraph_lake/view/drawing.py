"""A view: a scene that can be saved as a page or as an SVG, and that notebooks show.

Invariants:
- A file is complete or not there. In a notebook the page is in a frame of its own, without access
  to the notebook.
- The picture is XML whatever names and values hold: control characters are escaped, and so is
  markup. It has no script, no address of its own and no font that must be loaded, and it follows
  the light or dark preference of its reader.
- Labels of a picture do not overlap each other or leave it; the nodes with most edges get theirs
  first.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Final

from omnigraph_lake.arguments import count_from
from omnigraph_lake.display.cells import counted, cut, printable, short_id
from omnigraph_lake.display.pages import Displayed, Page
from omnigraph_lake.errors import InvalidInputError
from omnigraph_lake.storage.objects.paths import cannot_write, checked_path
from omnigraph_lake.view.layout import Points, degrees_of, lay_out
from omnigraph_lake.view.page import scene_page
from omnigraph_lake.view.scene import (
    MERGED,
    NODES_MAX,
    Mark,
    NodeKey,
    Scene,
    SceneEdge,
    SceneKind,
    SceneNode,
)

_FRAME_HEIGHT: Final = 640
_SUFFIXES: Final = (".html", ".svg")
WIDTH: Final = 1200
HEIGHT: Final = 800
_MARGIN: Final = 36
_HEADER: Final = 64
_FOOTER: Final = 52
_LETTER: Final = 6.4
"""The width of a letter of a label, on average."""
_LINE: Final = 15
_LABELS_MAX: Final = 400
_GENERATED_MAX: Final = 60
"""Of more nodes, those whose id no person chose have no label."""
_ARROWS_MAX: Final = 2_000
_LABEL_CHARACTERS: Final = 28
_BEND: Final = 26
"""How far apart edges between the same nodes are."""
_COMMIT_ROW: Final = 30
_COMMIT_LANE: Final = 22
MARK_SIGNS: Final = {Mark.PLAIN: "", Mark.ADDED: "+ ", Mark.REMOVED: "\u2212 ", Mark.CHANGED: "~ "}
_STYLE: Final = """
text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:#1e293b}
.paper{fill:#ffffff}.title{font-size:18px;font-weight:600}.soft{fill:#64748b}
.label{paint-order:stroke;stroke:#ffffff;stroke-width:4px;stroke-linejoin:round}.small{font-size:10px}
.edge{stroke-opacity:.6;fill:none}
.lane{fill:none;stroke-width:2}.node{stroke:#ffffff;stroke-width:1.5}
.added{stroke:#16a34a;stroke-opacity:.9}
.removed{stroke:#dc2626;stroke-opacity:.9;stroke-dasharray:5 4}
.changed{stroke:#d97706;stroke-opacity:.9}
@media (prefers-color-scheme:dark){text{fill:#e2e8f0}.paper{fill:#0b1120}.soft{fill:#94a3b8}
.label{stroke:#0b1120}.node{stroke:#0b1120}
.added{stroke:#22c55e}.removed{stroke:#f87171}.changed{stroke:#fbbf24}}
"""
MARK_COLORS: Final = {
    Mark.PLAIN: "#94a3b8",
    Mark.ADDED: "#16a34a",
    Mark.REMOVED: "#dc2626",
    Mark.CHANGED: "#d97706",
}


class View(Displayed):
    """A picture of nodes and edges: a page to explore, or an SVG for a document."""

    __slots__ = ("_scene",)

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    @property
    def scene(self) -> Scene:
        """What is drawn."""
        return self._scene

    def html(self) -> str:
        """One self-contained page; it makes no request."""
        return scene_page(self._scene)

    def svg(self) -> str:
        """A picture of what the page shows at first."""
        return scene_picture(self._scene)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a page (`.html`) or a picture (`.svg`), replacing an existing file.

        Raises:
            InvalidInputError: the file has another ending.
        """
        target = checked_path(path, argument="path")
        match target.suffix.lower():
            case ".html" | ".htm":
                content = self.html()
            case ".svg":
                content = self.svg()
            case _:
                raise InvalidInputError(
                    f"cannot write a view to {target}, expected a file that ends with "
                    f"{' or '.join(_SUFFIXES)}",
                    next_step=f"Write to {target.with_suffix('.html')}.",
                )
        write_file(target, content)
        return target

    def _page(self) -> Page:
        return Page(summary=f"{self._scene.title}: {count_text(self._scene)}")

    def __repr__(self) -> str:
        return f"<View {self}>"

    def _repr_html_(self) -> str:
        return frame_of(self.html(), title=str(self))


def frame_of(page: str, *, title: str) -> str:
    """A page inside of another one, from which it is separated."""
    return (
        f'<iframe sandbox="allow-scripts" title="{escape(title)}" srcdoc="{escape(page)}" '
        f'width="100%" height="{_FRAME_HEIGHT}" frameborder="0"></iframe>'
    )


def write_file(target: Path, content: str) -> None:
    """Write a text completely, or not at all."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        unfinished.write_text(content, encoding="utf-8", newline="\n")
        unfinished.replace(target)
    except OSError as error:
        raise cannot_write(target, error) from error
    finally:
        unfinished.unlink(missing_ok=True)


def node_limit(limit: object) -> int:
    """How many nodes a caller wants to see.

    Raises:
        InvalidInputError: more than a page can show.
    """
    count = count_from(1, limit, argument="limit")
    if count > NODES_MAX:
        raise InvalidInputError(
            f"limit is {count:,}, expected at most {NODES_MAX:,} nodes",
            next_step="Show fewer, or export the graph for a program that draws more.",
        )
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """The size of a picture, and where every shown node is in it."""

    width: int
    height: int
    places: Mapping[NodeKey, tuple[float, float]]
    radii: Mapping[NodeKey, float]


def _colors(scene: Scene) -> Mapping[NodeKey, str]:
    """By type; in a diff by what happened to a node."""
    if scene.kind is SceneKind.DIFF:
        return {node.key: MARK_COLORS[node.mark] for node in scene.nodes}
    colors = scene.node_colors
    return {node.key: colors[node.key[0]] for node in scene.nodes}


def _line_colors(scene: Scene) -> Mapping[str, str]:
    """The same of edges."""
    if scene.kind is SceneKind.DIFF:
        return {mark.value: color for mark, color in MARK_COLORS.items()}
    return scene.edge_colors


def scene_picture(scene: Scene) -> str:
    """What a view shows before anything is expanded."""
    nodes, edges = scene.visible()
    shown = replace(scene, nodes=nodes, edges=edges)
    frame, colors = _frame(shown), _colors(shown)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {frame.width} {frame.height}" '
        f'width="{frame.width}" height="{frame.height}" role="img">',
        f"<title>{_text(scene.title)}</title>",
        f"<style>{_STYLE}</style>",
        *(_arrow_heads(_line_colors(shown)) if _has_arrows(shown) else ()),
        f'<rect class="paper" width="{frame.width}" height="{frame.height}"/>',
        f'<text class="title" x="{_MARGIN}" y="34">{_text(cut(scene.title, 90))}</text>',
        f'<text class="soft" x="{_MARGIN}" y="54">'
        f"{_text(cut(', '.join([count_text(scene), *map(' '.join, scene.facts)]), 170))}</text>",
        *_lines(shown, frame, colors),
        *(_node(node, frame, colors[node.key]) for node in nodes),
        *_labels(shown, frame),
        *_legend(shown, frame),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _frame(scene: Scene) -> _Frame:
    degrees = degrees_of(scene, scene.nodes)
    points = lay_out(scene)
    if scene.kind is SceneKind.COMMITS:
        return _commit_frame(scene, points)
    small = 3.0 if len(scene.nodes) > 1_000 else 5.0 if len(scene.nodes) > 100 else 7.0
    radii = {
        node.key: 4 + 12 * node.size
        if node.size
        else small + min(math.sqrt(degrees[node.key]), 10) * small / 6
        for node in scene.nodes
    }
    inner = (WIDTH - 4 * _MARGIN, HEIGHT - _HEADER - _FOOTER - 2 * _MARGIN)
    low, high = (points.min(axis=0), points.max(axis=0)) if len(points) else (points, points)
    spans = [max(float(high[axis] - low[axis]), 1e-9) for axis in (0, 1)] if len(points) else [1, 1]
    scale = min(inner[0] / spans[0], inner[1] / spans[1], 120.0)
    places = {
        node.key: (
            WIDTH / 2 + (point[0] - (low[0] + high[0]) / 2) * scale,
            _HEADER + _MARGIN + inner[1] / 2 - (point[1] - (low[1] + high[1]) / 2) * scale,
        )
        for node, point in zip(scene.nodes, points.tolist(), strict=True)
    }
    return _Frame(width=WIDTH, height=HEIGHT, places=places, radii=radii)


def _commit_frame(scene: Scene, points: Points) -> _Frame:
    places = {
        node.key: (
            _MARGIN + 12 + int(x) * _COMMIT_LANE,
            _HEADER + 24 - int(y) * _COMMIT_ROW,
        )
        for node, (x, y) in zip(scene.nodes, points.tolist(), strict=True)
    }
    height = _HEADER + 24 + len(scene.nodes) * _COMMIT_ROW + _FOOTER
    radii = dict.fromkeys(places, 6.0)
    return _Frame(width=WIDTH, height=height, places=places, radii=radii)


def count_text(scene: Scene) -> str:
    """How much of how much is shown."""
    nodes, edges = scene.visible()
    if scene.kind is SceneKind.COMMITS:
        return f"{len(nodes):,} of {counted(scene.nodes_total, 'commit')}"
    if scene.kind is SceneKind.TYPES:
        return (
            f"{counted(len(nodes), 'node type')} with {counted(scene.nodes_total, 'node')}, "
            f"{counted(len(scene.edge_colors), 'edge type')} with "
            f"{counted(scene.edges_total, 'edge')}"
        )
    return (
        f"{len(nodes):,} of {counted(scene.nodes_total, 'node')}, "
        f"{len(edges):,} of {counted(scene.edges_total, 'edge')}"
        f"{' (a sample)' if scene.is_sample else ''}"
    )


def _arrow_heads(colors: Mapping[str, str]) -> Iterator[str]:
    yield "<defs>"
    for place, color in enumerate(colors.values()):
        yield (
            f'<marker id="head-{place}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" '
            f'markerHeight="9" orient="auto" markerUnits="userSpaceOnUse">'
            f'<path d="M0 .8 8 4 0 7.2z" fill="{color}"/></marker>'
        )
    yield "</defs>"


def _has_arrows(scene: Scene) -> bool:
    """The edges of a history all point down."""
    return scene.kind is not SceneKind.COMMITS and len(scene.edges) <= _ARROWS_MAX


def _lines(scene: Scene, frame: _Frame, colors: Mapping[NodeKey, str]) -> Iterator[str]:
    if scene.kind is SceneKind.COMMITS:
        yield from (_lane(edge, frame, colors) for edge in scene.edges)
        return
    colors_of_lines, has_arrows = _line_colors(scene), _has_arrows(scene)
    places = {name: place for place, name in enumerate(colors_of_lines)}
    for edge, (path, _, _) in zip(scene.edges, _curves(scene, frame), strict=True):
        name = edge.mark.value if scene.kind is SceneKind.DIFF else edge.type
        kind = "edge" if edge.mark is Mark.PLAIN else f"edge {edge.mark.value}"
        head = f' marker-end="url(#head-{places[name]})"' if has_arrows else ""
        yield f'<path class="{kind}" stroke="{colors_of_lines[name]}" d="{path}"{head}/>'


def _lane(edge: SceneEdge, frame: _Frame, colors: Mapping[NodeKey, str]) -> str:
    """From a commit down to its parent: a merge changes the lane first, a branch at its end."""
    (x1, y1), (x2, y2) = frame.places[edge.source], frame.places[edge.target]
    step = _COMMIT_ROW
    is_merge = edge.type == MERGED
    if x1 == x2:
        path = f"V{y2}"
    elif is_merge:
        path = f"C{x1} {y1 + step} {x2} {y1} {x2} {y1 + step}V{y2}"
    else:
        path = f"V{y2 - step}C{x1} {y2} {x2} {y2 - step} {x2} {y2}"
    color = colors[edge.target if is_merge else edge.source]
    return f'<path class="lane" d="M{x1} {y1}{path}" stroke="{color}"/>'


def _curves(scene: Scene, frame: _Frame) -> Iterator[tuple[str, float, float]]:
    """Lines of edges, and where their labels are; those between the same nodes bend apart."""
    pairs = [tuple(sorted((edge.source, edge.target))) for edge in scene.edges]
    counts, seen = Counter(pairs), Counter[tuple[NodeKey, ...]]()
    for edge, pair in zip(scene.edges, pairs, strict=True):
        side = seen[pair] - (counts[pair] - 1) / 2
        seen[pair] += 1
        yield _curve(edge, frame, side if edge.source <= edge.target else -side, seen[pair])


def _curve(edge: SceneEdge, frame: _Frame, side: float, number: int) -> tuple[str, float, float]:
    (x1, y1), (x2, y2) = frame.places[edge.source], frame.places[edge.target]
    if edge.source == edge.target:
        width = frame.radii[edge.source] + 6 * number
        path = f"M{x1:.1f} {y1:.1f}c{width:.1f} {-2 * width:.1f} {2 * width:.1f} 0 4 -2"
        return path, x1 + width, y1 - width
    length = max(math.hypot(x2 - x1, y2 - y1), 1e-9)
    bend = side * min(_BEND, length / 3) / length
    middle = ((x1 + x2) / 2 + (y2 - y1) * bend, (y1 + y2) / 2 - (x2 - x1) * bend)
    over = (2 * middle[0] - (x1 + x2) / 2, 2 * middle[1] - (y1 + y2) / 2)
    reach = max(math.hypot(x2 - over[0], y2 - over[1]), 1e-9)
    short = min((frame.radii[edge.target] + 2) / reach, 0.5)
    x2, y2 = x2 - (x2 - over[0]) * short, y2 - (y2 - over[1]) * short
    bent = f"Q{over[0]:.1f} {over[1]:.1f} " if side else ""
    return f"M{x1:.1f} {y1:.1f} {bent}{x2:.1f} {y2:.1f}", *middle


def _node(node: SceneNode, frame: _Frame, color: str) -> str:
    x, y = frame.places[node.key]
    tip = _text(f"{MARK_SIGNS[node.mark]}{node.key[0]} {node.key[1]}")
    return (
        f'<circle class="node" cx="{x:.1f}" cy="{y:.1f}" r="{frame.radii[node.key]:.1f}" '
        f'fill="{color}"><title>{tip}</title></circle>'
    )


def _labels(scene: Scene, frame: _Frame) -> Iterator[str]:
    taken: dict[tuple[int, int], list[tuple[float, float, float]]] = {}
    degrees = degrees_of(scene, scene.nodes)
    ordered = sorted(
        scene.nodes, key=lambda node: (node.mark is Mark.PLAIN, -degrees[node.key], node.key)
    )
    is_log = scene.kind is SceneKind.COMMITS
    lanes = max((frame.places[node.key][0] for node in scene.nodes), default=0.0)
    for node in ordered if is_log else ordered[:_LABELS_MAX]:
        x, y = frame.places[node.key]
        label = MARK_SIGNS[node.mark] + (
            node.label if is_log else cut(node.label, _LABEL_CHARACTERS)
        )
        left = lanes + 22 if is_log else x + frame.radii[node.key] + 4
        width = len(label) * _LETTER
        is_generated = node.label == short_id(node.key[1]) != node.key[1]
        if not is_log and (
            (is_generated and len(ordered) > _GENERATED_MAX)
            or left + width > frame.width - 4
            or not _take(taken, left, y, width)
        ):
            continue
        yield f'<text class="label" x="{left:.1f}" y="{y + 4:.1f}">{_text(label)}</text>'
    for edge, (_, x, y) in () if is_log else zip(scene.edges, _curves(scene, frame), strict=True):
        width = len(edge.label) * _LETTER * 0.85
        left, text = x - width / 2, _text(edge.label)
        if text and 0 < left < frame.width - width and _take(taken, left, y, width):
            yield f'<text class="label soft small" x="{left:.1f}" y="{y + 3:.1f}">{text}</text>'


def _take(
    taken: dict[tuple[int, int], list[tuple[float, float, float]]], x: float, y: float, width: float
) -> bool:
    """Whether a label has room; if so, the room is taken."""
    cells = [
        (column, row)
        for column in range(int(x // 100), int((x + width) // 100) + 1)
        for row in range(int(y // _LINE) - 1, int(y // _LINE) + 2)
    ]
    for cell in cells:
        for other_x, other_y, other_width in taken.get(cell, ()):
            if abs(other_y - y) < _LINE and x < other_x + other_width and other_x < x + width:
                return False
    for column in range(int(x // 100), int((x + width) // 100) + 1):
        taken.setdefault((column, int(y // _LINE)), []).append((x, y, width))
    return True


def _legend(scene: Scene, frame: _Frame) -> Iterator[str]:
    """A row of what nodes are, and one of what edges are."""
    y = frame.height - 34
    if scene.kind is SceneKind.DIFF:
        plain = {"unchanged": MARK_COLORS[Mark.PLAIN]}
        marks = {mark.value: MARK_COLORS[mark] for mark in Mark if mark is not Mark.PLAIN}
        yield from _legend_row(plain | marks, frame, y, "circle")
    else:
        yield from _legend_row(scene.node_colors, frame, y, "circle")
    if scene.kind in (SceneKind.GRAPH, SceneKind.TYPES):
        yield from _legend_row(scene.edge_colors, frame, y + 20, "line")


def _legend_row(colors: Mapping[str, str], frame: _Frame, y: int, sign: str) -> Iterator[str]:
    x = float(_MARGIN)
    for name, color in colors.items():
        width = 30 + len(name) * (_LETTER + 0.6)
        if x + width > frame.width - _MARGIN:
            yield f'<text class="soft" x="{x:.1f}" y="{y + 4}">\u2026</text>'
            return
        if sign == "circle":
            yield f'<circle cx="{x + 5:.1f}" cy="{y}" r="5" fill="{color}"/>'
        else:
            yield f'<path d="M{x:.1f} {y}h11" stroke="{color}" stroke-width="2"/>'
        yield f'<text class="soft" x="{x + 15:.1f}" y="{y + 4}">{_text(name)}</text>'
        x += width


def _text(text: str) -> str:
    return escape(printable(text))
