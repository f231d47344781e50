"""The result of an inference: types with the reason of every decision, as commented schema text.

Invariant: the text of a draft is a valid schema; what came from an input is in comments only where
no character of it can end or break a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from omnigraph.language.diagnostics import REFUSED_CHARACTER
from omnigraph.load.formats.mapping import SourceMapping, ValueMapping

_BREAKS: Final = re.compile(r"[\r\n\u2028\u2029]")
_COMMENT_MAX: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyDraft:
    """A property, where its value comes from, and why it is as it is."""

    name: str
    type: str
    nullable: bool
    value: ValueMapping
    why: str = ""


@dataclass(slots=True, kw_only=True)
class NodeDraft:
    """A node type; `key` names its properties."""

    name: str
    properties: list[PropertyDraft] = field(default_factory=list)
    key: tuple[str, ...] = ()
    why: str = ""


@dataclass(slots=True, kw_only=True)
class EdgeDraft:
    """An edge type; `single` if a source has one edge at most."""

    name: str
    source: str
    target: str
    properties: list[PropertyDraft] = field(default_factory=list)
    single: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A schema and the mapping of every source to it."""

    nodes: tuple[NodeDraft, ...]
    edges: tuple[EdgeDraft, ...]
    mappings: tuple[SourceMapping, ...]
    notes: tuple[str, ...] = ()

    def schema_text(self) -> str:
        """The schema in the schema language, with a comment for every decision."""
        lines = [f"// {comment(note)}" for note in self.notes]
        for node in self.nodes:
            lines += ["", *_node_lines(node)]
        for edge in self.edges:
            lines += ["", *_edge_lines(edge)]
        return "\n".join(lines).lstrip("\n") + "\n"


def comment(text: str) -> str:
    """A text as part of a line comment."""
    clean = REFUSED_CHARACTER.sub("?", _BREAKS.sub(" ", text))
    return clean if len(clean) <= _COMMENT_MAX else f"{clean[: _COMMENT_MAX - 3]}..."


def _node_lines(node: NodeDraft) -> list[str]:
    single = node.key[0] if len(node.key) == 1 else None
    body = _property_lines(node.properties, key=single)
    if len(node.key) > 1:
        body += ["", f"    @key({', '.join(node.key)})"]
    opening = [f"// {comment(node.why)}"] if node.why else []
    return [*opening, f"node {node.name} {{", *body, "}"]


def _edge_lines(edge: EdgeDraft) -> list[str]:
    head = f"edge {edge.name}: {edge.source} -> {edge.target}"
    if edge.single:
        head += " @card(0..1)"
    opening = [f"// {comment(edge.why)}"] if edge.why else []
    if not edge.properties:
        return [*opening, head]
    return [*opening, f"{head} {{", *_property_lines(edge.properties, key=None), "}"]


def _property_lines(properties: list[PropertyDraft], *, key: str | None) -> list[str]:
    declared = [
        f"    {prop.name}: {prop.type}{'?' if prop.nullable else ''}"
        + (" @key" if prop.name == key else "")
        for prop in properties
    ]
    width = min(max(map(len, declared), default=0), 60)
    return [
        f"{line.ljust(width)}  // {comment(prop.why)}".rstrip() if prop.why else line
        for line, prop in zip(declared, properties, strict=True)
    ]
