"""Writes a scene as one HTML page that needs nothing else.

Invariants:
- The page has no address in it and its policy allows no request: script, style and data are inline,
  and only the script and the style with these hashes are in force.
- Values of the graph are data: they are in a block of JSON that no parser takes for markup, and the
  script puts them into the page as text only.
- The same scene gives the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Final

import msgspec

from omnigraph_lake.view.layout import lay_out
from omnigraph_lake.view.scene import Mark, Scene, SceneEdge, SceneNode

_ENCODER: Final = msgspec.json.Encoder()
_UNSAFE: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
"""What a JSON text must not contain inside of a page, and how JSON writes it."""
_MARKS: Final = tuple(Mark)
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def scene_page(scene: Scene) -> str:
    """The interactive page of a scene."""
    data = json_block(_data(scene))
    script = asset("view.js")
    body = (
        '<noscript class="notice">This page draws a graph with a script, and scripts are off.'
        "</noscript>\n"
        '<div id="app"></div>\n'
        f'<script type="application/json" id="data">{data}</script>\n'
        f"<script>{script}</script>"
    )
    return html_page(scene.title, body, style=asset("view.css"), script=script)


def html_page(title: str, body: str, *, style: str, script: str | None = None) -> str:
    """A page with a policy that allows this style and this script, and nothing else.

    `body` is markup: its author has escaped what came from elsewhere.
    """
    rules = [
        "default-src 'none'",
        f"style-src '{_hash(style)}'",
        *([] if script is None else [f"script-src '{_hash(script)}'"]),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return _PAGE.format(policy="; ".join(rules), title=escape(plain(title)), style=style, body=body)


def json_block(data: object) -> str:
    """JSON that can be the content of a script element."""
    text = _ENCODER.encode(data)
    for unsafe, replacement in _UNSAFE:
        text = text.replace(unsafe, replacement)
    return text.decode()


def plain(text: str) -> str:
    """A text that UTF-8 can encode: names of files may hold anything."""
    return text.encode("utf-8", "replace").decode()


@cache
def asset(name: str) -> str:
    """A file that belongs to every page: the script, or a style."""
    return resources.files("omnigraph_lake.view").joinpath("assets", name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _data(scene: Scene) -> Mapping[str, object]:
    """What the script reads; rows are arrays, because a page may have many of them."""
    node_colors, edge_colors = scene.node_colors, scene.edge_colors
    type_places = {name: place for place, name in enumerate(node_colors)}
    edge_places = {name: place for place, name in enumerate(edge_colors)}
    places = {node.key: place for place, node in enumerate(scene.nodes)}
    points = lay_out(scene).round(3).tolist()
    return {
        "kind": scene.kind.value,
        "title": plain(scene.title),
        "facts": [(plain(name), plain(text)) for name, text in scene.facts],
        "notes": list(scene.notes),
        "totals": (scene.nodes_total, scene.edges_total),
        "marks": [mark.value for mark in _MARKS],
        "isSample": scene.is_sample,
        "types": [(name, color, scene.node_rows.get(name)) for name, color in node_colors.items()],
        "edgeTypes": [
            (name, color, scene.edge_rows.get(name)) for name, color in edge_colors.items()
        ],
        "nodes": [
            _node_row(node, type_places[node.key[0]], point)
            for node, point in zip(scene.nodes, points, strict=True)
        ],
        "edges": [_edge_row(edge, edge_places[edge.type], places) for edge in scene.edges],
        "other": scene.other and _data(scene.other),
    }


def _node_row(node: SceneNode, place: int, point: Sequence[float]) -> tuple[object, ...]:
    return (
        place,
        node.key[1],
        node.label,
        *point,
        _MARKS.index(node.mark),
        node.shown,
        node.complete,
        node.properties or 0,
        node.before or 0,
        node.size,
    )


def _edge_row(
    edge: SceneEdge, place: int, places: Mapping[tuple[str, str], int]
) -> tuple[object, ...]:
    return (
        place,
        places[edge.source],
        places[edge.target],
        edge.id,
        _MARKS.index(edge.mark),
        edge.properties or 0,
        edge.before or 0,
        edge.label,
    )
